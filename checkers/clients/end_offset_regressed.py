"""`end_offset_regressed`: a log's end went back without a new leader.

Proves: of two snapshots of one partition under one leader and leader epoch, the later has a lower log end, high
watermark or last stable offset. Without a known epoch, snapshots of one replica are compared only when no recorded
event could have changed the leader. Both snapshots show one incarnation of the topic (see `incarnations`), and between
them no mirror to that partition was started, stopped or reversed, which may truncate the log.

Cannot see: a regression that was over before the next snapshot, and any across an election.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.incarnations import undecided
from checkers.views.keys import PARTITION
from checkers.views.tables import Tables
from checkers.views.topic_ids import with_era_of_log

END_OFFSET_REGRESSED = AnomalyKind(
    name="end_offset_regressed",
    severity=Severity.S2,
    violation="let log ends go back",
    section=1,
    what="log end, high watermark and last stable offset of one leader epoch never go back",
    limitations="regressions between snapshots, and across elections",
    sources=("KIP-207", "KAFKA-2334", "KIP-101"),
    requires=("log_ends",),
    forms=("log_end", "high_watermark", "last_stable"),
)
WORDS = {"log_end": "log end", "high_watermark": "high watermark", "last_stable": "last stable offset"}


def check(t: Tables) -> DataFrame | None:
    """Snapshots that show a lower end than the one before."""
    snapshots = t.table("log_ends").withColumn("broker", F.coalesce("broker", F.lit(-1)))
    # Only the leader's own view counts: a follower's log may be truncated at any time.
    snapshots = snapshots.where("broker = -1 or leader is null or broker = leader")
    if t.has("faults"):
        snapshots = snapshots.where("leader_epoch is not null")
    snapshots = snapshots.withColumn("epoch", F.coalesce("leader_epoch", F.lit(-1)))
    snapshots = with_era_of_log(t, _with_steps(t, snapshots)).where(~undecided())
    window = Window.partitionBy(*PARTITION, "era", "steps", "broker", "leader", "epoch").orderBy("time_ns", "look")
    frames = []
    for end, words in WORDS.items():
        rows = snapshots.where(F.col(end).isNotNull()).select(
            *PARTITION, "time_ns", "epoch", F.col(end).alias("offset"), F.lag(end).over(window).alias("before")
        )
        frames.append(
            anomalies(
                rows.where("offset < before"),
                "end_offset_regressed",
                form=F.lit(end),
                value=None,
                rank=F.col("offset") - F.col("before"),
                explain=sentence(
                    f"the {words} of %s-%s on %s went back from %s to %s within leader epoch %s",
                    *("topic", "partition", "cluster", "before", "offset", "epoch"),
                ),
            )
        )
    return union(frames)


def _with_steps(t: Tables, snapshots: DataFrame) -> DataFrame:
    """Add `steps`: how often the state of the mirror to that partition had changed by then."""
    if not t.has("mirror_states"):
        return snapshots.withColumn("steps", F.lit(0))
    changes = Window.partitionBy(*PARTITION).orderBy("time_ns")
    states = t.table("mirror_states").where("state is not null").withColumn("before", F.lag("state").over(changes))
    states = states.where("before is null or before != state")
    times = states.groupBy(*PARTITION).agg(F.collect_list("time_ns").alias("changed"))
    snapshots = snapshots.join(F.broadcast(times), list(PARTITION), "left")
    steps = F.size(F.filter("changed", lambda at: at <= F.col("time_ns")))
    return snapshots.withColumn("steps", F.when(F.col("changed").isNotNull(), steps).otherwise(0)).drop("changed")


CHECKER = Checker(name="end_offset_regressed", kinds=(END_OFFSET_REGRESSED,), check=check)
