"""`poll_skip` and `nonmonotonic_poll`: a consumer leaves out records that exist, or goes back.

Proves: of two records that one consumer read one after the other from one partition, within a poll (form `internal`)
or in consecutive successful polls (form `external`), the second is not behind the first, or a record lies between them
that others read or the log holds, and that this consumer should have been given.

Judged from one assignment to the next: assign, subscribe and crash events of the process start anew, and so do polls
in which its group was rebalanced. Consecutive polls of a group's member are judged only where the history records
assignments; without them a rebalance explains anything.
Members of share groups are not judged: what one of them releases comes again, in any order.

Cannot see: a consumer that leaves out records which nobody else saw (`lost_write`), and what a read_committed reader
skips of undecided transactions.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers import history
from checkers.base import Checker, Kind, Severity, anomalies, op_list, sentence, union
from checkers.history import KEY
from checkers.mirroring import own_transactions
from checkers.tables import Tables

POLL_SKIP = Kind(
    name="poll_skip",
    severity=Severity.S2,
    told="let consumers skip records",
    section=1,
    what="a consumer that is not reassigned reads every record of its partition that it is entitled to",
    blind="records that nobody saw; expired records; members of groups without recorded assignments",
    sources=("Jepsen: jepsen.tests.kafka poll-skip, int-poll-skip",),
    forms=("internal", "external"),
)
NONMONOTONIC_POLL = Kind(
    name="nonmonotonic_poll",
    severity=Severity.S2,
    told="let consumers go back",
    section=1,
    what="a consumer that is not reassigned never goes back",
    blind="members of groups without recorded assignments",
    sources=("Jepsen: jepsen.tests.kafka nonmonotonic-poll, int-nonmonotonic-poll",),
    forms=("internal", "external"),
)

_REBALANCE = "rebalance"  # action of a record of `op_records`


def find(t: Tables) -> DataFrame | None:
    """Steps of one consumer from record to record that skip or go back."""
    steps = t.cache(_steps(t))
    what = F.when(F.col("form") == "internal", "within one poll").otherwise("in consecutive polls")
    where = ("topic", "partition", "cluster")
    told = "%s read offset %s of %s-%s on %s after offset %s, %s"
    back = anomalies(
        steps.where("offset <= before"),
        "nonmonotonic_poll",
        form=F.col("form"),
        ops=op_list("before_index", "op_index"),
        rank=F.col("offset") - F.col("before"),
        explain=sentence(told, "process", "offset", *where, "before", what),
    )
    gaps = steps.where("offset > before + 1")
    if gaps.isEmpty():
        return back
    skip = anomalies(
        _skipped(t, gaps),
        "poll_skip",
        form=F.col("form"),
        offset="missed",
        value="missed_value",
        ops=op_list("before_index", "op_index"),
        rank=F.col("before") - F.col("offset"),
        explain=sentence(
            "%s read offset %s of %s-%s on %s right after offset %s, %s, and left out offset %s",
            *("process", "offset", *where, "before", what, "missed"),
        ),
    )
    return union([back, skip])


def _steps(t: Tables) -> DataFrame:
    """Steps that are not to the very next offset: cluster, topic, partition, era, process, isolation, before, offset,
    value (at offset), before_index, op_index, form."""
    if t.screened:
        return _told(t, t.sieve.steps)
    reads = t.reads.where("offset is not null and partition is not null")
    order = Window.partitionBy("process", *KEY).orderBy("op_index", "position")
    steps = reads.select(
        *("op_index", "position", "offset"),
        F.lag("offset").over(order).alias("before"),
        F.lag("op_index").over(order).alias("before_index"),
    )
    return _told(t, t.cache(steps.where("offset != before + 1").drop("offset")))


def _told(t: Tables, odd: DataFrame) -> DataFrame:
    """Steps with what is known of both polls; those between which the consumer may have moved are left out."""
    reads = history.reads(t, only=odd.select("op_index", "position")) if t.screened else t.reads
    steps = reads.join(odd, ["op_index", "position"])
    if t.has("group_offsets"):
        shares = t.table("group_offsets").where("kind = 'share'").select("group").distinct()
        steps = steps.join(F.broadcast(shares), "group", "left_anti")
    polls = t.ops.where("f in ('poll', 'txn') and type != 'invoke'").select(
        F.col("index").alias("before_index"), F.col("client").alias("before_client"), F.col("type").alias("before_type")
    )
    steps = steps.join(polls, "before_index", "left")
    moved, assigned = F.lit(False), F.lit(False)
    if t.facts.moves or _REBALANCE in t.facts.actions:
        steps = steps.join(F.broadcast(_moves(t)), "process", "left").withColumns(
            {name: F.coalesce(name, F.array()) for name in ("moves", "assigns")}
        )
        moved = F.exists("moves", lambda at: (at > F.col("before_index")) & (at <= F.col("op_index")))
        assigned = F.exists("assigns", lambda at: at < F.col("before_index"))
    within = F.col("before_index") == F.col("op_index")
    steady = (
        (F.col("type") == "ok")
        & (F.col("before_type") == "ok")
        & F.col("before_client").eqNullSafe(F.col("client"))
        & ~moved
        & (F.col("group").isNull() | assigned)
    )
    return (
        steps.withColumn("form", F.when(within, "internal").otherwise("external"))
        .where(within | steady)
        .select(*(*KEY, "process", "isolation", "offset", "value", "op_index", "form", "before", "before_index"))
    )


def _moves(t: Tables) -> DataFrame:
    """One row per process: moves (indices of the events at which its consumer may have come to stand elsewhere: a poll
    in which its group was rebalanced is one itself), assigns (those that gave it partitions by name)."""
    moves = t.ops.where("f in ('assign', 'subscribe', 'crash') and type != 'invoke'").select("process", "index", "f")
    if _REBALANCE in t.facts.actions:
        told = t.table("op_records").where(F.col("action") == _REBALANCE).select(F.col("op_index").alias("index"))
        polls = t.ops.where("f in ('poll', 'txn')").select("process", "index", "f")
        moves = moves.unionByName(polls.join(told.distinct(), "index", "left_semi"))
    assign = F.when(F.col("f") == "assign", F.col("index"))
    return moves.groupBy("process").agg(F.collect_list("index").alias("moves"), F.collect_list(assign).alias("assigns"))


def _skipped(t: Tables, gaps: DataFrame) -> DataFrame:
    """Gaps in which something lies: the columns of `_steps`, and the last record left out: missed, missed_value.

    A read_committed reader is entitled to what another read_committed reader saw and to values that were acknowledged
    or committed; a read_uncommitted reader to all that exists. Nobody is, to what lies below the log's start.
    """
    there = _existing(t)
    earlier = Window.partitionBy("place").orderBy("offset").rangeBetween(Window.unboundedPreceding, -1)
    record = F.struct("offset", "value")
    there = there.select(
        *("place", "offset"),
        F.max(record).over(earlier).alias("any_before"),
        F.max(F.when(F.col("sure"), record)).over(earlier).alias("sure_before"),
    ).dropDuplicates(["place", "offset"])
    starts = t.final_state.select(*KEY, F.coalesce("log_start", "final_start", F.lit(0)).alias("start"))
    rows = gaps.drop("value").withColumn("place", F.xxhash64(*KEY)).join(there, ["place", "offset"])
    rows = rows.join(F.broadcast(starts), list(KEY), "left")
    missed = F.when(F.col("isolation") == "read_uncommitted", F.col("any_before")).otherwise(F.col("sure_before"))
    rows = rows.withColumn("m", missed).where("m.offset > before and m.offset >= coalesce(start, 0)")
    return rows.withColumns({"missed": F.col("m.offset"), "missed_value": F.col("m.value")})


def _existing(t: Tables) -> DataFrame:
    """What is at each offset: place, offset, value, sure (a read_committed reader is entitled to it). Of a large
    history what the sieve let through: all that lies in a gap is among it."""
    seen = t.near_seen
    if t.compacted is not None:  # what a cleaner removed may have been gone already; what the log holds never was
        flags = F.broadcast(t.compacted.withColumn("compacted", F.lit(True)))
        seen = seen.join(flags, ["cluster", "topic"], "left").where("compacted is null or stored")
    there = seen.withColumn("sure", F.lit(True))
    if t.transactional or own_transactions(t):
        there = _entitled(t, seen)
    return there.select(F.xxhash64(*KEY).alias("place"), "offset", "value", "sure")


def _entitled(t: Tables, seen: DataFrame) -> DataFrame:
    """Add `sure` to what was seen. A copy counts by the log that holds it, else by the send that was told its offset,
    else by all sends of its value."""
    col, false = F.col, F.lit(False)
    kept, undone = col("outcome").isin("acked", "committed"), col("outcome").isin("aborted", "failed")
    flags = {"kept": F.max(kept), "unkept": F.max(~kept), "undone": F.max(undone)}
    by_value = t.near_sends.groupBy("value").agg(*(flag.alias(name) for name, flag in flags.items()))
    told = t.near_sends.where("offset is not null").groupBy(*KEY, "offset", "value")
    by_place = told.agg(*(flags[name].alias(f"told_{name}") for name in ("kept", "undone")))
    home = t.near_sends.select("cluster", "value").distinct().withColumn("home", F.lit(True))
    rows = seen.join(by_value, "value", "left").join(by_place, [*KEY, "offset", "value"], "left")
    rows = rows.join(home, ["cluster", "value"], "left")
    rows = rows.fillna(False, ["kept", "unkept", "undone", "told_kept", "told_undone", "home"])
    # What an exactly-once mirror wrote may be aborted, and its own log alone would tell.
    doubtful = ~col("home") & col("cluster").isin(*own_transactions(t))
    sure = (
        F.when(col("txn_end") == "ABORT", false)
        .when(col("txn_end") == "OPEN", col("committed"))
        .when(col("told_kept"), F.lit(True))
        # What another read_committed reader was wrongly shown (`aborted_read`), nobody is entitled to.
        .when(col("told_undone") | (col("undone") & ~col("kept")), false)
        .when(col("stored") | col("committed"), F.lit(True))
        .otherwise(col("kept") & ~col("unkept") & ~doubtful)
    )
    return rows.withColumn("sure", sure)


CHECKER = Checker(name="poll_order", kinds=(POLL_SKIP, NONMONOTONIC_POLL), find=find)
