"""`acl_lost`: an ACL binding disappeared undeleted, stayed after its source's was deleted, or appeared by itself.

Proves, by form:
- `local`: a binding was on a cluster (created there, or seen) and a later snapshot does not show it, though no
  administrator deleted it in between, and the cluster that is mirrored to it did not lose it either. This includes a
  binding outside the mirror's filter that the mirror deleted, but not one that the mirror created for its own purposes.
- `stale`: a binding that a mirror brought (seen on both clusters, never created on the destination by an
  administrator) was removed on the source, and the last snapshot of the destination, later than the bound, still
  shows it.
- `appeared`: after every mirrored topic was stopped, a snapshot shows a binding that the one before did not, and no
  administrator created it there.
An administrator is every actor whose name does not begin with `mirror` or `mm2`. The bound is 0 in an imported history
(its writer chose the times), otherwise `acl_bound_s` of the run's floor, 60 s by default.

Cannot see: what came and went between two snapshots; bindings of a source without snapshots.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.group_sync import source_of
from checkers.views.mirror_spans import stopped_since
from checkers.views.mirroring import keeps_offsets
from checkers.views.tables import Tables
from harness.history.jsonl.events import MIRRORS

KIND = AnomalyKind(
    name="acl_lost",
    after_healing=True,
    severity=Severity.SEC,
    violation="had other ACL bindings than its administrator had set",
    section=4,
    what="local ACL bindings stay until an administrator deletes them, mirrored ones follow the source",
    limitations="what came and went between two snapshots; bindings of a source without snapshots",
    sources=("KIP-1279",),
    requires=("acls",),
    forms=("local", "stale", "appeared"),
)
BOUND_S = 60.0
KEY = ("cluster", "binding")


def by_mirror(actor: Column | str = "actor") -> Column:
    """Whether the mirror made a change."""
    name = F.col(actor) if isinstance(actor, str) else actor
    return F.coalesce(F.lower(name).rlike(f"^({'|'.join(MIRRORS)})"), F.lit(False))


def check(t: Tables) -> DataFrame | None:
    """One row per binding and form."""
    acls = t.table("acls").where("cluster is not null")
    snapshots = acls.where("event = 'look'").select("cluster", F.col("time_ns").alias("look_ns")).distinct()
    there = acls.where("binding is not null and (event = 'look' or event = 'create')")
    order = Window.partitionBy(*KEY).orderBy("time_ns")
    there = there.select(*KEY, "time_ns", "event", "actor", F.lead("time_ns").over(order).alias("next_ns"))
    deleted = acls.where("event = 'delete' and binding is not null")
    last = there.groupBy(*KEY).agg(F.max("time_ns").alias("last_ns")).join(F.broadcast(snapshots), "cluster", "left")
    gone = F.min(F.when(F.col("look_ns") > F.col("last_ns"), F.col("look_ns")))
    ends = last.groupBy(*KEY, "last_ns").agg(gone.alias("missed_ns"))
    cut = deleted.groupBy(*KEY).agg(F.max("time_ns").alias("cut_ns"))
    ends = ends.join(cut, list(KEY), "left")
    # When a binding ended on its source, for the cluster that it is mirrored to; null: it is still there.
    at_source = ends.select(
        F.col("cluster").alias("source"),
        "binding",
        F.least("missed_ns", F.when(F.col("cut_ns") >= F.col("last_ns"), F.col("cut_ns"))).alias("source_end"),
        F.lit(True).alias("on_source"),
    )
    local = _local(t, there, snapshots, deleted, _mirrors_own(acls))
    return union([local, _stale(t, acls, ends, at_source), _appeared(t, acls, snapshots, there)])


def _row(rows: DataFrame, form: str, words: str, *columns: str) -> DataFrame:
    return anomalies(
        rows,
        "acl_lost",
        form=F.lit(form),
        topic=None,
        partition=None,
        offset=None,
        value="binding",
        rank=F.when(F.col("binding").startswith("DENY"), 0).otherwise(1),
        explain=sentence(words, *columns),
    )


def _missed(there: DataFrame, snapshots: DataFrame) -> DataFrame:
    """Bindings missing from a snapshot before they were seen again: KEY, time_ns, next_ns, look_ns."""
    rows = there.join(F.broadcast(snapshots), "cluster")
    rows = rows.where("look_ns > time_ns and look_ns < coalesce(next_ns, look_ns + 1)")
    return rows.groupBy(*KEY, "time_ns", "next_ns").agg(F.min("look_ns").alias("look_ns"))


def _absences(there: DataFrame, snapshots: DataFrame, deleted: DataFrame) -> DataFrame:
    """When bindings were absent: KEY, from_ns (deleted, or missing from a snapshot), until_ns (null: for good)."""
    cuts = there.join(deleted.select(*KEY, F.col("time_ns").alias("cut_ns")), list(KEY))
    cuts = cuts.where("cut_ns >= time_ns and cut_ns < coalesce(next_ns, cut_ns + 1)")
    ends = _missed(there, snapshots).select(*KEY, F.col("look_ns").alias("from_ns"), "next_ns", "time_ns")
    ends = ends.unionByName(cuts.select(*KEY, F.col("cut_ns").alias("from_ns"), "next_ns", "time_ns"))
    ends = ends.groupBy(*KEY, "time_ns").agg(F.min("from_ns").alias("from_ns"), F.max("next_ns").alias("until_ns"))
    return ends.drop("time_ns")


def _mirrors_own(acls: DataFrame) -> DataFrame:
    """Bindings that a mirror created for its own purposes, e.g. to keep clients from a mirrored topic: KEY. Only
    mirrors changed them, on any cluster."""
    changed = F.col("event") != "look"
    rows = acls.where("binding is not null").groupBy(*KEY)
    hands = rows.agg(F.max(changed & by_mirror()).alias("its"), F.max(changed & ~by_mirror()).alias("made"))
    others = hands.where("made or not its").select("binding").distinct()
    return hands.where("its").join(others, "binding", "left_anti").select(*KEY)


def _with_source(t: Tables, rows: DataFrame) -> DataFrame:
    """`source`: the cluster that is mirrored to the row's; B for A where a run mirrors back."""
    source = source_of("cluster")
    if t.has("mirror_states") and not t.table("mirror_states").where("cluster = 'A'").isEmpty():
        source = F.coalesce(source, F.when(F.col("cluster") == "A", "B"))
    return rows.withColumn("source", source)


