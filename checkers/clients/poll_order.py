"""`poll_skip` and `nonmonotonic_poll`: a consumer skips records that exist, or goes back.

Proves: of two records that one consumer read one after the other from one partition, within a poll (form `internal`)
or in consecutive successful polls (form `external`), the second is not after the first, or there is a record between
them that others read or the log holds, and that this consumer should have been given. Form `assigned`: such a record
is between the position that a consumer was given (`positions`) and the first record that it read from there.

Judged from one assignment to the next: a new one begins with crash events of the process and subscriptions, with
assignments for the partitions that they name, with polls in which its group was rebalanced or that found the position
outside the log, and with polls of unknown outcome. Members of groups are judged only where the history records
assignments, and by what their group may have committed (`skips`). Members of share groups are not judged: records that
one of them releases are delivered again, in any order.

Cannot see: a consumer that skips records which no other reader saw (`lost_write`); records of undecided transactions
that a read_committed reader skips; first reads of consumers whose position is not recorded.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views import history, positions, skips
from checkers.views.history import KEY
from checkers.views.incarnations import undecided, with_era
from checkers.views.keys import PARTITION
from checkers.views.mirroring import own_transactions
from checkers.views.tables import Tables

POLL_SKIP = AnomalyKind(
    name="poll_skip",
    severity=Severity.S2,
    violation="let consumers skip records",
    section=1,
    what="a consumer reads every record of its partition that it is entitled to, from its assigned position on",
    limitations="records that no reader saw; expired records; members of groups without recorded assignments; "
    "first reads from an"
    " unrecorded position",
    sources=("Jepsen: jepsen.tests.kafka poll-skip, int-poll-skip", "akka/alpakka-kafka#1016"),
    forms=("internal", "external", "assigned"),
)
NONMONOTONIC_POLL = AnomalyKind(
    name="nonmonotonic_poll",
    severity=Severity.S2,
    violation="let consumers go back",
    section=1,
    what="a consumer that is not reassigned never goes back",
    limitations="members of groups without recorded assignments",
    sources=("Jepsen: jepsen.tests.kafka nonmonotonic-poll, int-nonmonotonic-poll",),
    forms=("internal", "external"),
)


def check(t: Tables) -> DataFrame | None:
    """A consumer's steps from record to record that skip or go back."""
    steps = t.cache(_steps(t))
    what = F.when(F.col("form") == "internal", "within one poll").otherwise("in consecutive polls")
    where = ("topic", "partition", "cluster")
    words = "%s read offset %s of %s-%s on %s after offset %s, %s"
    back = anomalies(
        steps.where("offset <= before and not lost"),
        "nonmonotonic_poll",
        form=F.col("form"),
        ops=op_list("before_index", "op_index"),
        rank=F.col("offset") - F.col("before"),
        explain=sentence(words, "process", "offset", *where, "before", what),
    )
    gaps = steps.where("offset > before + 1")
    if gaps.isEmpty():
        return back
    skipped = t.cache(_skipped(t, gaps))
    if t.is_empty(skipped):
        return back
    skip = anomalies(
        skips.counted(t, skipped),
        "poll_skip",
        form=F.col("form"),
        offset="missed",
        value="missed_value",
        ops=op_list("before_index", "op_index"),
        rank=F.col("before") - F.col("offset"),
        explain=sentence(
            "%s read offset %s of %s-%s on %s %s, and left out offset %s",
            *("process", "offset", *where, _begun(what), "missed"),
        ),
    )
    return union([back, skip])


def _begun(what: Column) -> Column:
    """Where a step began."""
    at = (F.col("before") + 1).cast("string")
    first = F.lit("first after it was assigned at ")
    return (
        F.when(F.col("how") == "start", F.concat(first, F.lit("the log start")))
        .when(F.col("how") == "group", F.concat(F.lit("first after its group had committed offset "), at))
        .when(F.col("how") == "offset", F.concat(first, F.lit("offset "), at))
        .otherwise(F.concat(F.lit("right after offset "), F.col("before").cast("string"), F.lit(", "), what))
    )


