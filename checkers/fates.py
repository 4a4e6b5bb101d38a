"""What became of each value: every send joined with every place where its value was seen, in one pass.

Most rows of most histories are clean. One pass marks those that are not, and only those are kept; the client
checkers then work on the few. Marks are boolean columns that start with `is_`; a mark says "look here", and the
checker of that kind decides.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.history import KEY

if TYPE_CHECKING:
    from checkers.tables import Tables

PLACE = ("cluster", "topic", "origin_topic", "partition", "era", "offset", "op_index")
MARKS = (
    *("is_lost", "is_unseen", "is_elsewhere", "is_overlaid", "is_unsent", "is_misplaced", "is_duplicate"),
    *("is_undone", "is_torn", "is_ack_back", "is_reordered"),
)
CHECKERS = frozenset(
    ("lost_write", "duplicate", "inconsistent_offsets", "misplaced", "aborted_read", "torn_transaction")
) | {"ack_mismatch", "send_order"}
"""Checkers that look at suspects and conflicts alone; `aborted_read` at what transactions read, besides."""


def suspects(t: Tables) -> DataFrame:
    """Rows that some checker must look at: the columns of `Tables.sends` (null for a value that was never sent),
    `places` (array of structs: PLACE, readers, final, committed, stored), `own` (those on the cluster it was sent to),
    `here` (those of its own partition), the columns of `final_state`, the previous sends of the process
    (`before_ack`, `before_seen`: structs), `lost_form`, and the marks.
    """
    rows = _joined(t)
    rows = _marked(t, rows)
    rows = _ordered(rows)
    rows = _torn(t, rows) if t.facts.transactional else rows.withColumn("is_torn", F.lit(False))
    return t.cache(rows.where(reduce(Column.__or__, [F.col(m) for m in MARKS])))


def _joined(t: Tables) -> DataFrame:
    seen = t.near_seen.withColumn("origin_topic", t.canonical())
    place = F.struct(*PLACE, *("readers", "final", "committed", "stored"))
    places = seen.groupBy("value").agg(F.collect_list(place).alias("places"))
    rows = t.near_sends.join(places, "value", "full")
    rows = rows.join(F.broadcast(t.final_state), list(KEY), "left")
    if t.compacted is None:
        rows = rows.withColumn("compacted", F.lit(False))
    else:
        flags = F.broadcast(t.compacted.withColumn("compacted", F.lit(True)))
        rows = rows.join(flags, ["cluster", "topic"], "left").fillna({"compacted": False})
    discarded = F.coalesce(F.col("era") < 0, F.lit(False))
    if t.deletions is None:
        rows = rows.withColumn("deleted", discarded)
    else:
        rows = rows.join(F.broadcast(t.deletions), ["cluster", "topic"], "left")
        rows = rows.withColumn("deleted", F.coalesce(F.size("deleted") > F.col("era"), discarded))
    rows = rows.withColumn("places", F.coalesce("places", F.array()))
    own = F.filter("places", lambda p: p["cluster"] == F.col("cluster"))
    rows = rows.withColumn(
        "own", F.when(F.col("op").isNull(), F.filter("places", lambda p: F.lit(False))).otherwise(own)
    )
    here = F.filter(
        "own",
        lambda p: (
            (p["topic"] == F.col("topic"))
            & (F.coalesce(F.col("partition"), p["partition"]) == p["partition"])
            & (p["era"] == F.col("era"))
        ),
    )
    return rows.withColumn("here", here)


def _marked(t: Tables, rows: DataFrame) -> DataFrame:
    false, col = F.lit(False), F.col
    read = F.exists("own", lambda p: p["readers"] > 0)
    # A writer that notes final reads without marking their polls: then any poll may have been the final one.
    final = F.when(col("max_final").isNull(), read).otherwise(F.exists("own", lambda p: p["final"]))
    stored = F.exists("own", lambda p: p["stored"])
    must = col("outcome").isin("acked", "committed") & ~col("deleted")
    done = F.coalesce("done_ns", "invoke_ns")

    def since(start: str) -> Column:
        """Whether the record lies in a log that starts there; null offset: only if nothing can have expired."""
        return F.coalesce(col("offset") >= col(start), col(start) == 0)

    by_log = F.coalesce(col("look_ns") >= done, false)
    by_final = F.coalesce(col("final_ns") >= done, false)
    unread = ~by_log & ~by_final & ~read & ~stored
    passed = F.coalesce(col("max_read") > col("offset"), false)
    unexpired = F.coalesce(col("offset") >= col("log_start"), F.lit(True))
    lost_form = (
        F.when(by_log & since("log_start") & ~stored, "gone")
        .when(by_final & since("final_start") & ~final & (~by_log | since("log_start")), "unreadable")
        .when(unread & passed & unexpired, "passed")
    )
    unknowable = (
        (by_log | by_final) & col("offset").isNull() & ~read & ~stored & ~(since("log_start") | since("final_start"))
    )
    asked = _asked(t)
    here_at = F.exists("here", lambda p: p["offset"] == col("offset"))
    start = F.greatest(F.coalesce("log_start", F.lit(0)), F.coalesce("final_start", F.lit(0)))
    told = must & (col("offset") >= start)
    strayed = F.exists(
        "places",
        lambda p: (p["origin_topic"] != col("origin_topic")) | F.coalesce(p["partition"] != col("partition"), false),
    )
    spots = F.transform("places", lambda p: F.struct(p["cluster"], p["topic"], p["partition"], p["era"]))
    undone = F.exists(
        "places",
        lambda p: (
            ((col("outcome") == "aborted") & p["committed"]) | ((col("outcome") == "failed") & (p["readers"] > 0))
        ),
    )
    sent = col("op").isNotNull()
    return rows.withColumns(
        {
            "lost_form": F.when(must & ~col("compacted"), lost_form),
            "is_unseen": F.coalesce(must & ~col("compacted") & ((unread & ~passed & asked) | unknowable), false),
            "is_elsewhere": F.coalesce(told & ~here_at & (F.size("here") > 0), false),
            "is_overlaid": F.coalesce(told & (F.size("own") == 0), false),
            "is_unsent": ~sent,
            "is_misplaced": F.coalesce(sent & strayed, false),
            "is_duplicate": F.size("places") > F.size(F.array_distinct(spots)),
            "is_undone": F.coalesce(sent & undone, false),
        }
    ).withColumn("is_lost", col("lost_form").isNotNull())


def _asked(t: Tables) -> Column:
    """Whether somebody has to have looked at the record. An imported history may look at a topic on one cluster alone,
    because only its mirror is shown; nothing is asked of it on the others then."""
    if not t.stored.imported or not t.observed:
        return F.lit(True)
    there = [f"{cluster}\t{topic}" for cluster, topic in sorted(t.observed)]
    origins = t.spark.createDataFrame(sorted(t.observed), "cluster string, topic string").select(
        t.canonical().alias("o")
    )
    shown = sorted({row["o"] for row in origins.collect()})
    return F.concat_ws("\t", "cluster", "topic").isin(*there) | ~F.col("origin_topic").isin(*shown)


def _ordered(rows: DataFrame) -> DataFrame:
    """Compare each send with the earlier sends of its process to its partition."""
    col = F.col
    # Values that nobody sent have no process; by value they do not pile up in one window.
    unsent = F.when(col("op").isNull(), col("value"))
    window = Window.partitionBy("process", *KEY, unsent).orderBy("op", "position")
    window = window.rowsBetween(Window.unboundedPreceding, -1)
    acked = col("outcome").isin("acked", "committed")
    told = acked & col("offset").isNotNull()
    first = F.array_min(F.transform("here", lambda p: p["offset"]))
    # A record that was read and then lost says nothing of the order of those that stayed.
    rows = rows.withColumn("first_seen", F.when(acked & col("lost_form").isNull(), first))
    ack = F.struct("offset", "value", "op", "done_index")
    seen = F.struct(col("first_seen").alias("offset"), "value", "op", "done_index", "client")
    rows = rows.withColumns(
        {
            "before_ack": F.max(F.when(told, ack)).over(window),
            "before_seen": F.max(F.when(col("first_seen").isNotNull(), seen)).over(window),
        }
    )
    same = col("before_seen.client").eqNullSafe(col("client"))
    return rows.withColumns(
        {
            "is_ack_back": F.coalesce(told & (col("offset") < col("before_ack.offset")), F.lit(False)),
            "is_reordered": F.coalesce(same & (col("first_seen") < col("before_seen.offset")), F.lit(False)),
        }
    )


def _torn(t: Tables, rows: DataFrame) -> DataFrame:
    """Mark records of a transaction that read_committed readers passed over although they were shown another."""
    col, false = F.col, F.lit(False)
    whole = F.when(col("f") == "txn", F.concat(F.lit("op "), col("op").cast("string")))
    key = F.coalesce("txn", whole, F.concat(F.lit("none "), col("value")))
    visible = F.exists("own", lambda p: p["committed"])
    known = F.coalesce(col("offset"), F.array_min(F.transform("here", lambda p: p["offset"])))
    there = (col("outcome") == "committed") | ((col("outcome") == "unknown") & (F.size("own") > 0))
    passed = (col("rc_end") > known) & (col("rc_start") <= known)
    if not t.has("final_reads"):
        passed = col("max_committed") > known
    in_txn = col("txn").isNotNull() | whole.isNotNull()
    window = Window.partitionBy("cluster", key)
    shown = F.max(in_txn & visible).over(window)
    torn = in_txn & there & ~visible & passed & shown & ~col("deleted") & ~col("compacted")
    return rows.withColumn("is_torn", F.coalesce(torn, false))
