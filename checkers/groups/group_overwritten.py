"""`group_overwritten`: a mirror wrote offsets of groups that it must not touch, or missed groups that it must sync.

Proves, by form:
- `active`: an offset was synced to a group while it had members on the destination: by the sync itself, or the last
  snapshot before it; or one process polled there under that group before and after it without leaving in between.
- `behind`: a sync wrote less than the group had committed on the destination after the mirror was stopped (at any
  time, where the states of the mirror are not known at all).
- `stopped`: the mirror wrote an offset after the stop of the topic's partitions was acknowledged
  (`views.group_after_stop`).
- `filter`: a synced group is not among those that the mirror's options name (`groups`, `groups.exclude`).
- `missing`: in a Shatterproof run that settled, whose mirror syncs groups: a group had an offset of a mirrored topic on
  the source before the run settled, and none on the destination at the end (e.g. its coordinator was never asked).

Cannot see: members that no snapshot and no poll shows; an unrecorded sync that a later one corrected.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.group_after_stop import written_when_stopped
from checkers.views.group_sync import commits, places, source_of
from checkers.views.mirroring import keeps_offsets, settled
from checkers.views.tables import Tables
from harness.history.ops import Phase

FORMS = ("active", "behind", "stopped", "filter", "missing")
KIND = AnomalyKind(
    name="group_overwritten",
    after_healing=True,
    severity=Severity.S1,
    violation="had group offsets synced that must not be, or left out",
    section=4,
    what="a mirror syncs the groups that it should, none that is active on the destination, and none after its stop",
    limitations="members that no snapshot and no poll shows; unrecorded syncs",
    sources=("KIP-1279", "KIP-545", "KAFKA-13452"),
    requires=("group_offsets",),
    forms=FORMS,
)
_COLUMNS = ("form", "cluster", "group", "topic", "partition", "offset", "op_index", "what")


def check(t: Tables) -> DataFrame | None:
    """One row per sync that should not have been, and per group and partition that was left out."""
    parts = [_active(t), _behind(t), written_when_stopped(t), _filtered(t), _missing(t)]
    return union([None if part is None else _row(part) for part in parts])


def _row(rows: DataFrame) -> DataFrame:
    return anomalies(
        rows.select(*_COLUMNS),
        "group_overwritten",
        form=F.col("form"),
        value=None,
        ops=op_list("op_index"),
        rank="offset",
        explain=sentence(
            "group %s, offset %s of %s-%s on %s: %s", "group", "offset", "topic", "partition", "cluster", "what"
        ),
    )


def _syncs(t: Tables) -> DataFrame:
    rows = t.table("group_offsets").where("event = 'sync' and group is not null and offset is not null")
    return rows.withColumn("op_index", F.lit(None).cast("bigint"))


def _active(t: Tables) -> DataFrame:
    """Snapshots, polls and syncs of a group on one timeline: its members around a sync."""
    none = F.lit(None)
    snapshots = t.table("group_offsets").where("group is not null and members is not null")
    snapshots = snapshots.select("cluster", "group", "time_ns", "members", none.cast("string").alias("process"))
    syncs = _syncs(t).select("cluster", "group", "topic", "partition", "offset", "time_ns")
    where = F.broadcast(syncs.select("cluster", "group").distinct())
    polls = t.ops.where("group is not null and type = 'ok' and f in ('poll', 'commit_offset')")
    polls = polls.join(where, ["cluster", "group"], "left_semi").select("cluster", "group", "process", "time_ns")
    # A process leaves when it crashes or changes its subscription: that begins another stay.
    left = t.ops.where("f in ('crash', 'subscribe', 'assign') and type != 'invoke'")
    left = left.select(none.cast("string").alias("cluster"), none.cast("string").alias("group"), "process", "time_ns")
    order = Window.partitionBy("process").orderBy("time_ns").rowsBetween(Window.unboundedPreceding, 0)
    stays = polls.unionAll(left).withColumn("stay", F.count(F.when(F.col("group").isNull(), 1)).over(order))
    stays = stays.where("group is not null")
    stays = stays.groupBy("cluster", "group", "process", "stay").agg(
        F.min("time_ns").alias("from_ns"), F.max("time_ns").alias("until_ns")
    )
    rows = syncs.withColumn("id", F.struct("topic", "partition", "offset", "time_ns"))
    during = rows.join(F.broadcast(stays), ["cluster", "group"]).where("time_ns > from_ns and time_ns < until_ns")
    seen = during.select("cluster", "group", "id", sentence("%s polled there before and after", "process").alias("how"))
    counted = rows.join(
        snapshots.select("cluster", "group", F.col("time_ns").alias("at"), "members"), ["cluster", "group"]
    )
    counted = (
        counted.where("at <= time_ns").groupBy("cluster", "group", "id").agg(F.max_by("members", "at").alias("members"))
    )
    counted = counted.where("members > 0").select(
        "cluster", "group", "id", sentence("it had %s members", "members").alias("how")
    )
    found = seen.unionAll(counted).groupBy("cluster", "group", "id").agg(F.min("how").alias("how"))
    what = sentence("it was synced while active there: %s", "how")
    return found.select("cluster", "group", "id.*", what.alias("what")).withColumns(
        {"form": F.lit("active"), "op_index": none.cast("bigint")}
    )


def _behind(t: Tables) -> DataFrame:
    states = (
        t.table("mirror_states")
        .where("state is not null")
        .groupBy("cluster", "topic", "partition")
        .agg(F.min(F.when(F.col("state") == "STOPPED", F.col("time_ns"))).alias("stopped"), F.lit(True).alias("known"))
    )
    own = commits(t)
    own = own.join(F.broadcast(states), ["cluster", "topic", "partition"], "left")
    own = own.where("known is null or time_ns >= stopped").select(
        *("cluster", "group", "topic", "partition", "op_index"),
        F.col("offset").alias("own"),
        F.col("time_ns").alias("own_ns"),
    )
    rows = _syncs(t).drop("op_index").join(F.broadcast(own), ["cluster", "group", "topic", "partition"])
    rows = rows.where("time_ns > own_ns")
    last = F.max_by(F.struct("own", "op_index"), F.struct("own_ns", "op_index"))
    rows = rows.groupBy("cluster", "group", "topic", "partition", "offset", "time_ns").agg(last.alias("last"))
    rows = rows.where("offset < last.own").withColumn("op_index", F.col("last.op_index"))
    return rows.withColumns(
        {"form": F.lit("behind"), "what": sentence("it was synced over %s, committed there", F.col("last.own"))}
    )


def _filtered(t: Tables) -> DataFrame | None:
    options = t.meta.test.mirror_options
    include, exclude = options.get("groups"), options.get("groups.exclude") or options.get("groups_exclude")
    if not include and not exclude:
        return None
    bad = F.lit(False)
    if include:
        bad = bad | ~F.col("group").rlike(_whole(include))
    if exclude:
        bad = bad | F.col("group").rlike(_whole(exclude))
    rows = (
        _syncs(t)
        .where(bad)
        .groupBy("cluster", "group", "topic", "partition")
        .agg(F.max("offset").alias("offset"), F.first("op_index").alias("op_index"))
    )
    return rows.withColumns({"form": F.lit("filter"), "what": F.lit("the mirror's filter leaves this group out")})


def _whole(patterns: object) -> str:
    """Comma-separated regular expressions, each of which must match the whole name."""
    return "^(" + "|".join(f"({p.strip()})" for p in str(patterns).split(",") if p.strip()) + ")$"


def _missing(t: Tables) -> DataFrame | None:
    probed = t.meta.capabilities.get("group_offsets")
    settle = [p.start_ns for p in t.meta.phases if p.name == Phase.SETTLE]
    if not settled(t) or probed is None or not probed.yes or not settle or not t.meta.topic_map:
        return None
    rows = t.table("group_offsets").where("event in ('look', 'sync') and coalesce(kind, 'consumer') = 'consumer'")
    rows = rows.where("offset >= 0").withColumn("origin_topic", t.canonical())
    letters = [destination for _, destination in t.mirror_pairs]
    there = (
        rows.where(F.col("cluster").isin(*letters)).select("cluster", "group", "origin_topic", "partition").distinct()
    )
    there = there.withColumn("source", source_of("cluster")).drop("cluster")
    here = rows.where((F.col("time_ns") < min(settle)) & F.col("origin_topic").isin(*t.meta.topic_map))
    here = here.where(F.col("cluster").isin(*(source for source, _ in t.mirror_pairs)))
    here = here.groupBy(F.col("cluster").alias("source"), "group", "origin_topic", "partition").agg(
        F.max("offset").alias("offset"), F.first("topic").alias("topic")
    )
    if not keeps_offsets(t):  # at the log start nothing is processed, so there is nothing to translate
        starts = t.truth.select(F.col("cluster").alias("source"), "origin_topic", "partition", "log_start")
        here = here.join(F.broadcast(starts), ["source", "origin_topic", "partition"], "left")
        here = here.where("log_start is null or offset > log_start").drop("log_start")
        # Nor can an offset below the first mirrored record be translated, e.g. when all before it was aborted.
        if not t.has("records"):
            return None
        copies = t.truth_log.where("value is not null and not coalesce(aborted, false)")
        copies = copies.where(F.col("cluster").isin(*letters)).join(places(t), "value")
        mirrored = copies.groupBy(F.col("sent_on").alias("source"), "origin_topic", "partition").agg(
            F.min("sent_at").alias("first_mirrored")
        )
        here = here.join(F.broadcast(mirrored), ["source", "origin_topic", "partition"])
        here = here.where("first_mirrored < offset").drop("first_mirrored")
    absent = here.join(there, ["source", "group", "origin_topic", "partition"], "left_anti")
    return absent.withColumns(
        {
            "cluster": F.col("source"),
            "form": F.lit("missing"),
            "op_index": F.lit(None).cast("bigint"),
            "what": F.lit("it was never synced"),
        }
    )


CHECKER = Checker(name="group_overwritten", kinds=(KIND,), check=check)