def _steps(t: Tables) -> DataFrame:
    """Steps that do not go to the very next offset, and from given positions only those that pass over offsets:
    cluster, topic, partition, era, process, isolation, group, reset, time_ns, before, offset, value (at offset),
    before_index, op, op_index, form, how (of a given position, see `positions`; else null; before is then the offset
    before it), lost (a poll between them found the position outside the log)."""
    given = positions.given(t)
    if t.large:
        return _with_ends(t, t.prefilter.steps, given)
    names = ("process", *KEY, "op_index", "position", "offset")
    rows = t.reads.where("offset is not null and partition is not null").select(*names, F.lit(False).alias("given"))
    if given is not None:
        place = {"op_index": F.col("index"), "position": F.lit(-1), "offset": F.col("offset") - 1, "given": F.lit(True)}
        rows = rows.unionByName(given.withColumns(place).select(*names, "given"))
    order = Window.partitionBy("process", *KEY).orderBy("op_index", "position")
    last = F.lag(F.struct(F.col("offset").alias("before"), F.col("op_index").alias("before_index"), "given"))
    steps = rows.withColumn("last", last.over(order)).where("not given and offset != last.before + 1")
    steps = steps.where("not last.given or offset > last.before")
    return _with_ends(t, t.cache(steps.select("op_index", "position", "last.before", "last.before_index")), given)


def _with_ends(t: Tables, odd: DataFrame, given: DataFrame | None) -> DataFrame:
    """Steps with details of both ends; those in which the consumer may have been repositioned are left out."""
    reads = history.reads(t, only=odd.select("op_index", "position")) if t.large else t.reads
    steps = reads.join(odd, ["op_index", "position"]).where(~undecided())
    if t.incarnation_windows is not None:
        steps = _uninterrupted(t, steps, t.incarnation_windows)
    if t.has("group_offsets"):
        shares = t.table("group_offsets").where("kind = 'share'").select("group").distinct()
        steps = steps.join(F.broadcast(shares), "group", "left_anti")
    ends = t.ops.where("f in ('poll', 'txn', 'assign', 'subscribe') and type != 'invoke'").select(
        F.col("index").alias("before_index"),
        *(F.col(name).alias(f"before_{name}") for name in ("op", "client", "type")),
    )
    steps = steps.join(ends, "before_index", "left")
    if given is None:
        steps = steps.withColumns({name: F.lit(None).cast("string") for name in ("how", "given_to")})
    else:
        place = (F.col("index").alias("before_index"), "process", *KEY)
        steps = steps.join(
            given.select(*place, "how", F.col("group").alias("given_to")), ["before_index", "process", *KEY], "left"
        )
    steps = _moved(t, steps)
    was_given = F.col("how").isNotNull()
    same = F.col("before_client").eqNullSafe(F.col("client")) | (was_given & F.col("before_client").isNull())
    # A position derived from a group's commits, or from there being none, applies to that group only.
    same_group = (F.col("how") == "offset") | F.col("given_to").eqNullSafe(F.col("group"))
    within = F.col("before_index") == F.col("op_index")
    steady = (
        (F.col("type") == "ok")
        & (F.col("before_type") == "ok")
        & same
        & ~F.col("moved")
        & (~was_given | ((F.col("op") > F.col("before_index")) & same_group))
        & (F.col("group").isNull() | F.col("assigned") | was_given)
    )
    form = F.when(within, "internal").when(was_given, "assigned").otherwise("external")
    columns = ("process", "isolation", "group", "reset", "time_ns", "offset", "value", "op", "op_index")
    return (
        steps.withColumn("form", form)
        .where(within | steady)
        .select(*KEY, *columns, "form", "before", "before_index", "how", "lost")
    )


def _moved(t: Tables, steps: DataFrame) -> DataFrame:
    """Add moved: the consumer may have been repositioned between the ends of a step; lost: by its own reset, because
    its position was outside the log; assigned: it was given partitions by name before."""
    found = positions.moves(t)
    if found is None:
        return steps.withColumns({name: F.lit(False) for name in ("moved", "lost", "assigned")})
    whole, named = found
    steps = steps.join(F.broadcast(whole), "process", "left")
    steps = steps.join(named, ["process", "cluster", "topic", "partition"], "left")
    # A poll in flight may have been answered from the old position.
    since = F.when(F.col("how").isNull(), F.coalesce("before_op", "before_index")).otherwise(F.col("before_index"))

    def between(event: Column) -> Column:
        begun = F.when(event["poll"], F.col("before_index")).otherwise(since)
        return (event["at"] > begun) & (event["at"] <= F.col("op_index"))

    def any_of(want: Column | bool) -> Column:
        each = [F.exists(name, lambda e: between(e) & (e["lost"] == F.lit(want))) for name in ("whole", "named")]
        return F.coalesce(each[0], F.lit(False)) | F.coalesce(each[1], F.lit(False))

    assigned = F.exists("assigns", lambda at: at < F.col("before_index"))
    flags = {"moved": any_of(False), "lost": any_of(True), "assigned": F.coalesce(assigned, F.lit(False))}
    return steps.withColumns(flags).drop("whole", "named", "assigns")


