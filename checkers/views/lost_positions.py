"""Consumers that were told that their position is outside the log, and what may explain it.

Not a checker: shared by `end_offset_regressed`. The position is the one that the error names, else where the consumer
had read to, or was assigned. It had been in the log if somebody had read up to it there before. Then it is *explained*
only by a log start above it (retention, deleted records: any snapshot shows one), by a truncation that a mirror's
design makes meanwhile (`truncations`), or by an unclean election. Another incarnation of the topic is another log.
Not judged: errors that name no partition; members that read from a follower, which may be behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.views.failbacks import with_branch
from checkers.views.history import KEY
from checkers.views.history_facts import OUT_OF_RANGE
from checkers.views.incarnations import undecided, with_era
from checkers.views.keys import PARTITION
from checkers.views.positions import ASSIGN
from checkers.views.truncations import with_windows, within

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_PLACE = ("topic", "partition")


def lost_positions(t: Tables) -> DataFrame | None:
    """One row per consumer, partition and error: process, KEY, op_index, offset (its position), read_to (the end of
    what had been read there), explained. Only positions that had been in the log, in partitions whose log start was
    seen afterwards. None without such errors."""
    if not t.facts.out_of_range:
        return None
    told = _told(t)
    events = F.broadcast(t.cache(told))
    reads = _reads(t, told)
    own = _own_positions(reads, events)
    rows = told.join(own, ["op_index", *_PLACE], "left").withColumn("offset", F.coalesce("stated", "own"))
    rows = rows.where("offset >= 0").drop("stated", "own")
    rows = with_branch(t, with_era(t, rows, F.col("op"), F.col("op_index")).where(~undecided()),
                       F.col("time_ns"), F.col("offset"))  # fmt: skip
    return _explained(t, _with_read_to(t, reads, rows))


def _told(t: Tables) -> DataFrame:
    """The errors, with the partition that they are about: op_index, op, process, time_ns, cluster, topic, partition,
    stated (the position, where it is recorded)."""
    ops = t.ops.where(F.col("type") != "invoke").where(F.col("error").rlike(OUT_OF_RANGE))
    ops = ops.where("f in ('poll', 'txn', 'assign') and replica is null")
    ops = ops.select(F.col("index").alias("op_index"), "op", "f", "process", "time_ns", "cluster")
    named = t.table("op_records").where(F.col("action").isin("position", ASSIGN))
    named = named.where("topic is not null and partition is not null")
    rows = ops.join(named.select("op_index", "action", *_PLACE, "offset"), "op_index")
    poll = (F.col("f") != "assign") & (F.col("action") == "position")
    # An assignment's offset is where the consumer goes on, not where it was.
    rows = rows.where(poll | ((F.col("f") == "assign") & (F.col("action") == ASSIGN)))
    rows = rows.withColumn("stated", F.when(F.col("f") != "assign", F.col("offset")))
    return rows.select("op_index", "op", "process", "time_ns", "cluster", *_PLACE, "stated")


def _reads(t: Tables, told: DataFrame) -> DataFrame:
    """What consumers read of these partitions, or were assigned: read_index, read_op, reader, read_ns, cluster, topic,
    partition, place (within the operation), next (the offset after it), was_read."""
    where = told.select("cluster", *_PLACE).distinct()
    rows = t.table("op_records").where(F.col("action").isin("poll", ASSIGN) & F.col("partition").isNotNull())
    rows = rows.join(F.broadcast(where.select(*_PLACE).distinct()), list(_PLACE), "left_semi")
    ops = t.ops.where("f in ('poll', 'txn', 'assign', 'subscribe') and type = 'ok'").select(
        F.col("index").alias("op_index"), "op", "process", "time_ns", "cluster"
    )
    rows = rows.join(ops, "op_index").join(F.broadcast(where), ["cluster", *_PLACE], "left_semi")
    read = F.col("action") == "poll"
    rows = rows.where(~read | F.col("offset").isNotNull())
    return rows.select(
        *("cluster", *_PLACE),
        F.col("op_index").alias("read_index"),
        F.col("op").alias("read_op"),
        F.col("process").alias("reader"),
        F.col("time_ns").alias("read_ns"),
        F.col("position").alias("place"),
        F.when(read, F.col("offset") + 1).otherwise(F.col("offset")).alias("next"),
        read.alias("was_read"),
    )


def _own_positions(reads: DataFrame, events: DataFrame) -> DataFrame:
    """Where each consumer was before its error: op_index, topic, partition, own (null: unknown)."""
    mine = (F.col("reader") == F.col("process")) & (F.col("read_index") < F.col("op_index"))
    rows = reads.join(events, ["cluster", *_PLACE]).where(mine)
    last = F.max_by(F.struct("next"), F.struct("read_index", "place"))
    return rows.groupBy("op_index", *_PLACE).agg(last["next"].alias("own"))


def _with_read_to(t: Tables, reads: DataFrame, rows: DataFrame) -> DataFrame:
    """Add read_to, and read_ns (when somebody last read up to the position), of reads of the same log before the
    error. Without one the position was never known to be in the log."""
    seen = with_era(t, reads.where("was_read"), F.col("read_op"), F.col("read_index")).where(~undecided())
    seen = with_branch(t, seen, F.col("read_ns"), F.col("next") - 1).drop("place")
    both = rows.join(seen, list(KEY)).where("read_index < op and next >= offset")
    keys = ("op_index", "process", "time_ns", *KEY, "offset")
    return both.groupBy(*keys).agg(F.max("next").alias("read_to"), F.max("read_ns").alias("read_ns"))


def _explained(t: Tables, rows: DataFrame) -> DataFrame:
    started = t.table("log_ends").where("log_start is not null")
    started = started.groupBy(*PARTITION).agg(F.max("log_start").alias("start"), F.max("time_ns").alias("looked_ns"))
    rows = rows.join(F.broadcast(started), list(PARTITION)).where("looked_ns >= time_ns")
    rows = with_windows(t, rows.withColumn("origin_topic", t.canonical()))
    spans = F.concat("windows", "stops")
    truncated = within(spans, F.col("read_ns"), F.col("time_ns"))
    explained = (F.col("start") > F.col("offset")) | truncated
    if t.has("faults"):
        unclean = t.table("faults").where("lower(name) like '%unclean%'").agg(F.min("time_ns").alias("unclean_ns"))
        rows = rows.crossJoin(F.broadcast(unclean))
        explained = explained | F.coalesce(F.col("unclean_ns") <= F.col("time_ns"), F.lit(False))
    return rows.withColumn("explained", explained)
