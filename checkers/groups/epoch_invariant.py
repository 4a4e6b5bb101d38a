"""`epoch_invariant`: leader epochs that block consumers or producers.

Proves, by form:
- `log`: in one replica's log a batch has a lower leader epoch than the batch before it.
- `behind`: for mirrors that preserve the source's epochs, the destination's leader epoch at its last snapshot before
  the stop is lower than one that the source had shown before (earlier than the bound: `epoch_bound_s` of the run's
  floor, 60 s; 0 in an imported history, whose writer chose the times).
- `local`: a local write on the destination has a leader epoch that is not greater than that of every mirrored record
  below it.
- `stalled`: a consumer of the destination kept being refused because of a leader epoch, and never read there again.

Cannot see: epochs that no snapshot, log or client shows; consumers that ended before they could retry.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.group_sync import source_of
from checkers.views.keys import PARTITION, REPLICA
from checkers.views.mirroring import keeps_offsets
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="epoch_invariant",
    after_healing=True,
    severity=Severity.S2,
    violation="had leader epochs that went back or were too low",
    section=4,
    what="leader epochs rise in a log, and on the destination are not lower than the source's",
    limitations="epochs that no snapshot, log or client shows",
    sources=("KIP-1279", "KIP-101", "KIP-320"),
    requires=(),
    any_of=("ops", "batches", "log_ends"),
    forms=("log", "behind", "local", "stalled"),
)
BOUND_S = 60.0


def check(t: Tables) -> DataFrame | None:
    """One row per step back in a log, partition with a lower epoch, local write (the first of each partition), and
    stuck consumer."""
    keeps = keeps_offsets(t)
    behind = keeps and t.has("log_ends") and t.meta.test.mirror_options.get("leader_epoch", "preserve") == "preserve"
    return union(
        [
            _log(t) if t.has("batches") else None,
            _behind(t) if behind else None,
            _local(t) if keeps and t.has("records") and t.has("mirror_states") else None,
            _stalled(t) if t.facts.epoch_errors else None,
        ]
    )


def _log(t: Tables) -> DataFrame:
    order = Window.partitionBy(*REPLICA).orderBy("base_offset")
    rows = t.log_batches.where("leader_epoch >= 0").select(*REPLICA, "base_offset", "leader_epoch")
    rows = rows.withColumn("before", F.lag("leader_epoch").over(order)).where("leader_epoch < before")
    first = rows.groupBy(*PARTITION).agg(F.min(F.struct("base_offset", "broker", "leader_epoch", "before")).alias("f"))
    return anomalies(
        first.select(*PARTITION, "f.*"),
        "epoch_invariant",
        form=F.lit("log"),
        offset="base_offset",
        value=None,
        explain=sentence(
            "in the log of %s-%s on %s (replica %s) the leader epoch goes back from %s to %s at %s",
            *("topic", "partition", "cluster", "broker", "before", "leader_epoch", "base_offset"),
        ),
    )


def _behind(t: Tables) -> DataFrame:
    bound = 0 if t.stored.imported else int(float(t.meta.floor.get("epoch_bound_s", BOUND_S)) * 1e9)
    snapshots = t.table("log_ends").where("leader_epoch >= 0").withColumn("origin_topic", t.canonical())
    snapshots = snapshots.select("cluster", "origin_topic", "partition", "topic", "time_ns", "leader_epoch")
    stops = t.table("mirror_states").where("state = 'STOPPED'").withColumn("origin_topic", t.canonical())
    stops = stops.groupBy("cluster", "origin_topic", "partition").agg(F.min("time_ns").alias("stop_ns"))
    place = ["cluster", "origin_topic", "partition"]
    there = snapshots.join(F.broadcast(stops), place, "left").where("stop_ns is null or time_ns <= stop_ns")
    last = F.max(F.struct("time_ns", "leader_epoch", "topic"))
    there = there.where(F.col("cluster") != "A").groupBy(*place).agg(last.alias("l")).select(*place, "l.*")
    there = there.withColumn("source", source_of("cluster"))
    here = snapshots.select(
        F.col("cluster").alias("source"),
        *place[1:],
        F.col("time_ns").alias("source_ns"),
        F.col("leader_epoch").alias("source_epoch"),
    )
    rows = here.join(F.broadcast(there), ["source", *place[1:]]).where(F.col("source_ns") + bound <= F.col("time_ns"))
    rows = rows.groupBy("cluster", "source", "topic", "partition", "leader_epoch").agg(
        F.max("source_epoch").alias("source_epoch")
    )
    return anomalies(
        rows.where("leader_epoch < source_epoch"),
        "epoch_invariant",
        form=F.lit("behind"),
        offset=None,
        value=None,
        rank=F.col("leader_epoch") - F.col("source_epoch"),
        explain=sentence(
            "%s-%s on %s has leader epoch %s, though %s had already reached %s",
            *("topic", "partition", "cluster", "leader_epoch", "source", "source_epoch"),
        ),
    )


def _local(t: Tables) -> DataFrame:
    stopped = t.table("mirror_states").where("state = 'STOPPED'").select(*PARTITION).distinct()
    log = t.truth_log.where("control_type is null and value is not null and leader_epoch >= 0")
    log = log.join(F.broadcast(stopped), list(PARTITION)).select(*PARTITION, "offset", "value", "leader_epoch")
    own = t.sends.select("value", "cluster").distinct().withColumn("own", F.lit(True))
    log = log.join(own, ["value", "cluster"], "left")
    mine = F.col("own").isNotNull()
    # Only records below count: a cluster that was mirrored to later held local writes from the start.
    below = Window.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    log = log.withColumn("mirrored", F.max(F.when(~mine, F.col("leader_epoch"))).over(below))
    rows = log.where(mine & (F.col("leader_epoch") <= F.col("mirrored")))
    rows = rows.groupBy(*PARTITION).agg(F.min(F.struct("offset", "leader_epoch", "value", "mirrored")).alias("first"))
    return anomalies(
        rows.withColumn("mirrored", F.col("first.mirrored")),
        "epoch_invariant",
        form=F.lit("local"),
        offset="first.offset",
        value="first.value",
        explain=sentence(
            "the local write to %s-%s on %s has leader epoch %s, mirrored records below it have up to %s",
            *("topic", "partition", "cluster", "first.leader_epoch", "mirrored"),
        ),
    )


def _stalled(t: Tables) -> DataFrame:
    polls = t.ops.where("f = 'poll' and type != 'invoke' and cluster != 'A'")
    refused = F.coalesce(F.upper("error").contains("LEADER_EPOCH"), F.lit(False))
    rows = polls.groupBy("cluster", "process").agg(
        F.max(F.when(refused, F.col("index"))).alias("refused"),
        F.max(F.when((F.col("type") == "ok") & F.col("error").isNull(), F.col("index"))).alias("read"),
        F.count(F.when(refused, 1)).alias("times"),
        F.max_by("error", F.when(refused, F.col("index"))).alias("error"),
    )
    return anomalies(
        rows.where("refused > coalesce(read, -1)"),
        "epoch_invariant",
        form=F.lit("stalled"),
        topic=None,
        partition=None,
        offset=None,
        value=None,
        ops=op_list("refused"),
        rank=-F.col("times"),
        explain=sentence(
            "%s got %s on %s, %s times, and never read there again", "process", "error", "cluster", "times"
        ),
    )


CHECKER = Checker(name="epoch_invariant", kinds=(KIND,), check=check)
