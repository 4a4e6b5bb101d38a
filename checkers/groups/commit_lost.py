"""`commit_lost`: an acknowledged offset commit is lost.

Proves: a fetch of a group's offset (an operation, or a snapshot of the group) that began after a commit had been
acknowledged returned an older offset, or none. The commit that counts is the last one acknowledged before the fetch
began. It is no loss if the offset is that of a commit that overlapped it or came later (acknowledged, undecided, or
written by a mirror), or is ahead of it and no earlier commit explains it.
An offset committed within a transaction is acknowledged with the transaction's commit, and may be visible from the
commit request on; for a transaction of unknown result it may or may not be there. A fetch that returns an offset
committed only within an aborted transaction shows that the group's previous offset is lost.
A snapshot does not wait for the transaction's markers as a consumer's fetch does: it counts some seconds later.

Cannot see: offsets that expired; committers that the history does not record, unless their offset is lower.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence
from checkers.eras import UNDECIDED
from checkers.views.incarnations import undecided, with_era_at
from checkers.views.keys import GROUP
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="commit_lost",
    severity=Severity.S1,
    violation="lost acknowledged offset commits",
    section=4,
    what="a fetch returns the last acknowledged offset commit or a later one, and none of an aborted transaction",
    limitations="expired offsets, committers that are not recorded",
    sources=("KAFKA-20634", "apache/kafka#22444", "redpanda#31483"),
    requires=("ops", "op_records"),
)
KEY = (*GROUP, "era")
MARKED_NS = 5_000_000_000
"""How long after a transaction's acknowledged commit its markers may take, at most, to reach the offsets topic."""


def check(t: Tables) -> DataFrame | None:
    """One row per fetch that shows it."""
    if not t.facts.any("fetch_offset") and not t.has("group_offsets"):
        return None
    done = _of_clients(t)
    if t.has("group_offsets"):
        done = done.unionByName(_of_groups(t))
    done = _of_either_incarnation(with_era_at(t, done, F.col("begin"), F.col("end"))).where("not failed")
    judged = _judged(_fetches(done), done)
    gone = "last is not null and not explained and (offset is null or offset < last.offset or older)"
    return _anomalies(judged.where(f"aborted or ({gone})").withColumn("committed", F.col("last.offset")))


def _fetches(done: DataFrame) -> DataFrame:
    """Fetches that returned another offset than the last commit acknowledged before: the columns of done, last (that
    commit), id."""
    # A fetch is ordered by its beginning, a commit by its end.
    acked = (F.col("action") == "commit") & F.col("ok") & F.col("end").isNotNull() & F.col("offset").isNotNull()
    commit = F.struct("offset", "begin", "op_index", "decided_index", "end", "process", "op")
    fetch = (F.col("action") == "fetch") & F.col("ok")
    at = F.when(F.col("action") == "fetch", F.col("begin")).otherwise(F.col("end"))
    order = Window.partitionBy(*KEY).orderBy("at", F.col("action").desc()).rowsBetween(Window.unboundedPreceding, -1)
    shown = done.withColumn("at", at).where("at is not null")
    shown = shown.withColumn("last", F.last(F.when(acked, commit), ignorenulls=True).over(order)).where(fetch)
    unmarked = F.col("op_index").isNull() & F.col("last.decided_index").isNotNull()
    shown = shown.where(~unmarked | (F.col("begin") >= F.col("last.end") + MARKED_NS) | F.col("last").isNull())
    shown = shown.where("offset is null or last is null or offset != last.offset")
    return shown.withColumn("id", F.monotonically_increasing_id())


