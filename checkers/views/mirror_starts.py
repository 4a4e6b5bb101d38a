"""When a mirror was started to a partition, and which writes of its own that partition lost to it.

Not a checker. A start truncates the log that it finds: to where both logs agreed at the last stop between the two
clusters, in either direction (the *cut*), or wherever the design says. That is a failback, or a restart. In a round
trip (A→B, B→A, A→B) every start has a cut of its own, so cuts are a list per partition and direction, and each applies
to what was written before its start only.

A start is a state in which the mirror prepares or mirrors and before which the partition was stopped, or not mirrored
at all; or an acknowledged start or failback. UNKNOWN and FAILED are looked through: a partition that leaves MIRRORING
for them and comes back was not started. Where the run settles, an operator restarts partitions that have FAILED.
From the request to the first MIRRORING after it, snapshots of that log say nothing about the log after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.mirror_spans import requests
from checkers.views.mirroring import NEVER
from harness.history.ops import Phase

if TYPE_CHECKING:
    from checkers.views.tables import Tables

PREPARING = ("PREPARING", "LOG_TRUNCATION", "EPOCH_FENCING")
"""States in which the design truncates the destination's log."""
PLACE = ("cluster", "origin_topic", "partition")
_REQUESTS = ("mirror_start", "mirror_failback")


def starts(t: Tables) -> DataFrame | None:
    """One row per start: PLACE, from_ns (the request, else the last state before it), begin_ns (the request, else the
    first state that shows it), mirroring_ns (the first MIRRORING after it; `NEVER`), again (it found a log with records
    of its own: after a stop, or of a source). None without states."""
    return t.once("mirror_starts", _starts) if t.has("mirror_states") else None


def _starts(t: Tables) -> DataFrame:
    rows = t.table("mirror_states").where("state is not null and topic is not null and partition is not null")
    rows = rows.select("cluster", t.canonical().alias("origin_topic"), "partition", "time_ns", "state", "event")
    order = Window.partitionBy(*PLACE).orderBy("time_ns")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    # Backwards: Spark takes quadratic time for a frame that ends at the end of the partition.
    later = Window.partitionBy(*PLACE).orderBy(F.desc("time_ns")).rowsBetween(Window.unboundedPreceding, 0)
    known = F.when(~F.col("state").isin("UNKNOWN", "FAILED"), F.col("state"))
    seen = F.when(F.col("state") != "UNKNOWN", F.col("state"))
    rows = rows.withColumns(
        {
            "before": F.last(known, ignorenulls=True).over(earlier),
            "last": F.last(seen, ignorenulls=True).over(earlier),
            "prior_ns": F.lag("time_ns").over(order),
            "active_ns": F.max(F.when(F.col("state").isin(*PREPARING, "MIRRORING"), F.col("time_ns"))).over(earlier),
            "mirroring_ns": F.last(F.when(F.col("state") == "MIRRORING", F.col("time_ns")), ignorenulls=True).over(
                later
            ),
        }
    )
    active = F.col("state").isin(*PREPARING, "MIRRORING")
    begun = F.col("before").isNull() | (F.col("before") == "STOPPED")
    said = F.coalesce(F.col("event").isin("start", "failback"), F.lit(False))
    rows = rows.where(active & (begun | said | _revived(t)))
    sources = sorted({source for source, _ in t.mirror_pairs} - {destination for _, destination in t.mirror_pairs})
    rows = rows.withColumn("again", F.col("before").isNotNull() | F.col("cluster").isin(*sources))
    return _with_requests(t, rows).select(*PLACE, "from_ns", "begin_ns", "mirroring_ns", "again")


def _revived(t: Tables) -> Column:
    """Whether an operator restarted a partition that had FAILED: only where a run settles."""
    found = F.lit(False)
    for phase in t.meta.phases:
        if phase.name == Phase.SETTLE and not t.stored.imported:
            until = F.lit(NEVER if phase.end_ns is None else phase.end_ns)
            found = found | F.col("time_ns").between(F.lit(phase.start_ns), until)
    return found & F.coalesce(F.col("last") == "FAILED", F.lit(False))


def _with_requests(t: Tables, rows: DataFrame) -> DataFrame:
    """Add from_ns and begin_ns, and fill in mirroring_ns."""
    mirroring = F.coalesce("mirroring_ns", F.lit(NEVER))
    if not t.facts.any(*_REQUESTS):
        began = {"from_ns": F.coalesce("prior_ns", "time_ns"), "begin_ns": F.col("time_ns"), "mirroring_ns": mirroring}
        return rows.withColumns(began)
    asked = requests(t, *_REQUESTS)
    asked = asked.select(
        F.col("cluster").alias("on"), F.col("origin_topic").alias("of"), F.col("begin").alias("asked_ns")
    )
    mine = (F.col("on") == F.col("cluster")) & (F.col("of").isNull() | (F.col("of") == F.col("origin_topic")))
    mine = mine & (F.col("asked_ns") <= F.col("time_ns"))
    mine = mine & (F.col("asked_ns") >= F.coalesce("active_ns", F.lit(0)))
    request = F.max("asked_ns")
    keys = (*PLACE, "time_ns", "prior_ns", "mirroring_ns", "again")
    rows = rows.join(F.broadcast(asked), mine, "left")
    return (
        rows.groupBy(*keys)
        .agg(
            F.coalesce(request, "prior_ns", "time_ns").alias("from_ns"),
            F.coalesce(request, "time_ns").alias("begin_ns"),
        )
        .withColumn("mirroring_ns", mirroring)
    )


def with_cuts(t: Tables) -> DataFrame | None:
    """The starts that found records of the log's own, with `cut`: the offset from which on they were discarded, by the
    last stop before, of a mirror from there (its source offset) or to there (its destination offset); null where none
    is recorded. None where there are none."""
    return t.once("mirror_starts_cuts", _with_cuts) if starts(t) is not None else None


def _with_cuts(t: Tables) -> DataFrame | None:
    found = starts(t)
    assert found is not None
    again = found.where("again")
    if again.isEmpty() or not t.mirror_pairs:
        return None
    stops = t.table("mirror_states").where("state = 'STOPPED'").withColumn("origin_topic", t.canonical())
    # In a chain nothing is mirrored back from the last cluster to the one in the middle.
    first = t.mirror_pairs[0]
    back = [first[::-1]] if len(t.mirror_pairs) > 1 else [first[::-1], first]
    parts = [stops.select(*PLACE, F.col("destination_offset").alias("cut"), "time_ns")]
    for there, source in back:
        own = stops.where(F.col("cluster") == there).withColumn("cluster", F.lit(source))
        parts.append(own.select(*PLACE, F.col("source_offset").alias("cut"), "time_ns"))
    cuts = parts[0]
    for part in parts[1:]:
        cuts = cuts.unionByName(part)
    cuts = cuts.where("cut is not null")
    rows = again.join(cuts, list(PLACE), "left")
    keys = ("from_ns", "begin_ns", "mirroring_ns")
    before = F.col("time_ns") <= F.col("begin_ns")
    return rows.groupBy(*PLACE, *keys).agg(F.max_by("cut", F.when(before, F.col("time_ns"))).alias("cut"))
