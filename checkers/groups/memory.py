"""`memory`: a mirror node's memory grows with partitions, or past what its fetchers may hold.

Proves, by form, of the rows of `metrics` of one node:
- `bound`: memory_bytes rose by more than k × fetcher_threads × fetch_response_max_bytes above its lowest value before
  (k: `memory_factor` of the run's floor, 3 by default).
- `growth`: the peak with the most mirror_partitions is more than a quarter, and more than one response, above the
  peak with the fewest, with at least twice as many partitions.

Cannot see: peaks between two samples; memory of brokers, which mirroring shares with everything else.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="memory",
    severity=Severity.S4,
    violation="used memory beyond its bound",
    section=4,
    what="a mirror's memory is bounded by fetchers and response size, whatever the number of partitions",
    limitations="peaks between two samples",
    sources=("KIP-1279",),
    requires=("metrics",),
    forms=("bound", "growth"),
)
FACTOR = 3.0
_NAMES = ("memory_bytes", "fetcher_threads", "fetch_response_max_bytes", "mirror_partitions")


def check(t: Tables) -> DataFrame | None:
    """At most one row per node and form."""
    rows = _samples(t)
    return union([_over_bound(rows), _grown(rows)])


def _samples(t: Tables) -> DataFrame:
    """Samples of memory: cluster, node, value, mirror_partitions, fetch_response_max_bytes, … (as known by then), least
    (value so far), bound (of its rise)."""
    factor = float(t.meta.floor.get("memory_factor", FACTOR))
    rows = t.table("metrics").where(F.col("name").isin(*_NAMES))
    order = Window.partitionBy("cluster", "node").orderBy("time_ns", F.col("name") == "memory_bytes")
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)

    def newest(name: str) -> Column:
        return F.last(F.when(F.col("name") == name, F.col("value")), ignorenulls=True).over(so_far)

    memory = F.when(F.col("name") == "memory_bytes", F.col("value"))
    rows = rows.withColumns({name: newest(name) for name in _NAMES[1:]})
    rows = rows.withColumn("least", F.min(memory).over(so_far)).where("name = 'memory_bytes'")
    return rows.withColumn(
        "bound", (F.lit(factor) * F.col("fetcher_threads") * F.col("fetch_response_max_bytes")).cast("bigint")
    )


def _over_bound(rows: DataFrame) -> DataFrame:
    over = rows.withColumn("rise", F.col("value") - F.col("least")).where("rise > bound")
    over = over.groupBy("cluster", "node").agg(F.max("rise").alias("rise"), F.max_by("bound", "rise").alias("bound"))
    return anomalies(
        over,
        "memory",
        form=F.lit("bound"),
        topic=None,
        partition=None,
        offset=None,
        value="node",
        rank=-F.col("rise"),
        explain=sentence("memory of %s rose by %s bytes; %s are allowed", "node", "rise", "bound"),
    )


def _grown(rows: DataFrame) -> DataFrame:
    peaks = (
        rows.where("mirror_partitions is not null")
        .groupBy("cluster", "node", "mirror_partitions")
        .agg(F.max("value").alias("peak"), F.max("fetch_response_max_bytes").alias("response"))
    )
    ends = peaks.groupBy("cluster", "node").agg(
        F.min(F.struct("mirror_partitions", "peak")).alias("few"),
        F.max(F.struct("mirror_partitions", "peak")).alias("many"),
        F.max("response").alias("response"),
    )
    grown = ends.where("many.mirror_partitions >= 2 * few.mirror_partitions and many.peak > 1.25 * few.peak")
    grown = grown.where("many.peak - few.peak > coalesce(response, 0)")
    return anomalies(
        grown,
        "memory",
        form=F.lit("growth"),
        topic=None,
        partition=None,
        offset=None,
        value="node",
        explain=sentence(
            "memory of %s peaked at %s bytes with %s partitions and at %s with %s",
            *("node", "few.peak", "few.mirror_partitions", "many.peak", "many.mirror_partitions"),
        ),
    )


CHECKER = Checker(name="memory", kinds=(KIND,), check=check)