def _judged(shown: DataFrame, done: DataFrame) -> DataFrame:
    """Each fetch beside every commit of exactly the fetched offset: explained, by a commit that overlapped the last one
    or came later; older: one that came before has it; aborted: only commits of aborted transactions do."""
    held = done.where("action = 'commit' and offset is not null").select(
        *KEY,
        F.col("offset").alias("held"),
        F.col("begin").alias("held_begin"),
        F.col("end").alias("held_end"),
        F.col("undone").alias("held_undone"),
        *(F.col(c).alias(f"held_{c}") for c in ("ok", "process", "op", "op_index")),
    )
    both = shown.join(held.withColumn("offset", F.col("held")), [*KEY, "offset"], "left")
    began = F.col("held_begin") <= F.coalesce("end", "begin")
    same = F.col("held").isNotNull() & ~F.col("held_undone")
    # Of one process's concurrent commits the one that was invoked and answered first comes first.
    before = F.col("held_ok") & (F.col("held_process") == F.col("last.process"))
    before = before & (F.col("held_op") < F.col("last.op")) & (F.col("held_op_index") < F.col("last.op_index"))
    later = F.col("held_end").isNull() | (F.col("held_end") >= F.col("last.begin"))
    later = later & ~F.coalesce(before, F.lit(False))
    undone = F.col("held").isNotNull() & F.col("held_undone") & began

    def any_of(flag: Column) -> Column:
        return F.max(F.coalesce(flag, F.lit(False)))

    return both.groupBy("id", *KEY, "offset", "op_index", F.col("last").alias("last")).agg(
        any_of(same & later & began).alias("explained"),
        any_of(same & ~later).alias("older"),
        (any_of(undone) & ~any_of(same)).alias("aborted"),
    )


def _anomalies(lost: DataFrame) -> DataFrame:
    where = ("topic", "partition", "cluster")
    returned = F.coalesce(F.col("offset").cast("string"), F.lit("none"))
    words = sentence(
        "group %s committed %s of %s-%s on %s, but a later fetch returned %s", "group", "committed", *where, returned
    )
    shown_undone = sentence(
        "group %s had committed %s of %s-%s on %s, but a later fetch returned %s, of a transaction that was aborted",
        *("group", F.coalesce(F.col("committed").cast("string"), F.lit("nothing")), *where, returned),
    )
    return anomalies(
        lost,
        "commit_lost",
        offset=F.coalesce("committed", "offset"),
        value=None,
        ops=op_list("last.op_index", "last.decided_index", "op_index"),
        rank=F.coalesce("offset", F.lit(-1)) - F.coalesce("committed", F.lit(0)),
        explain=F.when(F.col("aborted"), shown_undone).otherwise(words),
    )


def _of_either_incarnation(done: DataFrame) -> DataFrame:
    """Commits that overlap a topic's deletion may explain offsets of either incarnation and are binding in none;
    fetches that
    overlap it are not judged."""
    done = done.where(f"not (action = 'fetch' and era >= {UNDECIDED})")
    incarnations = F.sequence(F.floor(F.col("era") / UNDECIDED).cast("int") - 1, (F.col("era") % UNDECIDED).cast("int"))
    either = done.where(undecided()).withColumn("era", F.explode(incarnations))
    nobody = {"ok": F.lit(False), "end": F.lit(None).cast("bigint")}
    return done.where(~undecided()).unionByName(either.withColumns(nobody))


def _of_clients(t: Tables) -> DataFrame:
    """Commits and fetches of clients: GROUP, action, offset, begin, end (null: not known to have ended), ok,
    failed, undone (its transaction was aborted), op_index, decided_index (of the transaction it is part of), process
    (of commits outside transactions), op."""
    done = _with_transactions(t, _operations(t))
    in_txn = F.col("txn").isNotNull() & (F.col("action") == "commit")
    outcome = F.coalesce("txn_outcome", F.lit("unknown"))
    binding = F.col("ok") & (outcome == "committed")
    whole_undone = (F.col("f") == "txn") & F.col("failed") & (F.col("action") == "commit")
    undone = (in_txn & (outcome == "aborted")) | whole_undone
    begin = F.when(in_txn & ~undone, F.coalesce("asked_ns", "begin")).otherwise(F.col("begin"))
    return done.select(
        *GROUP,
        "action",
        "offset",
        begin.alias("begin"),
        F.when(~in_txn, F.col("end")).when(binding, F.col("decided_ns")).alias("end"),
        F.when(in_txn, binding).otherwise(F.col("ok")).alias("ok"),
        (F.col("failed") & ~whole_undone).alias("failed"),
        undone.alias("undone"),
        "op_index",
        F.when(in_txn, F.col("decided_index")).alias("decided_index"),
        F.when(~in_txn, F.col("process")).alias("process"),
        "op",
    )


