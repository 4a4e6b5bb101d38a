"""`stuck`: something made no progress for longer than the bound, although every fault had been healed.

Proves: after the end of the phase `heal` (of the last recorded fault step, where there are no phases), for longer than
`stuck_bound_s` of the run's floor (60 s by default): an operation lasted, or, in an imported history, a consumer's
polls brought nothing although acknowledged records were at its position (form `client`); a last stable offset stayed
below the high watermark (`last_stable`); the offset of a group with members did not change although, by an earlier
snapshot, the partition's log reached further (`group`); a mirror partition had lag and its destination's end did not
change (`mirror`). After a scenario's start of a mirror, or the healing of the last fault during it, some partition was
not described as MIRRORING (`start`): that counts from then on, whatever is healed later.

Cannot see: a stall shorter than the bound, or between snapshots; without snapshots after healing, anything. In an
imported history, what its clients waited for; there a last stable offset that an open transaction holds is `lso_wrong`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.incarnations import undecided, with_era_at
from checkers.views.keys import PARTITION
from checkers.views.mirror_requests import requests, with_states
from checkers.views.tables import Tables
from checkers.views.topic_ids import with_era_of_log
from checkers.views.txn_batches import txn_batches

STUCK = AnomalyKind(
    name="stuck",
    after_healing=True,
    severity=Severity.S3,
    violation="made no progress after healing",
    section=1,
    what="after healing, clients, last stable offsets, groups and mirror partitions make progress within the bound",
    limitations="stalls shorter than the bound or between snapshots",
    sources=("KAFKA-14402", "KIP-890", "KAFKA-9144"),
    requires=(),
    any_of=("ops", "log_ends", "group_offsets", "mirror_states"),
    forms=("client", "last_stable", "group", "mirror", "start"),
)
BOUND_S = 60.0


def check(t: Tables) -> DataFrame | None:
    """Operations, partitions, groups and mirrors that made no progress after healing."""
    bound = int(float(t.meta.floor.get("stuck_bound_s", BOUND_S)) * 1e9)
    healed = [p.end_ns for p in t.meta.phases if p.name == "heal" and p.end_ns is not None]
    if healed:
        after = F.lit(max(healed))
    elif t.has("faults"):
        last = t.table("faults").agg(F.max("time_ns")).head()
        after = F.lit(last[0] if last is not None and last[0] is not None else 0)
    else:
        after = F.lit(0)
    # An imported history has no heal phase: it is not known whether what its clients waited for is over.
    clients = _clients(t, after, bound) if healed else None
    if t.stored.imported:
        clients = _consumers(t, after, bound)
    found = [clients, _stable(t, after, bound), _groups(t, after, bound), _mirror(t, after, bound)]
    return union([*found, _starts(t, bound)])


def _clients(t: Tables, after: Column, bound: int) -> DataFrame:
    last = t.ops.agg(F.max("time_ns").alias("run_end"))
    ops = t.ops.groupBy("op", "process", "f", "cluster").agg(
        F.min("time_ns").alias("begin"),
        F.max(F.when(F.col("type") != "invoke", F.col("time_ns"))).alias("done"),
        F.max(F.when(F.col("type") != "invoke", F.col("index"))).alias("done_index"),
    )
    ops = ops.crossJoin(F.broadcast(last))
    lasted = F.coalesce("done", "run_end") - F.greatest("begin", after)
    rows = ops.withColumn("lasted", lasted).where(F.col("lasted") > bound)
    return anomalies(
        rows,
        "stuck",
        form=F.lit("client"),
        topic=None,
        partition=None,
        offset=None,
        value=None,
        ops=op_list("op", "done_index"),
        rank=-F.col("lasted"),
        explain=sentence("%s waited %s s for %s on %s after healing", "process", _seconds("lasted"), "f", "cluster"),
    )


def _consumers(t: Tables, after: Column, bound: int) -> DataFrame | None:
    if "position" not in t.facts.actions:
        return None  # the position of a consumer that read nothing is not recorded
    stays = _stays(t, after).withColumn("lasted", F.col("until") - F.col("since")).where(F.col("lasted") > bound)
    stays = stays.where("at is not null or not from_the_end").withColumn("at", F.coalesce("at", F.lit(0)))
    if t.facts.transactional:  # records held back by an open transaction are `last_stable`
        stays = stays.where("not committed")
    stays = t.cache(stays)
    if t.is_empty(stays):
        return None
    sent = t.sends.where("outcome in ('acked', 'committed') and offset is not null")
    sent = sent.select(*PARTITION, "offset", "value", F.coalesce("done_ns", "invoke_ns").alias("sent_ns"))
    there = stays.join(sent, list(PARTITION)).where(
        (F.col("offset") >= F.col("at")) & (F.col("sent_ns") <= F.col("since"))
    )
    found = there.groupBy("process", *PARTITION, "at", "lasted", "op_index").agg(F.count("*").alias("records"))
    return anomalies(
        found,
        "stuck",
        form=F.lit("client"),
        offset="at",
        value=None,
        ops=op_list("op_index"),
        rank=-F.col("lasted"),
        explain=sentence(
            "%s got nothing of %s-%s on %s at offset %s for %s s after healing: %s acknowledged records are there",
            *("process", "topic", "partition", "cluster", "at", _seconds("lasted"), "records"),
        ),
    )


def _stays(t: Tables, after: Column) -> DataFrame:
    """Runs of polls that brought a consumer nothing of a partition: process, PARTITION, run, since, until, op_index (of
    the last), at (its position), from_the_end, committed."""
    polls = t.ops.where("f = 'poll' and type = 'ok' and error is null").where(F.col("time_ns") >= after)
    polls = polls.select(F.col("index").alias("op_index"), "process", "cluster", "time_ns", "isolation", "reset")
    read, stood = F.col("action") == "poll", F.col("action") == "position"
    rows = t.table("op_records").where("action in ('poll', 'position') and partition is not null")
    rows = rows.groupBy("op_index", "topic", "partition").agg(
        F.max(F.when(read, F.col("offset"))).alias("read"), F.max(F.when(stood, F.col("offset"))).alias("position")
    )
    order = Window.partitionBy("process", *PARTITION).orderBy("time_ns", "op_index")
    rows = rows.join(polls, "op_index").withColumns(
        {
            "at": F.coalesce("position", F.last("read", ignorenulls=True).over(order) + 1),
            "run": F.count("read").over(order),
        }
    )
    return (
        rows.where("read is null")
        .groupBy("process", *PARTITION, "run")
        .agg(
            F.min("time_ns").alias("since"),
            F.max("time_ns").alias("until"),
            F.max("op_index").alias("op_index"),
            F.max("at").alias("at"),
            F.max(F.coalesce(F.col("reset") == "latest", F.lit(False))).alias("from_the_end"),
            F.max(F.coalesce(F.col("isolation") == "read_committed", F.lit(False))).alias("committed"),
        )
    )


def _stable(t: Tables, after: Column, bound: int) -> DataFrame | None:
    if not t.has("log_ends"):
        return None
    snapshots = t.table("log_ends").where(F.col("time_ns") >= after).where("last_stable < high_watermark")
    stood = snapshots.groupBy(*PARTITION, "broker", F.col("last_stable").alias("offset")).agg(
        (F.max("time_ns") - F.min("time_ns")).alias("lasted"), F.max("high_watermark").alias("hw")
    )
    stood = stood.where(F.col("lasted") > bound)
    if t.stored.imported and t.has("batches"):
        found = t.found(stood)
        if found is None:
            return t.no_anomalies
        stood = found
        held = txn_batches(t).where("not control and end_offset is null").select(*PARTITION).distinct()
        stood = stood.join(held, list(PARTITION), "left_anti")
    return anomalies(
        stood,
        "stuck",
        form=F.lit("last_stable"),
        value=None,
        rank=-F.col("lasted"),
        explain=sentence(
            "the last stable offset of %s-%s on %s stayed at %s for %s s after healing, below the high watermark %s",
            *("topic", "partition", "cluster", "offset", _seconds("lasted"), "hw"),
        ),
    )


def _groups(t: Tables, after: Column, bound: int) -> DataFrame | None:
    if not (t.has("group_offsets") and t.has("log_ends")):
        return None
    snapshots = t.table("group_offsets").where(F.col("time_ns") >= after).where("event = 'look' and offset is not null")
    snapshots = snapshots.where("topic is not null and partition is not null")
    order = Window.partitionBy("cluster", "group", "topic", "partition").orderBy("time_ns")
    at_work = F.coalesce(F.col("members") > 0, F.lit(False))
    moved = (F.col("offset") != F.lag("offset").over(order)) | ~at_work
    runs = snapshots.withColumn("at_work", at_work).withColumn("run", F.coalesce(moved, F.lit(True)).cast("int"))
    runs = runs.withColumn("run", F.sum("run").over(order)).where("at_work")
    stood = runs.groupBy("cluster", "group", "topic", "partition", "run").agg(
        F.min("time_ns").alias("since"), F.max("time_ns").alias("until"), F.max("offset").alias("offset")
    )
    stalls = t.found(stood.where(F.col("until") - F.col("since") > bound))
    if stalls is None:
        return t.no_anomalies
    # Records to read: those whose log end was seen before the stall began, or one bound before its end.
    ends = with_era_of_log(t, t.table("log_ends")).select(
        *PARTITION,
        "era",
        F.col("time_ns").alias("seen_ns"),
        F.coalesce("last_stable", "high_watermark", "log_end").alias("end"),
    )
    stood = with_era_at(t, stalls, F.col("since"), F.col("until")).where(~undecided())
    lagging = stood.join(ends, [*PARTITION, "era"])
    lagging = lagging.where((F.col("seen_ns") <= F.col("until") - bound) & (F.col("end") > F.col("offset")))
    lagging = lagging.groupBy("cluster", "group", "topic", "partition", "offset", "since", "until").agg(
        F.max("end").alias("end")
    )
    lagging = lagging.withColumn("lasted", F.col("until") - F.col("since"))
    return anomalies(
        lagging,
        "stuck",
        form=F.lit("group"),
        value=None,
        rank=-F.col("lasted"),
        explain=sentence(
            "group %s stayed at %s of %s-%s on %s for %s s after healing, though the log goes to %s",
            *("group", "offset", "topic", "partition", "cluster", _seconds("lasted"), "end"),
        ),
    )


def _mirror(t: Tables, after: Column, bound: int) -> DataFrame | None:
    if not t.has("mirror_states"):
        return None
    snapshots = t.table("mirror_states").where(F.col("time_ns") >= after).where("destination_offset is not null")
    snapshots = snapshots.where("state in ('MIRRORING', 'PREPARING', 'STOPPING', 'PAUSING')")
    # A run of equal destination offsets, all with lag: numbered by how often the offset or the lag changed before.
    window = Window.partitionBy("mirror", *PARTITION).orderBy("time_ns")
    lagging = F.coalesce(F.col("lag") > 0, F.lit(False))
    moved = (F.col("destination_offset") != F.lag("destination_offset").over(window)) | ~lagging
    runs = snapshots.withColumn("lagging", lagging).withColumn("run", F.coalesce(moved, F.lit(True)).cast("int"))
    runs = runs.withColumn("run", F.sum("run").over(window)).where("lagging")
    stood = runs.groupBy("mirror", *PARTITION, "run").agg(
        (F.max("time_ns") - F.min("time_ns")).alias("lasted"),
        F.max("destination_offset").alias("offset"),
        F.max("lag").alias("lag"),
    )
    return anomalies(
        stood.where(F.col("lasted") > bound),
        "stuck",
        form=F.lit("mirror"),
        value=None,
        rank=-F.col("lasted"),
        explain=sentence(
            "the mirror left %s-%s on %s at offset %s for %s s after healing, %s records behind",
            *("topic", "partition", "cluster", "offset", _seconds("lasted"), "lag"),
        ),
    )


def _starts(t: Tables, bound: int) -> DataFrame | None:
    """Starts that a scenario gave up waiting for. A fault that was live to the end of the wait excuses them."""
    if not t.has("mirror_states"):
        return None
    if not t.facts.any("mirror_start", "mirror_failback"):
        return t.no_anomalies
    rows = requests(t, "mirror_start", "mirror_failback").where("own and type = 'info'")
    run_end = t.ops.agg(F.max("time_ns").alias("run_end"))
    steps = t.table("faults").where("fault_id >= 0").groupBy("fault_id")
    faults = steps.agg(
        F.min(F.when(F.col("action").isin("inject", "bit"), F.col("time_ns"))).alias("since"),
        F.max(F.when((F.col("action") == "heal") & F.coalesce("ok", F.lit(True)), F.col("time_ns"))).alias("healed"),
    )
    overlaps = (F.col("since") < F.col("done")) & (F.coalesce("healed", "done") >= F.col("begin"))
    rows = (
        rows.join(F.broadcast(faults), overlaps, "left")
        .groupBy(*rows.columns)
        .agg(
            F.greatest("begin", F.max("healed")).alias("since_ns"),
            F.max(F.col("since").isNotNull() & (F.coalesce("healed", "done") >= F.col("done"))).alias("excused"),
        )
    )
    seen = t.table("mirror_states").where("state is not null and partition is not null")
    seen = seen.select(F.col("cluster").alias("on"), "topic", "partition", "state", F.col("time_ns").alias("seen_ns"))
    seen = seen.withColumnRenamed("topic", "of")
    mine = (F.col("on") == F.col("cluster")) & (F.col("seen_ns") >= F.col("begin"))
    going = F.min(F.when(F.col("state").isin("MIRRORING", "STOPPED"), F.col("seen_ns"))).alias("going_ns")
    parts = rows.select("op", "cluster", "begin").join(seen, mine).groupBy("op", "of", "partition").agg(going)
    whole = parts.groupBy("op").agg(F.when(F.count("going_ns") == F.count("*"), F.max("going_ns")).alias("going_ns"))
    rows = rows.join(whole, "op", "left").crossJoin(F.broadcast(run_end))
    lasted = F.coalesce("going_ns", "run_end") - F.col("since_ns")
    rows = rows.where("not coalesce(excused, false)").withColumn("lasted", lasted).where(F.col("lasted") > bound)
    return anomalies(
        with_states(t, rows, until=F.col("done")),
        "stuck",
        form=F.lit("start"),
        topic=None,
        partition=None,
        offset=None,
        value=None,
        ops=op_list("op", "done_index"),
        rank=-F.col("lasted"),
        explain=sentence(
            "the mirror to %s was not mirroring everything %s s after its start (%s): %s; described then: %s",
            *("cluster", _seconds("lasted"), "f", F.coalesce("error_text", F.lit("no reason stated")), "states"),
        ),
    )


def _seconds(name: str) -> Column:
    return F.round(F.col(name) / 1e9, 1)


CHECKER = Checker(name="stuck", kinds=(STUCK,), check=check)
