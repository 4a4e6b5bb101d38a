"""`end_offset_regressed`: a log's end went back without a new leader, or below what had been acknowledged.

Proves, by form:
- `log_end`, `high_watermark`, `last_stable`: of two consecutive snapshots of one partition under one leader and leader
  epoch, the later has a lower end of that kind. Without a known epoch, snapshots of one replica are compared only when
  no recorded event could have changed the leader.
- `high_watermark`, too: the log of a mirror's copy ends below the high watermark of the snapshot before, whatever
  leaders and epochs there were in between.
- `out_of_range`: a consumer was told that its position is outside the log, though somebody had read up to it there
  before, and no snapshot shows a log start above it.

All rows show one incarnation of the topic (see `incarnations`), and between them the design truncates nothing: no
mirror to that partition was started over its log, no stop cut off open transactions above the last stable offset
(`truncations`), and no unclean election was followed. Other states that a mirror's partition passes through (UNKNOWN,
FAILED, PREPARING without a start) excuse nothing.

Cannot see: a regression that was over before the next snapshot; of topics without a mirror, any across an election;
consumers whose error names no partition, or comes after the last snapshot.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, checked, op_list, sentence
from checkers.views.incarnations import undecided
from checkers.views.keys import PARTITION
from checkers.views.lost_positions import lost_positions
from checkers.views.mirror_starts import PLACE, starts
from checkers.views.mirroring import unclean_clusters
from checkers.views.tables import Tables
from checkers.views.topic_ids import with_era_of_log
from checkers.views.truncations import with_windows, within, without_reconciled

END_OFFSET_REGRESSED = AnomalyKind(
    name="end_offset_regressed",
    severity=Severity.S2,
    violation="let log ends go back",
    section=1,
    what="log end, high watermark and last stable offset of one leader epoch never go back, nor a mirror's copy below"
    " its high watermark",
    limitations="regressions between snapshots, and, without a mirror, across elections; consumers whose error names no"
    " partition, or comes after the last snapshot",
    sources=("KIP-207", "KAFKA-2334", "KIP-101", "KIP-1279"),
    requires=("log_ends",),
    forms=("log_end", "high_watermark", "last_stable", "out_of_range"),
)
WORDS = {"log_end": "log end", "high_watermark": "high watermark", "last_stable": "last stable offset"}
_LEADER = ("broker", "leader", "epoch")


def check(t: Tables) -> DataFrame | None:
    """Snapshots that show a lower end than the one before, and consumers that lost their position by one."""
    snapshots = t.table("log_ends").withColumn("broker", F.coalesce("broker", F.lit(-1)))
    # Only the leader's own view counts: a follower's log may be truncated at any time.
    snapshots = snapshots.where("broker = -1 or leader is null or broker = leader")
    snapshots = snapshots.withColumns({"epoch": F.col("leader_epoch"), "origin_topic": t.canonical()})
    snapshots = with_era_of_log(t, snapshots).where(~undecided())
    known = snapshots.where("epoch is not null") if t.has("faults") else snapshots.fillna({"epoch": -1})
    return checked(t, [*_went_back(t, known), _below_high_watermark(t, snapshots), _out_of_range(t)])


def _went_back(t: Tables, known: DataFrame) -> list[DataFrame]:
    """One frame for each kind of end that went back within a leader epoch."""
    order = Window.partitionBy(*PARTITION, "era", *_LEADER).orderBy("time_ns", "look")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    before = {
        f"_{end}": F.last(
            F.when(F.col(end).isNotNull(), F.struct(F.col(end).alias("end"), "time_ns", "last_stable")),
            ignorenulls=True,
        ).over(earlier)
        for end in WORDS
    }
    fell = [F.col(end) < F.col(f"_{end}.end") for end in WORDS]
    drops = t.found(known.withColumns(before).where(fell[0] | fell[1] | fell[2]))
    if drops is None:
        return []
    frames = []
    for (end, words), lower in zip(WORDS.items(), fell, strict=True):
        rows = drops.where(lower).select(
            *(*PARTITION, "origin_topic", "time_ns", "epoch"),
            F.col(end).alias("offset"),
            F.col(f"_{end}.end").alias("before"),
            F.col(f"_{end}.time_ns").alias("before_ns"),
            F.col(f"_{end}.last_stable").alias("stable"),
        )
        frames.append(_row(_unexcused(t, rows), end, f"the {words}", "within leader epoch"))
    return frames


def _row(rows: DataFrame, form: str, words: str, when: str) -> DataFrame:
    return anomalies(
        rows,
        "end_offset_regressed",
        form=F.lit(form),
        value=None,
        rank=F.col("offset") - F.col("before"),
        explain=sentence(
            f"{words} of %s-%s on %s went back from %s to %s {when} %s",
            *("topic", "partition", "cluster", "before", "offset", "epoch"),
        ),
    )


def _unexcused(t: Tables, drops: DataFrame) -> DataFrame:
    """Without drops that the design of a mirror explains."""
    since, until = F.col("before_ns"), F.col("time_ns")
    rows = with_windows(t, drops).where(~within(F.col("windows"), since, until))
    to_stable = within(F.col("stops"), since, until) & (F.col("offset") >= F.coalesce("stable", "offset"))
    rows = rows.where(~to_stable)
    return without_reconciled(t, rows, *PARTITION)


def _below_high_watermark(t: Tables, snapshots: DataFrame) -> DataFrame | None:
    """Copies whose log ends below the high watermark of the snapshot before, under another leader or epoch."""
    found = starts(t)
    if found is None:
        return None
    copies = snapshots.where("broker = -1 or broker = leader").join(
        F.broadcast(found.select(*PLACE).distinct()), list(PLACE), "left_semi"
    )
    unclean = unclean_clusters(t)
    if unclean:  # there a new leader may begin below it
        copies = copies.where(~F.col("cluster").isin(*unclean))
    order = Window.partitionBy(*PARTITION, "era").orderBy("time_ns", "look")
    last = F.lag(F.struct("time_ns", "high_watermark", "last_stable", *_LEADER)).over(order)
    rows = copies.where("log_end is not null and high_watermark is not null").withColumn("last", last)
    rows = rows.where("log_end < last.high_watermark and coalesce(last.epoch <= epoch, true)")
    drops = t.found(rows.where(~_same_leader(t)))
    if drops is None:
        return None
    rows = drops.withColumns(
        {
            "offset": F.col("log_end"),
            "before": F.col("last.high_watermark"),
            "before_ns": F.col("last.time_ns"),
            "stable": F.col("last.last_stable"),
            "epoch": F.coalesce(F.col("last.epoch").cast("string"), F.lit("unknown")),
        }
    )
    words = "the log end, below the high watermark before it,"
    return _row(_unexcused(t, rows), "high_watermark", words, "after leader epoch")


def _same_leader(t: Tables) -> Column:
    """Whether both snapshots are compared within their leader epoch."""
    same = F.lit(True)
    for name in _LEADER:
        same = same & F.col(name).eqNullSafe(F.col(f"last.{name}"))
    return same & F.col("epoch").isNotNull() if t.has("faults") else same


def _out_of_range(t: Tables) -> DataFrame | None:
    """Consumers whose position is gone although it was in the log, and had not expired."""
    rows = lost_positions(t)
    if rows is None:
        return None
    rows = rows.where("not explained")
    return anomalies(
        rows,
        "end_offset_regressed",
        form=F.lit("out_of_range"),
        value=None,
        ops=op_list("op_index"),
        rank=F.col("offset") - F.col("read_to"),
        explain=sentence(
            "%s was told that its position %s of %s-%s on %s is outside the log, which had been read up to %s there",
            *("process", "offset", "topic", "partition", "cluster", "read_to"),
        ),
    )


CHECKER = Checker(name="end_offset_regressed", kinds=(END_OFFSET_REGRESSED,), check=check)
