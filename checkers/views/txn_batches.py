"""Transactional batches and markers of the authoritative logs, each data batch with the marker that ends it.

Not a checker: shared by the checkers of transactions. A producer is identified by its id, or where an imported history
has none by the transaction's name. Built from batches, not from records, so that it is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.keys import PARTITION, REPLICA

if TYPE_CHECKING:
    from checkers.views.tables import Tables

MARKERS = ("COMMIT", "ABORT")


def counting_batches(t: Tables) -> DataFrame:
    """Batches of the authoritative log, at or above its log start: columns as `Tables.log_batches`, and `resets`: how
    many producer id resets are before it in its partition."""
    batches = t.log_batches.join(F.broadcast(t.truth.select(*REPLICA)), list(REPLICA))
    batches = batches.where("last_offset >= coalesce(log_start, 0)")
    if t.table("batches").where("control_type = 'PID_RESET'").isEmpty():
        return batches.withColumn("resets", F.lit(0).cast("bigint"))
    before = Window.partitionBy(*PARTITION).orderBy("base_offset").rowsBetween(Window.unboundedPreceding, 0)
    return batches.withColumn("resets", F.count(F.when(F.col("control_type") == "PID_RESET", 1)).over(before))


def txn_batches(t: Tables) -> DataFrame:
    """cluster, topic, origin_topic, partition, producer, base_offset, last_offset, control (a marker), control_type,
    producer_id, producer_epoch, coordinator_epoch, leader_epoch, timestamp, txn, high_watermark, last_stable, look_ns,
    and end_offset, end_type, end_time, end_epoch: of the first marker of that producer after it (null: open);
    last_marker, last_marker_epoch: offset and greatest producer epoch of its markers before."""
    found = t.once("txn_batches", _build)
    assert found is not None
    return found


def producer_key() -> Column:
    """The producer of a batch or record: its producer id, or without one its transaction."""
    by_id = F.when(F.col("producer_id") != -1, F.col("producer_id").cast("string"))
    return F.coalesce(by_id, "txn", F.lit("?"))


def _build(t: Tables) -> DataFrame:
    rows = counting_batches(t)
    marker = F.coalesce(F.col("control_type").isin(*MARKERS), F.lit(False))
    named = F.coalesce("transactional", F.lit(False)) | F.col("txn").isNotNull()
    control = F.coalesce("control", F.lit(False))
    rows = rows.where(marker | (named & ~control)).withColumn("control", marker)
    rows = rows.withColumn("producer", producer_key())
    # Backwards: Spark takes quadratic time for a frame that ends after the current row.
    later = Window.partitionBy(*PARTITION, "producer").orderBy(F.desc("base_offset"))
    later = later.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # After a reset the same id is another producer.
    earlier = Window.partitionBy(*PARTITION, "producer", "resets").orderBy("base_offset")
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    mark = F.when(
        F.col("control"),
        F.struct(
            F.col("base_offset").alias("offset"),
            F.col("control_type").alias("type"),
            F.col("timestamp").alias("time"),
            F.col("producer_epoch").alias("epoch"),
        ),
    )
    rows = rows.withColumns(
        {
            "end": F.when(~F.col("control"), F.last(mark, ignorenulls=True).over(later)),
            "last_marker": F.max(F.when(F.col("control"), F.col("base_offset"))).over(earlier),
            "last_marker_epoch": F.max(F.when(F.col("control"), F.col("producer_epoch"))).over(earlier),
        }
    )
    return rows.select(
        *("cluster", "topic", "origin_topic", "partition", "producer", "base_offset", "last_offset", "control"),
        *("control_type", "producer_id", "producer_epoch", "coordinator_epoch", "leader_epoch", "timestamp", "txn"),
        *("high_watermark", "last_stable", "look_ns", "last_marker", "last_marker_epoch"),
        *(F.col(f"end.{n}").alias(f"end_{n}") for n in ("offset", "type", "time", "epoch")),
    )


def txn_names(t: Tables) -> DataFrame:
    """Which transaction a data batch belongs to, as clients or an imported history named it: cluster, topic, partition,
    base_offset, txn, outcome, decided_index, decided_ns. Only on the cluster that the transaction was sent to."""
    found = t.once("txn_names", _names)
    assert found is not None
    return found


def _names(t: Tables) -> DataFrame:
    key = (*PARTITION, "base_offset")
    stored = txn_batches(t).where("not control and txn is not null").select(*key, "txn")
    rows = stored
    if t.facts.transactional:
        sent = t.sends.where("txn is not null or f = 'txn'")
        name = F.coalesce("txn", F.concat(F.lit("op "), F.col("op").cast("string")))
        sent = sent.select("cluster", "value", F.col("offset").alias("acked_at"), name.alias("txn"))
        times = F.count("*").over(Window.partitionBy("cluster", "value"))
        log = t.truth_log.where("control_type is null and value is not null and transactional")
        by_value = log.select(*key, "value", "offset").join(sent.withColumn("times", times), ["cluster", "value"])
        # A value that was sent again is at the acknowledged offset of each of its sends.
        by_value = by_value.where("times = 1 or acked_at = offset").select(*key, "txn")
        rows = stored.unionByName(by_value)
    names = rows.groupBy(*key).agg(F.min("txn").alias("txn"))
    return names.join(outcomes(t), ["cluster", "txn"], "left")


def outcomes(t: Tables) -> DataFrame:
    """How transactions ended, as clients saw it: cluster, txn, outcome (committed, aborted, unknown), decided_ns."""
    sent = t.sends.where("txn is not null or f = 'txn'")
    name = F.coalesce("txn", F.concat(F.lit("op "), F.col("op").cast("string")))
    whole = sent.where("f = 'txn' and outcome in ('committed', 'aborted')").select(
        "cluster",
        name.alias("txn"),
        "outcome",
        F.col("done_ns").alias("decided_ns"),
        F.col("done_index").alias("decided_index"),
    )
    steps = t.txns.select("cluster", "txn", F.col("txn_outcome").alias("outcome"), "decided_ns", "decided_index")
    return whole.unionByName(steps).dropDuplicates(["cluster", "txn"])
