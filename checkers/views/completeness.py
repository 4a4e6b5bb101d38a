"""Which evidence is complete: missing evidence proves neither an anomaly nor its absence.

A Shatterproof run records for each replica whether its whole log was captured (`captured_logs`). Older runs do not:
there a replica's log is complete when it holds batches up to the log end in the last snapshot. Rows lost since they
were stored count as missing, too, and so does a log that no snapshot accounts for: what was captured may be less than
the broker had. An imported history shows what its writer chose to show.

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
    """Every replica whose log had to be captured, or was: REPLICA, complete, why (null: complete). None for an imported
    history, and where no snapshot has any replica."""
    if t.stored.imported or not t.has("log_ends"):
        return None
    ends = t.table("log_ends").where("partition is not null").withColumn("look", F.coalesce("look", F.lit(0)))
    assigned = _assigned(t, ends)
    bounds = (
        _last_snapshots(ends)
        .where("log_end is not null")
        .groupBy(*REPLICA)
        .agg(F.max("log_start").alias("log_start"), F.max("log_end").alias("log_end"))
    )
    rows = assigned.join(_stored(t), list(REPLICA), "full").join(_reported(t), list(REPLICA), "full")
    rows = _unaccounted(t, rows.join(bounds, list(REPLICA), "left"), ends)
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
        .when(F.col("unaccounted"), said(" was captured, and no snapshot shows where it ends"))
        .when(unreported & F.col("batches").isNull() & ~empty, said(" was not captured"))
        .when(unreported & F.coalesce(short, F.lit(False)), said(" ends before the log end that was seen"))
    )
    rows = rows.withColumn("why", why).where("assigned or unaccounted")
    return t.cache(rows.select(*REPLICA, F.col("why").isNull().alias("complete"), "why"))


def _assigned(t: Tables, ends: DataFrame) -> DataFrame:
    """The replicas of every partition in each cluster's last snapshot by its brokers: REPLICA, assigned. Rows that were
    made from captured files (their broker did not answer) name no replicas."""
    seen = _last_snapshots(ends.where("replicas is not null"))
    assigned = seen.select(*PARTITION, F.explode("replicas").alias("broker")).distinct()
    own = _listed_brokers(t)
    if own:
        listed = sorted({cluster for cluster, _ in own})
        real = t.spark.createDataFrame(own, "cluster string, broker int")
        unlisted = assigned.where(~F.col("cluster").isin(*listed))
        assigned = assigned.join(F.broadcast(real), ["cluster", "broker"], "left_semi").select(*REPLICA)
        assigned = assigned.unionByName(unlisted.select(*REPLICA))
    return assigned.withColumn("assigned", F.lit(True))


def _listed_brokers(t: Tables) -> list[tuple[str, int]]:
    """Clusters' letters and brokers, as run.json lists them."""
    return [(c, b) for c, info in t.meta.clusters.items() for b in info.brokers]


def is_listed(t: Tables, broker: str) -> Column:
    """Whether the broker in this column is one of the cluster's own, as run.json lists them; true where it lists none.
    Another one is a mirror's process."""
    own = [F.lit(f"{cluster} {number}") for cluster, number in _listed_brokers(t)]
    return F.concat_ws(" ", "cluster", F.col(broker).cast("string")).isin(*own) if own else F.lit(True)


def _unaccounted(t: Tables, rows: DataFrame, ends: DataFrame) -> DataFrame:
    """Add unaccounted: something was captured from a listed broker, but no snapshot goes with its last capture, or none
    by the cluster's brokers names its partition."""
    own = _listed_brokers(t)
    if not own:
        return rows.withColumn("unaccounted", F.lit(False))
    real = t.spark.createDataFrame(own, "cluster string, broker int").withColumn("real", F.lit(True))
    with_end = ends.where("log_end is not null").groupBy(*REPLICA).agg(F.max("look").alias("end_look"))
    named = ends.where("replicas is not null").select(*PARTITION).distinct().withColumn("named", F.lit(True))
    rows = rows.join(F.broadcast(real), ["cluster", "broker"], "left")
    rows = rows.join(with_end, list(REPLICA), "left").join(named, list(PARTITION), "left")
    captured = F.col("real") & F.greatest("stored_look", "reported_look").isNotNull()
    seen = F.col("end_look") >= F.greatest("stored_look", "reported_look")
    missing = ~F.coalesce(seen, F.lit(False)) | F.col("named").isNull()
    return rows.withColumn("unaccounted", F.coalesce(captured & missing, F.lit(False)))


