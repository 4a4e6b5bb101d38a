"""The dependency graph of transactions: who wrote after whom (ww), who read whom (wr). Adya's, for logs.

A node is a transaction, as one operation (`f` = txn) or made of steps, on one cluster; or one record sent outside a
transaction, because nothing guarantees that such records stay together. A poll outside a transaction writes nothing,
so it is in no cycle, and is not a node. Nor are aborted or refused writes: reads of them are another anomaly (G1a).

Version order of a partition: by offset, the records that polls returned, those of acknowledged or committed sends, and
those of operations with unknown result if at least one of their records was read. A value that is there twice counts
at its first offset. Two neighbours are a ww edge; a reader that is not read_uncommitted is a wr edge, from whichever
cluster the record came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.history import KEY
from checkers.views.incarnations import undecided

if TYPE_CHECKING:
    from checkers.views.tables import Tables

WW, WR = "ww", "wr"
SHIFT = 20
"""A node's number: the index of the event that ended it, shifted by this many bits; the low bits number the records of
that event from 1; 0 is the transaction. So numbers follow time, and most edges lead from smaller to greater ones."""
EDGE = ("source", "target", "kind", *KEY, "offset", "next_offset")


def dependencies(t: Tables) -> DataFrame:
    """Edges, one row per source, target and kind: `EDGE`. offset, next_offset: of the two records (ww), or of the
    record that was read and null (wr); cluster, topic and partition are those of the records."""
    written = t.cache(_written(t))
    edges = _ww(t, written).unionByName(_wr(t, written)).where("source != target")
    first = F.min(F.struct(*KEY, "offset", "next_offset")).alias("first")
    return edges.groupBy("source", "target", "kind").agg(first).select("source", "target", "kind", "first.*")


def _unit() -> Column:
    """A transaction's name within its cluster; null outside transactions."""
    return F.when(F.col("f") == "txn", F.concat(F.lit("op "), F.col("op").cast("string"))).otherwise(
        F.concat(F.lit("txn "), F.col("txn"))
    )


def _written(t: Tables) -> DataFrame:
    """Values that took effect: value, cluster, topic, partition, era, offset (as acknowledged), unit, node."""
    sent = t.sends.where("outcome in ('acked', 'committed', 'unknown')").withColumn("unit", _unit())
    alone = F.concat(F.lit("record "), F.col("op").cast("string"))  # for a send outside a transaction: its operation
    sent = sent.withColumn("whole", F.coalesce("unit", alone))
    doubtful = sent.where("outcome = 'unknown'").select("cluster", "whole", "value")
    read = t.reads.where("type = 'ok' and value is not null").select("value").distinct()
    happened = doubtful.join(read, "value", "left_semi").select("cluster", "whole").distinct()
    happened = happened.withColumn("happened", F.lit(True))
    sent = sent.join(happened, ["cluster", "whole"], "left").where("outcome != 'unknown' or happened")
    ended = F.coalesce("decided_index", "done_index", "op")
    last = F.max(ended).over(Window.partitionBy("cluster", "whole"))
    place = F.when(F.col("unit").isNull(), F.coalesce("position", F.lit(0)) + 1).otherwise(0)
    node = (F.shiftleft(last, SHIFT) + place).alias("node")
    return sent.select("value", *KEY, "offset", "unit", node)


def _ww(t: Tables, written: DataFrame) -> DataFrame:
    """Edges between neighbours in a partition's version order."""
    writers = written.groupBy("cluster", "value").agg(F.min("node").alias("node"))
    place = (*KEY, "offset", "value")
    polled = t.reads.where("value is not null").select(*place)
    there = polled.unionByName(written.select(*place)).where("offset is not null and partition is not null")
    there = there.where(~undecided())
    there = there.groupBy(*KEY, "value").agg(F.min("offset").alias("offset")).join(writers, ["cluster", "value"])
    order = Window.partitionBy(*KEY).orderBy("offset", "node")
    return there.select(
        F.lag("node").over(order).alias("source"),
        F.col("node").alias("target"),
        F.lit(WW).alias("kind"),
        *KEY,
        F.lag("offset").over(order).alias("offset"),
        F.col("offset").alias("next_offset"),
    ).where("offset < next_offset")


def _wr(t: Tables, written: DataFrame) -> DataFrame:
    """Edges from writers to the transactions that read them. A transaction that wrote nothing is in no cycle."""
    readers = written.where("unit is not null").select("cluster", "unit", F.col("node").alias("target")).distinct()
    reads = t.reads.where("(f = 'txn' or txn is not null) and value is not null")
    reads = reads.where("coalesce(isolation, '') != 'read_uncommitted'").withColumn("unit", _unit())
    reads = reads.join(readers, ["cluster", "unit"]).select("value", "target", *KEY, "offset")
    writers = written.groupBy("value").agg(F.min("node").alias("source"))
    return reads.join(writers, "value").select(
        *("source", "target", F.lit(WR).alias("kind"), *KEY, "offset"), F.lit(None).cast("bigint").alias("next_offset")
    )
