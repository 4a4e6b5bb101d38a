"""`commit_lost`: an acknowledged offset commit is not there any more.

Proves: a fetch of a group's offset (an operation, or a look at the group) that began after a commit had been
acknowledged returned an older offset, or none. The commit that counts is the last one acknowledged before the fetch
began. What a commit that overlapped it or came later (acknowledged, undecided, or written by a mirror) would leave
there is no loss, nor is an offset ahead of it that no earlier commit explains.

Cannot see: commits within transactions; offsets that expired; committers that the history does not record, unless
their offset is lower.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import Checker, Kind, Severity, anomalies, op_list, sentence
from checkers.history import with_era
from checkers.tables import Tables

KIND = Kind(
    name="commit_lost",
    severity=Severity.S1,
    section=4,
    what="an acknowledged offset commit, or a later one, is there at every later fetch",
    blind="commits within transactions, expired offsets, committers that are not recorded",
    sources=("KAFKA-20634", "apache/kafka#22444"),
    requires=("ops", "op_records"),
)
KEY = ("cluster", "group", "topic", "partition", "era")


def find(t: Tables) -> DataFrame | None:
    """One row per fetch that shows it."""
    if not t.facts.any("fetch_offset") and not t.has("group_offsets"):
        return None
    ops = (
        t.ops.where("f in ('commit_offset', 'fetch_offset') and group is not null")
        .groupBy("op", "f", "group")
        .agg(
            F.max("cluster").alias("cluster"),
            F.min("time_ns").alias("begin"),
            F.max(F.when(F.col("type").isin("ok", "fail"), F.col("time_ns"))).alias("end"),
            F.max(F.col("type") == "ok").alias("ok"),
            F.max(F.col("type") == "fail").alias("failed"),
            F.max("index").alias("op_index"),
            F.max("txn").alias("txn"),
        )
    )
    events = t.ops.where("f in ('commit_offset', 'fetch_offset')").select("op", F.col("index").alias("event"))
    rows = t.table("op_records").where("action in ('commit', 'fetch') and topic is not null and partition is not null")
    rows = rows.select(F.col("op_index").alias("event"), "action", "topic", "partition", "offset").join(events, "event")
    rows = rows.groupBy("op", "action", "topic", "partition").agg(F.max_by("offset", "event").alias("offset"))
    done = rows.join(ops, "op").select(*KEY[:4], "action", "offset", "begin", "end", "ok", "failed", "op_index", "txn")
    if t.has("group_offsets"):
        done = done.unionByName(_of_groups(t))
    done = with_era(t, done, F.col("begin")).where("not failed")
    # Of all commits acknowledged before: the last. The order of a fetch is its beginning, of a commit its end.
    acked = (F.col("action") == "commit") & F.col("ok") & F.col("txn").isNull() & F.col("offset").isNotNull()
    commit = F.struct("offset", "begin", "op_index")
    fetch = (F.col("action") == "fetch") & F.col("ok")
    at = F.when(F.col("action") == "fetch", F.col("begin")).otherwise(F.col("end"))
    order = Window.partitionBy(*KEY).orderBy("at", F.col("action").desc()).rowsBetween(Window.unboundedPreceding, -1)
    shown = done.withColumn("at", at).where("at is not null")
    shown = shown.withColumn("last", F.last(F.when(acked, commit), ignorenulls=True).over(order))
    shown = shown.where(fetch & F.col("last").isNotNull())
    shown = shown.where("offset is null or offset != last.offset").withColumn("id", F.monotonically_increasing_id())
    held = done.where("action = 'commit' and offset is not null").select(
        *KEY, F.col("offset").alias("held"), F.col("begin").alias("held_begin"), F.col("end").alias("held_end")
    )
    # What was fetched, and every commit of just that offset.
    held = held.withColumn("offset", F.col("held"))
    both = shown.join(held, [*KEY, "offset"], "left")
    same = F.col("held").isNotNull()
    later = F.col("held_end").isNull() | (F.col("held_end") >= F.col("last.begin"))
    began = F.col("held_begin") <= F.coalesce("end", "begin")
    judged = both.groupBy("id", *KEY, "offset", "op_index", F.col("last").alias("last")).agg(
        F.max(F.coalesce(same & later & began, F.lit(False))).alias("explained"),
        F.max(F.coalesce(same & ~later, F.lit(False))).alias("older"),
    )
    lost = judged.where("not explained and (offset is null or offset < last.offset or older)")
    return anomalies(
        lost.withColumn("committed", F.col("last.offset")),
        "commit_lost",
        offset="committed",
        value=None,
        ops=op_list("last.op_index", "op_index"),
        rank=F.coalesce("offset", F.lit(-1)) - F.col("committed"),
        explain=sentence(
            "group %s committed %s of %s-%s on %s, but a later fetch returned %s",
            *(
                "group",
                "committed",
                "topic",
                "partition",
                "cluster",
                F.coalesce(F.col("offset").cast("string"), F.lit("none")),
            ),
        ),
    )


def _of_groups(t: Tables) -> DataFrame:
    """Looks as fetches, and what a mirror wrote as commits that nobody was promised."""
    rows = t.table("group_offsets").where("topic is not null and partition is not null")
    rows = rows.where("event in ('look', 'sync') and coalesce(kind, 'consumer') = 'consumer'")
    look, time = F.col("event") == "look", F.col("time_ns")
    began = F.coalesce("began_ns", "time_ns")
    none = F.lit(None)
    return rows.select(
        *KEY[:4],
        F.when(look, "fetch").otherwise("commit").alias("action"),
        "offset",
        began.alias("begin"),
        F.when(look, time).alias("end"),
        look.alias("ok"),
        F.lit(False).alias("failed"),
        none.cast("bigint").alias("op_index"),
        none.cast("string").alias("txn"),
    )


CHECKER = Checker(name="commit_lost", kinds=(KIND,), find=find)
