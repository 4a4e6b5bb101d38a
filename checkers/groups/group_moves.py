"""`group_skip` and `group_rewind`: records that a consumer group skips, or rereads, when it moves to the destination.

A group has moved where it polls on the destination after a mirror had written (or a snapshot had shown) its offset
there; in an imported history also where it had committed on the source and the mirror was stopped without having
written it. `group_skip` proves: a record of the destination is before the position of the group's first poll, the group
had not processed it on the source (by its last acknowledged commit, or the source offset of the sync), and never read
it on any cluster. Local writes count as never processed. The cause does not matter: an OffsetOutOfRange, a reset or
an offset that local writes had passed.
`group_rewind` proves: the group rereads more records that it had processed on the source than the mirror's last known
lag, one commit interval (the longest step between its commits) and, for MirrorMaker 2, the spacing of its offset syncs
allow together. For a group that moved while the mirror was still running, only what it had committed before the mirror
wrote the offset counts as processed: offsets are synced periodically, and for the last time when the mirror is stopped.

Cannot see: a group whose first poll returned nothing and did not report its position; records of the source whose
acknowledged offset is unknown; a group that was on the destination before; records that expired before the evidence.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.group_sync import commits, moves, places, skipped
from checkers.views.keys import GROUP
from checkers.views.mirroring import capable
from checkers.views.tables import Tables

SKIP = AnomalyKind(
    name="group_skip",
    after_healing=True,
    severity=Severity.S1,
    violation="let groups skip records",
    section=4,
    what="a group that resumes on the destination gets every record that it had not processed",
    limitations="first polls that do not report their position; records whose source offset is unknown",
    sources=("KIP-1279", "KAFKA-12468", "KAFKA-10048"),
    requires=("ops", "op_records"),
)
REWIND = AnomalyKind(
    name="group_rewind",
    after_healing=True,
    severity=Severity.S4,
    violation="let groups reread more than allowed",
    section=4,
    what="a group that resumes on the destination rereads at most lag, commit interval and sync spacing",
    limitations="the lag between the last snapshot and the stop; offsets that are synced late while the mirror runs; "
    "records whose source offset is unknown",
    sources=("KIP-1279", "KIP-545", "KAFKA-14666"),
    requires=("ops", "op_records", "group_offsets"),
)
OFFSET_LAG_MAX = 100  # MirrorMaker 2's default of offset.lag.max, in records


def check(t: Tables) -> DataFrame | None:
    """Skipped records one by one; rewinds one per group and partition."""
    if not t.has("group_offsets") and not (t.stored.imported and t.has("mirror_states")):
        return None
    if not t.stored.run.rows("group_offsets") and "commit" not in t.facts.actions:
        return t.no_anomalies  # there are no groups
    if t.is_empty(moves(t)):
        return t.no_anomalies
    return union([_skips(t), _rewinds(t)])


def _skips(t: Tables) -> DataFrame:
    rows = skipped(t).where("kind is null or kind != 'share'")
    return anomalies(
        rows,
        "group_skip",
        ops=op_list("op_index"),
        rank="offset",
        explain=sentence(
            "group %s resumed %s-%s on %s at %s (synced: %s) and never got %s at offset %s",
            *("group", "topic", "partition", "cluster", "resumed", "synced", "value", "offset"),
        ),
    )


def _rewinds(t: Tables) -> DataFrame:
    moved = F.broadcast(moves(t).where("processed is not null and (kind is null or kind != 'share')"))
    read = t.reads.where("value is not null and group is not null")
    read = read.select("cluster", "group", "topic", "partition", "value").distinct()
    rows = read.join(moved, list(GROUP)).join(places(t), "value")
    again = rows.where("sent_on = source and sent_at < owed")
    again = again.groupBy(*GROUP, "source", "origin_topic", "resumed", "op_index").agg(
        F.countDistinct("value").alias("again")
    )
    place = ["source", "group", "origin_topic", "partition"]
    order = Window.partitionBy("cluster", "group", "origin_topic", "partition").orderBy("time_ns")
    steps = commits(t).withColumn("step", F.col("offset") - F.lag("offset").over(order))
    steps = steps.groupBy(F.col("cluster").alias("source"), *place[1:]).agg(F.max("step").alias("interval"))
    lags = t.table("mirror_states").where("lag is not null and state != 'STOPPED'")
    lags = lags.groupBy("cluster", "topic", "partition").agg(F.max_by("lag", "time_ns").alias("lag"))
    again = again.join(steps, place, "left").join(F.broadcast(lags), ["cluster", "topic", "partition"], "left")
    none = F.lit(0).cast("bigint")
    allowed = F.greatest(F.coalesce("lag", none), none) + F.greatest(F.coalesce("interval", none), none) + _spacing(t)
    return anomalies(
        again.withColumn("allowed", allowed).where("again > allowed"),
        "group_rewind",
        offset="resumed",
        value=None,
        ops=op_list("op_index"),
        rank=-F.col("again"),
        explain=sentence(
            "group %s resumed %s-%s on %s at %s and read %s records again that it had processed; %s are allowed",
            *("group", "topic", "partition", "cluster", "resumed", "again", "allowed"),
        ),
    )


def _spacing(t: Tables) -> int:
    """Records between two offset syncs of MirrorMaker 2; 0 for mirrors that keep offsets."""
    if not capable(t, "offset_syncs"):
        return 0
    options = t.meta.test.mirror_options
    chosen = [value for name, value in options.items() if name.rpartition("->")[2].endswith("offset.lag.max")]
    return int(chosen[0]) if chosen else OFFSET_LAG_MAX


CHECKER = Checker(name="group_moves", kinds=(SKIP, REWIND), check=check)