def _local(t: Tables, there: DataFrame, snapshots: DataFrame, deleted: DataFrame, own: DataFrame) -> DataFrame:
    missed = _missed(there, snapshots).join(own, list(KEY), "left_anti")
    by_admin = deleted.where(~by_mirror()).select(*KEY, F.col("time_ns").alias("deleted_ns"))
    undone = (missed.cluster == by_admin.cluster) & (missed.binding == by_admin.binding)
    undone = undone & by_admin.deleted_ns.between(missed.time_ns, missed.look_ns)
    missed = _with_source(t, missed.join(by_admin, undone, "left_anti"))
    away = _absences(there, snapshots, deleted).withColumnsRenamed({"cluster": "away_from", "binding": "away"})
    followed = (away.away_from == missed.source) & (away.away == missed.binding) & (away.from_ns <= missed.look_ns)
    followed = followed & (F.coalesce(away.until_ns, missed.time_ns + 1) > missed.time_ns)
    rows = missed.join(away, followed, "left_anti").groupBy(*KEY).agg(F.min("look_ns").alias("look_ns"))
    return _row(rows, "local", "%s is gone from %s, and no administrator deleted it there", "binding", "cluster")


def _stale(t: Tables, acls: DataFrame, ends: DataFrame, at_source: DataFrame) -> DataFrame | None:
    probed = t.meta.capabilities.get("acl_sync")
    if not (probed.yes if probed is not None else keeps_offsets(t)):
        return None
    bound = 0 if t.stored.imported else int(float(t.meta.floor.get("acl_bound_s", BOUND_S)) * 1e9)
    made = acls.where("event = 'create'").where(~by_mirror()).select(*KEY).distinct()
    rows = ends.where("missed_ns is null and coalesce(cut_ns < last_ns, true)").join(made, list(KEY), "left_anti")
    rows = _with_source(t, rows).join(at_source, ["source", "binding"])
    rows = rows.where(F.col("last_ns") > F.col("source_end") + bound)
    if t.has("mirror_states"):
        stopped = stopped_since(t).groupBy("cluster").agg(F.min("stopped_ns").alias("stopped_ns"))
        rows = rows.join(F.broadcast(stopped), "cluster", "left")
        rows = rows.where(F.col("stopped_ns").isNull() | (F.col("stopped_ns") > F.col("source_end") + bound))
    return _row(rows, "stale", "%s was removed from %s and is still on %s", "binding", "source", "cluster")


def _appeared(t: Tables, acls: DataFrame, snapshots: DataFrame, there: DataFrame) -> DataFrame | None:
    if not t.has("mirror_states"):
        return None
    states = t.table("mirror_states").where("topic is not null").select("cluster", "topic").distinct()
    whole = (
        states.join(stopped_since(t), ["cluster", "topic"], "left")
        .groupBy("cluster")
        .agg(F.max("stopped_ns").alias("stopped_ns"), F.max(F.col("stopped_ns").isNull()).alias("going"))
    )
    quiet = snapshots.join(F.broadcast(whole.where("not going")), "cluster").where("look_ns >= stopped_ns")
    first = quiet.groupBy("cluster").agg(F.min("look_ns").alias("first_ns"))
    known = there.groupBy(*KEY).agg(F.min("time_ns").alias("begin"), F.min_by("event", "time_ns").alias("event"))
    rows = known.join(F.broadcast(first), "cluster").where("begin > first_ns and event = 'look'")
    return _row(
        rows,
        "appeared",
        "%s appeared on %s after every topic was stopped, and no administrator created it",
        "binding",
        "cluster",
    )


CHECKER = Checker(name="acl_lost", kinds=(KIND,), check=check)