def _last_snapshots(ends: DataFrame) -> DataFrame:
    """`log_ends` of each cluster's last snapshot."""
    newest = ends.groupBy("cluster").agg(F.max("look").alias("look"))
    return ends.join(F.broadcast(newest), ["cluster", "look"])


def _stored(t: Tables) -> DataFrame:
    """The stored rows of each replica: REPLICA, batches, records (rows of the last snapshot), stored_end,
    stored_look."""
    snapshot = F.coalesce("look", F.lit(0)).alias("look")
    last = F.max_by(F.struct("n", "end"), "look").alias("last")
    batches = (
        t.table("batches")
        .groupBy(*REPLICA, snapshot)
        .agg(F.count("*").alias("n"), (F.max("last_offset") + 1).alias("end"))
    )
    batches = (
        batches.groupBy(*REPLICA)
        .agg(last, F.max("look").alias("batches_look"))
        .select(*REPLICA, F.col("last.n").alias("batches"), F.col("last.end").alias("stored_end"), "batches_look")
    )
    records = t.table("records").groupBy(*REPLICA, snapshot).agg(F.count("*").alias("n"))
    records = records.groupBy(*REPLICA).agg(F.max_by("n", "look").alias("records"), F.max("look").alias("records_look"))
    rows = batches.join(records, list(REPLICA), "full")
    return rows.withColumn("stored_look", F.greatest("batches_look", "records_look"))


def _reported(t: Tables) -> DataFrame:
    """The capture's own report: REPLICA, reported_complete, reported_why, reported_batches, reported_records,
    reported_look."""
    names = {
        "complete": "reported_complete",
        "why": "reported_why",
        "batches": "reported_batches",
        "records": "reported_records",
    }
    look = F.coalesce("look", F.lit(0))
    said = F.max_by(F.struct(*(F.col(c).alias(n) for c, n in names.items())), look).alias("s")
    rows = t.table("captured_logs").groupBy(*REPLICA).agg(said, F.max(look).alias("reported_look"))
    return rows.select(*REPLICA, "s.*", "reported_look")


def gaps(t: Tables) -> tuple[Gap, ...]:
    """Every replica whose log is not complete."""
    expected = t.expected
    if expected is None:
        return ()
    found = _unseen_destinations(t)
    bad = expected.where("not complete")
    if t.is_empty(expected) or bad.isEmpty():
        return tuple(found)
    kept = t.truth.select(*PARTITION).distinct().withColumn("kept", F.lit(True))
    rows = bad.join(kept, list(PARTITION), "left").collect()
    found += [Gap(r["cluster"], r["topic"], r["partition"], r["broker"], r["kept"] is None, r["why"]) for r in rows]
    return tuple(sorted(found))


def _unseen_destinations(t: Tables) -> list[Gap]:
    """The partitions of each source whose destination, a cluster with listed brokers, is in no snapshot at all."""
    listed = {cluster for cluster, _ in _listed_brokers(t)}
    seen = {row[0] for row in t.stored.table("log_ends").select("cluster").distinct().collect()}
    found = []
    for source, destination in t.mirror_pairs:
        if destination in listed and destination not in seen:
            parts = t.truth.where(F.col("cluster") == source).select("origin_topic", "partition").collect()
            why = f"no snapshot of cluster {destination} is there"
            found += [Gap(destination, topic, partition, -1, True, why) for topic, partition in parts]
    return found


def sentence_of(missing: Sequence[Gap]) -> str:
    """One sentence that names the partitions, and the reason of the first."""
    names = list(dict.fromkeys(f"{g.topic}-{g.partition} on {g.cluster}" for g in missing))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"the logs of {', '.join(names[:_MOST_NAMED])}{more} are incomplete ({missing[0].why})"