def _uninterrupted(t: Tables, steps: DataFrame, windows: DataFrame) -> DataFrame:
    """Steps without those in which the consumer may have read from another incarnation of the topic."""
    place = ["process", *PARTITION]
    ops = t.ops.where("f in ('poll', 'txn') and type != 'invoke'")
    polls = ops.select(F.col("index").alias("op_index"), "op", "process", "cluster")
    read = t.table("op_records").where("action = 'poll'").select("op_index", "topic", "partition").distinct()
    read = read.join(F.broadcast(windows.select("topic").distinct()), "topic", "left_semi")
    read = with_era(t, read.join(polls, "op_index"), F.col("op"), F.col("op_index")).where(undecided())
    between = F.broadcast(read.groupBy(*place).agg(F.collect_list("op_index").alias("between")))
    steps = steps.join(between, place, "left")
    within = F.exists("between", lambda at: (at > F.col("before_index")) & (at < F.col("op_index")))
    return steps.where(~F.coalesce(within, F.lit(False))).drop("between")


def _skipped(t: Tables, gaps: DataFrame) -> DataFrame:
    """Gaps that contain a record: the columns of `_steps`, start (of the log), and the last skipped record: missed,
    missed_value.

    A read_committed reader is entitled to what another read_committed reader saw and to values that were acknowledged
    or committed; a read_uncommitted reader to all that exists. No reader is entitled to records below the log's start.
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
    rows = rows.withColumns({"missed": F.col("m.offset"), "missed_value": F.col("m.value")})
    return rows.drop("m", "place", "any_before", "sure_before")


def _existing(t: Tables) -> DataFrame:
    """The records at each offset: place, offset, value, sure (a read_committed reader is entitled to it). For a large
    history those that the prefilter kept: all records in a gap are among them."""
    seen = t.near_seen
    if (
        t.compacted is not None
    ):  # a record that the cleaner removed may have been gone already; one that the log holds was not
        flags = F.broadcast(t.compacted.withColumn("compacted", F.lit(True)))
        seen = seen.join(flags, ["cluster", "topic"], "left").where("compacted is null or stored")
    there = seen.withColumn("sure", F.lit(True))
    if t.transactional or own_transactions(t):
        there = _entitled(t, seen)
    return there.select(F.xxhash64(*KEY).alias("place"), "offset", "value", "sure")


def _entitled(t: Tables, seen: DataFrame) -> DataFrame:
    """Add `sure` to what was seen. A copy is judged by the log that holds it, else by the send that was acknowledged at
    its offset, else by all sends of its value."""
    col, false = F.col, F.lit(False)
    kept, undone = col("outcome").isin("acked", "committed"), col("outcome").isin("aborted", "failed")
    flags = {"kept": F.max(kept), "unkept": F.max(~kept), "undone": F.max(undone)}
    by_value = t.near_sends.groupBy("value").agg(*(flag.alias(name) for name, flag in flags.items()))
    acked = t.near_sends.where("offset is not null").groupBy(*KEY, "offset", "value")
    by_place = acked.agg(*(flags[name].alias(f"acked_{name}") for name in ("kept", "undone")))
    home = t.near_sends.select("cluster", "value").distinct().withColumn("home", F.lit(True))
    rows = seen.join(by_value, "value", "left").join(by_place, [*KEY, "offset", "value"], "left")
    rows = rows.join(home, ["cluster", "value"], "left")
    rows = rows.fillna(False, ["kept", "unkept", "undone", "acked_kept", "acked_undone", "home"])
    # A record of an exactly-once mirror may be aborted, which only the log would show.
    doubtful = ~col("home") & col("cluster").isin(*own_transactions(t))
    sure = (
        F.when(col("txn_end") == "ABORT", false)
        .when(col("txn_end") == "OPEN", col("committed"))
        .when(col("acked_kept"), F.lit(True))
        # No reader is entitled to what another read_committed reader was wrongly shown (`aborted_read`).
        .when(col("acked_undone") | (col("undone") & ~col("kept")), false)
        .when(col("stored") | col("committed"), F.lit(True))
        .otherwise(col("kept") & ~col("unkept") & ~doubtful)
    )
    return rows.withColumn("sure", sure)


CHECKER = Checker(name="poll_order", kinds=(POLL_SKIP, NONMONOTONIC_POLL), check=check)
