"""`poll_skip` and `nonmonotonic_poll`: a consumer leaves out records that exist, or goes back.

Proves: of two records that one consumer read one after the other from one partition, within a poll (form `internal`)
or in consecutive successful polls (form `external`), the second is not behind the first, or a record lies between them
that others read or the log holds, and that this consumer should have been given.

Judged from one assignment to the next: assign, subscribe and crash events of the process start anew. Consecutive polls
of a group's member are judged only where the history records assignments; without them a rebalance explains anything.

Cannot see: a consumer that leaves out records which nobody else saw (`lost_write`), and what a read_committed reader
skips of undecided transactions.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import Checker, Kind, Severity, anomalies, op_list, sentence, union
from checkers.partitions import KEY
from checkers.tables import Tables

POLL_SKIP = Kind(
    name="poll_skip",
    severity=Severity.S2,
    section=1,
    what="a consumer that is not reassigned reads every record of its partition that it is entitled to",
    blind="records that nobody saw; expired records; members of groups without recorded assignments",
    sources=("Jepsen: jepsen.tests.kafka poll-skip, int-poll-skip",),
    forms=("internal", "external"),
)
NONMONOTONIC_POLL = Kind(
    name="nonmonotonic_poll",
    severity=Severity.S2,
    section=1,
    what="a consumer that is not reassigned never goes back",
    blind="members of groups without recorded assignments",
    sources=("Jepsen: jepsen.tests.kafka nonmonotonic-poll, int-nonmonotonic-poll",),
    forms=("internal", "external"),
)


def find(t: Tables) -> DataFrame | None:
    """Steps of one consumer from record to record that skip or go back."""
    steps = t.cache(_steps(t))
    what = F.when(F.col("form") == "internal", "within one poll").otherwise("in consecutive polls")
    where = ("topic", "partition", "cluster")
    back = anomalies(
        steps.where("offset <= before"),
        "nonmonotonic_poll",
        form=F.col("form"),
        ops=op_list("before_index", "op_index"),
        rank=F.col("offset") - F.col("before"),
        explain=sentence(
            "%s read offset %s of %s-%s on %s after offset %s, %s", "process", "offset", *where, "before", what
        ),
    )
    gaps = steps.where("offset > before + 1")
    if gaps.isEmpty():
        return back
    skips = _skipped(t, gaps)
    skip = anomalies(
        skips,
        "poll_skip",
        form=F.col("form"),
        offset="missed",
        value="missed_value",
        ops=op_list("before_index", "op_index"),
        rank=F.col("before") - F.col("offset"),
        explain=sentence(
            "%s read offset %s of %s-%s on %s right after offset %s, %s, and left out %s at offset %s",
            *("process", "offset", *where, "before", what, "missed_value", "missed"),
        ),
    )
    return union([back, skip])


def _steps(t: Tables) -> DataFrame:
    """Steps that are not to the very next offset: cluster, topic, partition, era, process, isolation, before, offset,
    value (at offset), before_index, op_index, form."""
    reads = t.reads.where("offset is not null and partition is not null")
    session = F.lit(0)
    if t.facts.moves:
        moves = t.ops.where("f in ('assign', 'subscribe', 'crash') and type != 'invoke'").select("process", "index")
        marks = moves.groupBy("process").agg(F.sort_array(F.collect_list("index")).alias("moves"))
        reads = reads.join(F.broadcast(marks), "process", "left")
        session = F.coalesce(F.size(F.filter("moves", lambda at: at < F.col("op_index"))), F.lit(0))
        session = F.when(F.col("moves").isNull(), 0).otherwise(session)
    order = Window.partitionBy("process", *KEY).orderBy("op_index", "position")
    columns = ("offset", "op_index", "client", "type")
    before = F.lag(F.struct(*columns, session.alias("session"))).over(order)
    steps = (
        reads.withColumn("session", session).withColumn("b", before).where("b is not null and offset != b.offset + 1")
    )
    same = (F.col("b.op_index") == F.col("op_index")).alias("same")
    steps = steps.withColumn("form", F.when(same, "internal").otherwise("external"))
    steady = (
        (F.col("type") == "ok")
        & (F.col("b.type") == "ok")
        & F.col("b.client").eqNullSafe(F.col("client"))
        & (F.col("b.session") == F.col("session"))
        & (F.col("group").isNull() | (F.col("session") > 0))
    )
    return steps.where((F.col("form") == "internal") | steady).select(
        *(*KEY, "process", "isolation", "offset", "value", "op_index", "form"),
        F.col("b.offset").alias("before"),
        F.col("b.op_index").alias("before_index"),
    )


def _skipped(t: Tables, gaps: DataFrame) -> DataFrame:
    """Gaps in which something lies: the columns of `_steps`, and the last record left out: missed, missed_value.

    A read_committed reader is entitled to what another read_committed reader saw and to values that were acknowledged
    or committed; a read_uncommitted reader to all that exists. Nobody is, to what lies below the log's start.
    """
    there = t.seen.select(*KEY, "offset", "value", F.col("committed").alias("sure"))
    if t.facts.transactional:
        kept = t.sends.where("outcome in ('acked', 'committed')").select("value").distinct()
        there = there.join(kept.withColumn("kept", F.lit(True)), "value", "left")
        there = there.withColumn("sure", F.col("sure") | F.coalesce("kept", F.lit(False)))
    else:
        there = there.withColumn("sure", F.lit(True))
    earlier = Window.partitionBy(*KEY).orderBy("offset").rangeBetween(Window.unboundedPreceding, -1)
    record = F.struct("offset", "value")
    there = there.select(
        *KEY,
        "offset",
        F.max(record).over(earlier).alias("any_before"),
        F.max(F.when(F.col("sure"), record)).over(earlier).alias("sure_before"),
    ).dropDuplicates([*KEY, "offset"])
    starts = t.final_state.select(*KEY, F.coalesce("log_start", "final_start", F.lit(0)).alias("start"))
    rows = gaps.drop("value").join(there, [*KEY, "offset"]).join(F.broadcast(starts), list(KEY), "left")
    missed = F.when(F.col("isolation") == "read_uncommitted", F.col("any_before")).otherwise(F.col("sure_before"))
    rows = rows.withColumn("m", missed).where("m.offset > before and m.offset >= coalesce(start, 0)")
    return rows.withColumns({"missed": F.col("m.offset"), "missed_value": F.col("m.value")})


CHECKER = Checker(name="poll_order", kinds=(POLL_SKIP, NONMONOTONIC_POLL), find=find)
