"""Which evidence is complete: missing evidence proves neither an anomaly nor its absence.

A Shatterproof run records for each replica whether its whole log was captured (`captured_logs`). Older runs do not:
there a replica's log is complete when it holds batches up to the log end in the last snapshot. Rows lost since they
were stored count as missing, too. An imported history shows what its writer chose to show.

Incomplete logs are left out of `Tables.replicas` and everything derived from it, so that nothing is concluded from what
they lack. Kinds that need them (`AnomalyKind.logs`) are then `unknown`, and name the partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.base import sentence
from checkers.views.keys import PARTITION, REPLICA

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_MOST_NAMED = 3
"""Most partitions that a sentence names."""


@dataclass(frozen=True, order=True)
class Gap:
    """One replica whose log is missing or incomplete, and why. Only: whether no other replica's log of the
    partition can replace it."""

    cluster: str
    topic: str
    partition: int
    broker: int
    only: bool
    why: str


def replicas_expected(t: Tables) -> DataFrame | None:
    """Every replica whose log had to be captured: REPLICA, complete, why (null: complete). None for an imported
    history, and where no snapshot has any replica."""
    if t.stored.imported or not t.has("log_ends"):
        return None
    ends = _last_snapshots(t)
    assigned = ends.where("replicas is not null").select(*PARTITION, F.explode("replicas").alias("broker")).distinct()
    own = [(c, b) for c, info in t.meta.clusters.items() for b in info.brokers]
    if own:
        listed = [c for c, info in t.meta.clusters.items() if info.brokers]
        real = t.spark.createDataFrame(own, "cluster string, broker int")
        unlisted = assigned.where(~F.col("cluster").isin(*listed))
        assigned = assigned.join(F.broadcast(real), ["cluster", "broker"], "left_semi").select(*REPLICA)
        assigned = assigned.unionByName(unlisted.select(*REPLICA))
    bounds = (
        ends.where("log_end is not null")
        .groupBy(*REPLICA)
        .agg(F.max("log_start").alias("log_start"), F.max("log_end").alias("log_end"))
    )
    rows = assigned.join(bounds, list(REPLICA), "left").join(_stored(t), list(REPLICA), "left")
    rows = rows.join(_reported(t), list(REPLICA), "left")
    place = sentence("the log of %s-%s on broker %s of %s", "topic", "partition", "broker", "cluster")

    def said(words: str) -> Column:
        return F.concat(place, F.lit(words))

    empty = F.coalesce(F.col("log_start") == F.col("log_end"), F.lit(False))
    lost = (F.coalesce("batches", F.lit(0)) < F.col("reported_batches")) | (
        F.coalesce("records", F.lit(0)) < F.col("reported_records")
    )
    unreported = F.col("reported_complete").isNull()
    short = F.col("stored_end") < F.col("log_end")
    if t.compacted is not None:
        flags = F.broadcast(t.compacted.withColumn("compacted", F.lit(True)))
        rows = rows.join(flags, ["cluster", "topic"], "left")
        short = short & F.col("compacted").isNull()  # a cleaner may have removed the last records
    why = (
        F.when(~F.coalesce("reported_complete", F.lit(True)), F.coalesce("reported_why", said(" is incomplete")))
        .when(F.coalesce(lost, F.lit(False)), said(" has lost rows since it was stored"))
        .when(unreported & F.col("batches").isNull() & ~empty, said(" was not captured"))
        .when(unreported & F.coalesce(short, F.lit(False)), said(" ends before the log end that was seen"))
    )
    rows = rows.withColumn("why", why)
    return t.cache(rows.select(*REPLICA, F.col("why").isNull().alias("complete"), "why"))


def _last_snapshots(t: Tables) -> DataFrame:
    """`log_ends` of each cluster's last snapshot."""
    ends = t.table("log_ends").where("partition is not null").withColumn("look", F.coalesce("look", F.lit(0)))
    newest = ends.groupBy("cluster").agg(F.max("look").alias("look"))
    return ends.join(F.broadcast(newest), ["cluster", "look"])


def _stored(t: Tables) -> DataFrame:
    """The stored rows of each replica: REPLICA, batches, records (rows of the last snapshot), stored_end."""
    snapshot = F.coalesce("look", F.lit(0)).alias("look")
    last = F.max_by(F.struct("n", "end"), "look").alias("last")
    batches = (
        t.table("batches")
        .groupBy(*REPLICA, snapshot)
        .agg(F.count("*").alias("n"), (F.max("last_offset") + 1).alias("end"))
    )
    batches = (
        batches.groupBy(*REPLICA)
        .agg(last)
        .select(*REPLICA, F.col("last.n").alias("batches"), F.col("last.end").alias("stored_end"))
    )
    records = t.table("records").groupBy(*REPLICA, snapshot).agg(F.count("*").alias("n"))
    records = records.groupBy(*REPLICA).agg(F.max_by("n", "look").alias("records"))
    return batches.join(records, list(REPLICA), "full")


def _reported(t: Tables) -> DataFrame:
    """The capture's own report: REPLICA, reported_complete, reported_why, reported_batches,
    reported_records."""
    names = {
        "complete": "reported_complete",
        "why": "reported_why",
        "batches": "reported_batches",
        "records": "reported_records",
    }
    said = F.max_by(F.struct(*(F.col(c).alias(n) for c, n in names.items())), F.coalesce("look", F.lit(0)))
    return t.table("captured_logs").groupBy(*REPLICA).agg(said.alias("s")).select(*REPLICA, "s.*")


def gaps(t: Tables) -> tuple[Gap, ...]:
    """Every replica whose log is not complete."""
    expected = t.expected
    if expected is None:
        return ()
    bad = expected.where("not complete")
    if t.is_empty(expected) or bad.isEmpty():
        return ()
    kept = t.truth.select(*PARTITION).distinct().withColumn("kept", F.lit(True))
    rows = bad.join(kept, list(PARTITION), "left").collect()
    return tuple(
        sorted(Gap(r["cluster"], r["topic"], r["partition"], r["broker"], r["kept"] is None, r["why"]) for r in rows)
    )


def sentence_of(missing: Sequence[Gap]) -> str:
    """One sentence that names the partitions, and the reason of the first."""
    names = list(dict.fromkeys(f"{g.topic}-{g.partition} on {g.cluster}" for g in missing))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"the logs of {', '.join(names[:_MOST_NAMED])}{more} are incomplete ({missing[0].why})"