def _operations(t: Tables) -> DataFrame:
    """Operations about groups' offsets, one row per partition: op, action, topic, partition, offset, f, group, cluster,
    process, begin, end, ok, failed, op_index, txn."""
    functions = t.ops.where("f in ('commit_offset', 'fetch_offset', 'txn')")
    ops = (
        functions.where("group is not null")
        .groupBy("op", "f", "group")
        .agg(
            F.max("cluster").alias("cluster"),
            F.max("process").alias("process"),
            F.min("time_ns").alias("begin"),
            F.max(F.when(F.col("type").isin("ok", "fail"), F.col("time_ns"))).alias("end"),
            F.max(F.col("type") == "ok").alias("ok"),
            F.max(F.col("type") == "fail").alias("failed"),
            F.max("index").alias("op_index"),
            F.max(F.when(F.col("f") != "txn", F.col("txn"))).alias("txn"),
        )
    )
    events = functions.select("op", F.col("index").alias("event"))
    rows = t.table("op_records").where("action in ('commit', 'fetch') and topic is not null and partition is not null")
    rows = rows.select(F.col("op_index").alias("event"), "action", "topic", "partition", "offset").join(events, "event")
    rows = rows.groupBy("op", "action", "topic", "partition").agg(F.max_by("offset", "event").alias("offset"))
    return rows.join(ops, "op")


def _with_transactions(t: Tables, done: DataFrame) -> DataFrame:
    """Add txn_outcome, decided_index, decided_ns, and asked_ns: when the transaction's commit was first requested."""
    if t.facts.txn_steps:
        asks = t.ops.where("f = 'txn_commit' and txn is not null").groupBy("cluster", "txn")
        asked = asks.agg(F.min("time_ns").alias("asked_ns"))
        ends = t.txns.select("cluster", "txn", "txn_outcome", "decided_index", "decided_ns")
        return done.join(ends, ["cluster", "txn"], "left").join(asked, ["cluster", "txn"], "left")
    none = F.lit(None).cast("bigint")
    outcome = F.lit(None).cast("string")
    return done.withColumns({"txn_outcome": outcome, "decided_index": none, "decided_ns": none, "asked_ns": none})


def _of_groups(t: Tables) -> DataFrame:
    """Snapshots as fetches, and a mirror's writes as commits that were not acknowledged to anybody."""
    rows = t.table("group_offsets").where("topic is not null and partition is not null")
    rows = rows.where("event in ('look', 'sync') and coalesce(kind, 'consumer') = 'consumer'")
    snapshot, time = F.col("event") == "look", F.col("time_ns")
    began = F.coalesce("began_ns", "time_ns")
    none = F.lit(None)
    return rows.select(
        *GROUP,
        F.when(snapshot, "fetch").otherwise("commit").alias("action"),
        "offset",
        began.alias("begin"),
        F.when(snapshot, time).alias("end"),
        snapshot.alias("ok"),
        F.lit(False).alias("failed"),
        F.lit(False).alias("undone"),
        none.cast("bigint").alias("op_index"),
        none.cast("bigint").alias("decided_index"),
        none.cast("string").alias("process"),
        none.cast("bigint").alias("op"),
    )


CHECKER = Checker(name="commit_lost", kinds=(KIND,), check=check)
