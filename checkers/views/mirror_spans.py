"""When each partition was mirrored, and when it was writable: shared by the checkers of access and states.

Not a checker. Snapshots of a mirror's states are periodic, so the time of a change is known only where an operation
caused it: a partition counts as mirrored until the operation that stopped it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.keys import PARTITION

if TYPE_CHECKING:
    from checkers.views.tables import Tables

MIRRORED = (
    *("PREPARING", "LOG_TRUNCATION", "EPOCH_FENCING", "MIRRORING"),
    *("PAUSING", "PAUSED", "STOPPING", "FAILED"),
)
"""States in which only the mirror may write."""


def stop_begins(t: Tables) -> DataFrame:
    """Operations that stopped a mirror: cluster, begin, end."""
    ops = (
        t.ops.where("f in ('mirror_stop', 'failover')")
        .groupBy("op", "cluster")
        .agg(F.min("time_ns").alias("begin"), F.max("time_ns").alias("end"))
    )
    return ops.select("cluster", "begin", "end")


def stop_targets(t: Tables) -> DataFrame:
    """Operations that stopped a mirror, by topic: cluster, origin_topic (null where it is not recorded), begin."""
    ops = t.ops.where("f in ('mirror_stop', 'failover')").select("index", "op", "cluster", "time_ns")
    targets = t.table("op_records").where("topic is not null").select(F.col("op_index").alias("index"), "topic")
    rows = ops.join(targets, "index", "left").withColumn("origin_topic", t.canonical())
    began = F.min("time_ns").over(Window.partitionBy("op"))
    said = F.max("origin_topic").over(Window.partitionBy("op")).isNotNull()
    rows = rows.withColumns({"begin": began, "said": said}).where("origin_topic is not null or not said")
    return rows.select("cluster", "origin_topic", "begin").distinct()


def requests(t: Tables, *functions: str) -> DataFrame:
    """Operations on mirrors that were not refused: cluster, origin_topic (null: all of the mirror's), begin, end (null:
    never acknowledged)."""
    ops = t.ops.where(F.col("f").isin(*functions)).select("index", "op", "type", "cluster", "time_ns")
    targets = t.table("op_records").where("action = 'target'").select(F.col("op_index").alias("index"), "topic")
    rows = ops.join(targets, "index", "left").withColumn("origin_topic", t.canonical())
    found = rows.groupBy("op", "cluster").agg(
        F.min("time_ns").alias("begin"),
        F.max(F.when(F.col("type") == "ok", F.col("time_ns"))).alias("end"),
        F.collect_set("origin_topic").alias("topics"),
        F.max(F.col("type") == "fail").alias("refused"),
    )
    found = found.where("not refused").withColumn("origin_topic", F.explode_outer("topics"))
    return found.select("cluster", "origin_topic", "begin", "end")


def spans(t: Tables) -> DataFrame:
    """Spans of time in which a partition was mirrored without a break: PARTITION, state (the first), from_ns, until_ns
    (null: to the end of the history)."""
    found = t.once("mirror_spans", _spans)
    assert found is not None
    return found


def _spans(t: Tables) -> DataFrame:
    rows = t.table("mirror_states").where("state is not null and topic is not null and partition is not null")
    access = F.when(F.col("state").isin(*MIRRORED), "mirrored").when(F.col("state") == "STOPPED", "open")
    rows = rows.select(*PARTITION, "state", "time_ns", access.otherwise("unknown").alias("access"))
    order = Window.partitionBy(*PARTITION).orderBy("time_ns", "access")
    rows = rows.withColumn("before", F.lag("access").over(order)).where("before is null or before != access")
    rows = rows.withColumns({"next_ns": F.lead("time_ns").over(order), "next": F.lead("access").over(order)})
    rows = rows.where("access = 'mirrored'").withColumn("id", F.monotonically_increasing_id())
    stops = F.broadcast(stop_begins(t).withColumnRenamed("cluster", "stop_on"))
    stopped = (F.col("stop_on") == F.col("cluster")) & F.col("next_ns").between(F.col("begin"), F.col("end"))
    joined = rows.join(stops, stopped, "left")
    until = F.min(F.least("next_ns", "begin"))
    return (
        joined.groupBy(*PARTITION, "state", F.col("time_ns").alias("from_ns"), "id")
        .agg(until.alias("until_ns"))
        .drop("id")
    )


def stopped_since(t: Tables) -> DataFrame:
    """When the mirror of a topic was stopped for good: cluster, topic, stopped_ns. Only topics of which every partition
    ended in state STOPPED; stopped_ns is the last partition's stop."""
    rows = t.table("mirror_states").where("state is not null and topic is not null")
    rows = rows.groupBy(*PARTITION).agg(
        F.max_by("state", "time_ns").alias("state"),
        F.max(F.when(F.col("state") != "STOPPED", F.col("time_ns"))).alias("other_ns"),
        F.collect_list(F.when(F.col("state") == "STOPPED", F.col("time_ns"))).alias("stops"),
    )
    after = F.filter("stops", lambda x: F.col("other_ns").isNull() | (x > F.col("other_ns")))
    rows = rows.withColumn("stopped_ns", F.array_min(after))
    rows = rows.groupBy("cluster", "topic").agg(
        F.max("stopped_ns").alias("stopped_ns"),
        F.min(F.coalesce(F.col("state") == "STOPPED", F.lit(False))).alias("all"),
    )
    return rows.where("all and stopped_ns is not null").drop("all")


def stop_acknowledged(t: Tables) -> DataFrame:
    """`stopped_since`, with stopped_ns not before the end of the operation that stopped the mirror: a snapshot may show
    a partition stopped while the operation is still restoring its topic's configuration."""
    stops = F.broadcast(stop_begins(t).withColumnRenamed("cluster", "stop_on"))
    found = stopped_since(t)
    during = (F.col("stop_on") == F.col("cluster")) & F.col("stopped_ns").between(F.col("begin"), F.col("end"))
    ended = F.max(F.greatest("stopped_ns", "end")).alias("stopped_ns")
    return found.join(stops, during, "left").groupBy("cluster", "topic").agg(ended)
