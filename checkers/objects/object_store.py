"""Object stores (diskless, tiered): `orphan_objects`, `referenced_deleted`, `stale_commit`, `commit_barrier`.

They prove, from the tables `objects` (what the store holds) and `object_refs` (what the metadata references):
- `orphan_objects`: the last snapshot shows an object that no metadata has referenced for longer than the grace
  (`orphan_grace_s` of the run's floor, 600 s), and at least `orphan_cycles` (2) cleaning cycles ended meanwhile.
- `referenced_deleted`: an object was deleted while the metadata referenced it (form `deleted`), or the metadata
  references it and the last snapshot does not show it (form `missing`).
- `stale_commit`: a batch was accepted under a broker epoch older than one that the broker had registered with before.
- `commit_barrier`: a transaction became visible before a batch of each of its acknowledged records was registered.

They cannot see: the contents of objects; unrecorded deletions and commits between snapshots.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.keys import PARTITION
from checkers.views.tables import Tables

_SOURCES = ("KIP-1150", "KIP-1163", "KIP-405")
ORPHANS = AnomalyKind(
    name="orphan_objects",
    severity=Severity.S4,
    violation="kept objects that nothing references",
    section=5,
    what="objects that no metadata references are deleted within some cleaning cycles",
    limitations="the contents of objects; objects younger than the grace",
    sources=_SOURCES,
    requires=("objects", "object_refs"),
)
DELETED = AnomalyKind(
    name="referenced_deleted",
    severity=Severity.S1,
    violation="lost objects that metadata references",
    section=5,
    what="no object disappears while metadata references it",
    limitations="an object that was overwritten",
    sources=_SOURCES,
    requires=("objects", "object_refs"),
    forms=("deleted", "missing"),
)
STALE = AnomalyKind(
    name="stale_commit",
    severity=Severity.S1,
    violation="accepted batches of an old broker epoch",
    section=5,
    what="no batch of a broker's old epoch is accepted",
    limitations="unrecorded registrations",
    sources=_SOURCES,
    requires=("object_refs",),
)
BARRIER = AnomalyKind(
    name="commit_barrier",
    severity=Severity.S1,
    violation="showed transactions without all of their records",
    section=5,
    what="when a transaction is visible, every acknowledged record of it is",
    limitations="records whose acknowledged offset is unknown",
    sources=_SOURCES,
    requires=("ops", "op_records", "object_refs"),
)
GRACE_S, CYCLES = 600.0, 2
KEY = ("cluster", "object")


def check(t: Tables) -> DataFrame | None:
    """One row per object, commit, and acknowledged record that came too late."""
    stored = t.has("objects")
    return union([_orphans(t) if stored else None, _deleted(t) if stored else None, _stale(t), _barrier(t)])


def _named(t: Tables) -> DataFrame:
    """Accepted references and their ends, and the snapshots, as one timeline: KEY, time_ns, named."""
    refs = t.table("object_refs").where("object is not null and event in ('commit', 'drop')")
    refs = refs.where("event = 'drop' or coalesce(accepted, true)")
    return refs.select(*KEY, "time_ns", (F.col("event") == "commit").alias("named"))


def _last_snapshot(t: Tables) -> DataFrame:
    snapshots = t.table("objects").where("event = 'look'")
    return snapshots.groupBy("cluster").agg(F.max("time_ns").alias("look_ns"), F.max("cycle").alias("last_cycle"))


def _orphans(t: Tables) -> DataFrame:
    grace = int(float(t.meta.floor.get("orphan_grace_s", GRACE_S)) * 1e9)
    cycles = int(t.meta.floor.get("orphan_cycles", CYCLES))
    rows = (
        t.table("objects")
        .where("event = 'look' and object is not null")
        .join(F.broadcast(_last_snapshot(t)), "cluster")
    )
    state = _named(t).groupBy(*KEY).agg(F.max_by("named", "time_ns").alias("named"), F.max("time_ns").alias("changed"))
    rows = rows.join(state, list(KEY), "left").where("not coalesce(named, false)")
    rows = (
        rows.where("changed is null or time_ns >= changed")
        .groupBy(*KEY, "look_ns", "last_cycle", "changed")
        .agg(
            F.max("time_ns").alias("seen"),
            F.min("time_ns").alias("first"),
            F.max("created_ns").alias("created"),
            F.min("cycle").alias("cycle"),
            F.max("size").alias("size"),
        )
    )
    since = F.greatest(F.coalesce("created", "first"), "changed")
    rows = rows.where("seen = look_ns").withColumn("age", F.col("look_ns") - since)
    rows = rows.where((F.col("age") > grace) & (F.col("last_cycle") - F.col("cycle") >= cycles))
    return _row(
        rows,
        "orphan_objects",
        rank=-F.col("size"),
        explain=sentence(
            "no metadata has referenced object %s on %s for %s s",
            "object",
            "cluster",
            F.round(F.col("age") / 1e9, 1),
        ),
    )


def _deleted(t: Tables) -> DataFrame | None:
    order = Window.partitionBy(*KEY).orderBy("time_ns", "deleted")
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    deletes = (
        t.table("objects").where("event = 'delete'").select(*KEY, "time_ns", F.lit(None).cast("boolean").alias("named"))
    )
    events = _named(t).withColumn("deleted", F.lit(0)).unionAll(deletes.withColumn("deleted", F.lit(1)))
    rows = events.withColumn("held", F.last("named", ignorenulls=True).over(so_far)).where("deleted = 1 and held")
    snapshots = _last_snapshot(t)
    shown = t.table("objects").where("event = 'look' and object is not null")
    shown = shown.select(*KEY, F.col("time_ns").alias("look_ns"))
    state = _named(t).join(F.broadcast(snapshots), "cluster").where("time_ns <= look_ns")
    state = state.groupBy(*KEY, "look_ns").agg(F.max_by("named", "time_ns").alias("named")).where("named")
    gone = state.join(shown, [*KEY, "look_ns"], "left_anti").join(rows.select(*KEY), list(KEY), "left_anti")
    return union(
        [
            _row(
                rows,
                "referenced_deleted",
                form=F.lit("deleted"),
                explain=sentence("object %s on %s was deleted while metadata referenced it", "object", "cluster"),
            ),
            _row(
                gone,
                "referenced_deleted",
                form=F.lit("missing"),
                explain=sentence(
                    "metadata on %s references object %s, which the store does not hold", "cluster", "object"
                ),
            ),
        ]
    )


def _row(rows: DataFrame, kind: str, **given: object) -> DataFrame:
    place = {"topic": None, "partition": None, "offset": None, "value": "object"}
    return anomalies(rows, kind, **place, **given)  # type: ignore[arg-type]


def _stale(t: Tables) -> DataFrame:
    rows = t.table("object_refs").where(
        "event in ('epoch', 'commit') and broker is not null and broker_epoch is not null"
    )
    order = Window.partitionBy("cluster", "broker").orderBy("time_ns", F.desc("event"))
    known = F.max(F.when(F.col("event") == "epoch", F.col("broker_epoch")))
    rows = rows.withColumn("newest", known.over(order.rowsBetween(Window.unboundedPreceding, 0)))
    rows = rows.where("event = 'commit' and coalesce(accepted, true) and broker_epoch < newest")
    return anomalies(
        rows,
        "stale_commit",
        offset="base_offset",
        value="object",
        rank="time_ns",
        explain=sentence(
            "a batch of broker %s on %s was accepted under its epoch %s, after it had registered with %s",
            *("broker", "cluster", "broker_epoch", "newest"),
        ),
    )


def _barrier(t: Tables) -> DataFrame:
    refs = t.table("object_refs")
    visible = (
        refs.where("event = 'txn' and txn is not null").groupBy("cluster", "txn").agg(F.min("time_ns").alias("at"))
    )
    sent = t.sends.where("txn is not null and type = 'ok' and offset is not null")
    sent = sent.join(F.broadcast(visible), ["cluster", "txn"]).select(
        *PARTITION, "txn", "offset", "value", "done_index", "at"
    )
    made = refs.where("event = 'commit' and coalesce(accepted, true)")
    made = made.select(*PARTITION, "base_offset", "last_offset", F.col("time_ns").alias("made_ns"))
    same = [sent[c] == made[c] for c in PARTITION]
    inside = sent["offset"].between(made["base_offset"], made["last_offset"]) & (made["made_ns"] <= sent["at"])
    return anomalies(
        sent.join(made, [*same, inside], "left_anti"),
        "commit_barrier",
        ops=op_list("done_index"),
        rank="offset",
        explain=sentence(
            "transaction %s was visible before its acknowledged %s at %s of %s-%s on %s was registered",
            *("txn", "value", "offset", "topic", "partition", "cluster"),
        ),
    )


CHECKER = Checker(name="object_store", kinds=(ORPHANS, DELETED, STALE, BARRIER), check=check)
