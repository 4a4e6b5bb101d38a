"""The outcome of each value: every send joined with every place where its value was seen, in one pass.

Most rows of most histories are clean. One pass marks those that may not be, and only those are kept; the client
checkers then work on these few. Marks are boolean columns that start with `is_`; a mark means "check this", and the
checker of that kind decides.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.compaction import with_removable
from checkers.views.history import KEY, NEVER
from checkers.views.incarnations import may_be_same, undecided, with_ended
from checkers.views.keys import PARTITION
from checkers.views.mirroring import unclean_clusters
from checkers.views.send_lines import with_earlier

if TYPE_CHECKING:
    from checkers.views.tables import Tables

PLACE = ("cluster", "topic", "origin_topic", "partition", "era", "offset", "op_index")
MARKS = (
    *("is_lost", "is_unseen", "is_elsewhere", "is_overlaid", "is_unsent", "is_misplaced", "is_duplicate"),
    *("is_undone", "is_torn", "is_ack_back", "is_reordered"),
)
_LOGGED = ("producer_id", "producer_epoch", "sequence", "txn_end")
_SENT = ("op", "cluster", "topic", "origin_topic", "partition", "era", "offset", "outcome")


def suspects(t: Tables) -> DataFrame:
    """Rows that some checker must examine: the columns of `Tables.sends` (null for a value that was never sent), those
    of `final_state`, the marks, and

    - attempts: array of structs, every send of the value; others: all but this one;
    - places: array of structs: PLACE, readers, final, committed, stored, and as `Tables.logged_values` producer_id,
      producer_epoch, sequence and txn_end;
    - era: for a send that overlapped a deletion, the incarnation in which its value is seen at its acknowledged offset;
    - mine: places of possible copies of this send: all but those at which another send was acknowledged; own: of these,
      those on the cluster it was sent to; here: those of its own partition;
    - before_ack, before_seen: structs, the previous sends of the process; lost_form.
    """
    rows = _joined(t)
    rows = _marked(t, rows)
    rows = _ordered(t, rows)
    rows = _torn(t, rows) if t.facts.transactional else rows.withColumn("is_torn", F.lit(False))
    return t.cache(rows.where(reduce(Column.__or__, [F.col(m) for m in MARKS])))


def acknowledged_at(place: Column, send: Column) -> Column:
    """Whether a send was acknowledged at this place, in what may be the same incarnation. Both are structs."""
    same = [place[name] == send[name] for name in (*PARTITION, "offset")]
    return F.coalesce(reduce(Column.__and__, same) & may_be_same(place["era"], send["era"]), F.lit(False))


def may_hold(place: Column, send: Column) -> Column:
    """Whether a send may have a copy at a place where no send was acknowledged: on another cluster, or, for a send
    without an acknowledged offset, in its partition."""
    same = (place["origin_topic"] == send["origin_topic"]) & (
        F.coalesce(send["partition"], place["partition"]) == place["partition"]
    )
    return F.coalesce((place["cluster"] != send["cluster"]) | (send["offset"].isNull() & same), F.lit(False))


def undone(place: Column, send: Column, sends: Column) -> Column:
    """Whether the copy at a place can only be that of a send that was aborted or refused; `sends`: all of its value."""
    is_undone = send["outcome"].isin("aborted", "failed")
    others = F.exists(sends, lambda s: acknowledged_at(place, s))
    lawful = F.exists(sends, lambda s: ~s["outcome"].isin("aborted", "failed") & may_hold(place, s))
    return is_undone & (acknowledged_at(place, send) | (~others & ~lawful))


def _this() -> Column:
    """The row's own send, as a struct."""
    return F.struct(*_SENT)


def _joined(t: Tables) -> DataFrame:
    seen = t.near_seen.withColumn("origin_topic", t.canonical())
    place = F.struct(*PLACE, *("readers", "final", "committed", "stored"), *_LOGGED)
    places = seen.groupBy("value").agg(F.collect_list(place).alias("places"))
    rows = t.near_sends.join(places, "value", "full")
    if t.incarnation_windows is not None:
        rows = _decided_by_place(rows)
    rows = rows.join(F.broadcast(t.final_state), list(KEY), "left")
    log_seen = F.coalesce(F.col("look_ns") >= F.coalesce("done_ns", "invoke_ns"), F.lit(False))
    log_seen = log_seen & F.coalesce(F.col("log_start") == 0, F.lit(False))
    send = F.struct(*_SENT, "producer_id", "producer_epoch", "sequence", log_seen.alias("log_seen"))
    every = F.collect_list(F.when(F.col("op").isNotNull(), send)).over(Window.partitionBy("value"))
    rows = rows.withColumn("attempts", every)
    rows = with_removable(t, rows)
    rows = with_ended(t, rows).withColumnRenamed("ended", "deleted")
    rows = rows.withColumn("places", F.coalesce("places", F.array()))
    sent = F.col("op").isNotNull()
    others = F.filter("attempts", lambda s: (s["op"] != F.col("op")) | (s["cluster"] != F.col("cluster")))
    rows = rows.withColumn("others", others)
    mine = F.filter(
        "places", lambda p: acknowledged_at(p, _this()) | ~F.exists("others", lambda s: acknowledged_at(p, s))
    )
    rows = rows.withColumn("mine", F.when(sent, mine).otherwise(F.slice("places", 1, 0)))
    rows = rows.withColumn("own", F.filter("mine", lambda p: p["cluster"] == F.col("cluster")))
    here = F.filter(
        "own",
        lambda p: (
            (p["topic"] == F.col("topic"))
            & (F.coalesce(F.col("partition"), p["partition"]) == p["partition"])
            & (p["era"] == F.col("era"))
        ),
    )
    rows = rows.withColumn("here", here)
    if not t.transactional or not t.has("records"):
        return rows.withColumn("hidden", F.lit(False))
    # Acknowledged at an offset where the log holds it, aborted: it is there, though readers do not see it.
    aborted = t.near_logged.where("txn_end = 'ABORT'").select(*KEY, "offset", "value").distinct()
    rows = rows.join(aborted.withColumn("hidden", F.lit(True)), [*KEY, "offset", "value"], "left")
    return rows.fillna({"hidden": False})


def _decided_by_place(rows: DataFrame) -> DataFrame:
    """Decide `era` of sends that overlapped a deletion and whose value is seen, in one incarnation, where it may be."""

    def there(p: Column) -> Column:
        same = [p[name] == F.col(name) for name in PARTITION[:2]]
        same += [F.coalesce(p[name] == F.col(name), F.col(name).isNull()) for name in ("partition", "offset")]
        return ~undecided(p["era"]) & reduce(Column.__and__, same) & may_be_same(p["era"], F.col("era"))

    eras = F.transform(F.filter("places", there), lambda p: p["era"])
    return rows.withColumn("era", F.coalesce(F.when(undecided(), F.array_min(eras)), F.col("era")))


def _marked(t: Tables, rows: DataFrame) -> DataFrame:
    decided = F.filter("places", lambda p: ~undecided(p["era"]))
    partitions = F.transform(decided, lambda p: F.struct(p["cluster"], p["topic"], p["partition"], p["era"]))
    strayed = F.exists(
        "places",
        lambda p: (
            (p["origin_topic"] != F.col("origin_topic"))
            | F.coalesce(p["partition"] != F.col("partition"), F.lit(False))
        ),
    )
    sent = F.col("op").isNotNull()
    return rows.withColumns(
        {
            **_missing(t),
            **_not_as_acknowledged(),
            "is_unsent": ~sent,
            "is_misplaced": F.coalesce(sent & strayed, F.lit(False)),
            "is_duplicate": F.size(partitions) > F.size(F.array_distinct(partitions)),
            "is_undone": F.coalesce(sent & F.exists("places", lambda p: shown_undone(t, p)), F.lit(False)),
        }
    ).withColumn("is_lost", F.col("lost_form").isNotNull())


def _missing(t: Tables) -> dict[str, Column]:
    """lost_form: how an acknowledged record is known to be gone; is_unseen: it is not known whether it is."""
    false, col = F.lit(False), F.col
    read = F.exists("own", lambda p: p["readers"] > 0)
    # A writer may record final reads without marking their polls: then any poll may have been the final one.
    marked = F.coalesce(col("cluster").isin(*t.facts.final_polls), false)
    final = F.when(marked, F.exists("own", lambda p: p["final"])).otherwise(read)
    stored = F.exists("own", lambda p: p["stored"])
    done = F.coalesce("done_ns", "invoke_ns")

    def since(start: str) -> Column:
        """Whether the record is in a log that starts there; null offset: only if nothing can have expired."""
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
    due = _must() & ~col("removable")
    return {
        "lost_form": F.when(due, lost_form),
        "is_unseen": F.coalesce(due & ((unread & ~passed & _asked(t)) | unknowable), false),
    }


def _not_as_acknowledged() -> dict[str, Column]:
    """is_elsewhere: a record is in its partition, but not at its acknowledged offset; is_overlaid: it is nowhere on its
    cluster."""
    col = F.col
    here_at = F.exists("here", lambda p: p["offset"] == col("offset"))
    start = F.greatest(F.coalesce("log_start", F.lit(0)), F.coalesce("final_start", F.lit(0)))
    # An acknowledged offset is binding, however the operation or its transaction ended.
    answered = _must() | (col("outcome").isin("unknown", "aborted") & ~col("deleted"))
    answered = answered & (col("offset") >= start) & ~col("hidden")
    return {
        "is_elsewhere": F.coalesce(answered & ~here_at & (F.size("here") > 0), F.lit(False)),
        "is_overlaid": F.coalesce(answered & (F.size("own") == 0), F.lit(False)),
    }


def _must() -> Column:
    """Whether the record must be there."""
    return F.col("outcome").isin("acked", "committed") & ~F.col("deleted")


def _asked(t: Tables) -> Column:
    """Whether the record must have been looked for. An imported history may observe a topic on one cluster only,
    because it only shows the mirror; then nothing is required of it on the others."""
    if not t.stored.imported or not t.observed:
        return F.lit(True)
    there = [f"{cluster}\t{topic}" for cluster, topic in sorted(t.observed)]
    origins = t.spark.createDataFrame(sorted(t.observed), "cluster string, topic string").select(
        t.canonical().alias("o")
    )
    shown = sorted({row["o"] for row in origins.collect()})
    return F.concat_ws("\t", "cluster", "topic").isin(*there) | ~F.col("origin_topic").isin(*shown)


def shown_undone(t: Tables, place: Column) -> Column:
    """Whether a place shows, or its log will show to read_committed readers, an aborted or failed value: the row's own
    send, or any copy that the log of its cluster holds aborted and a read_committed poll returned. Rows as
    `suspects`."""
    aborted = F.col("outcome") == "aborted"
    committed = place["stored"] & (place["txn_end"] == "COMMIT")
    by_client = F.when(aborted, place["committed"] | committed).otherwise((place["readers"] > 0) | place["stored"])
    by_client = by_client & undone(place, _this(), F.col("attempts"))
    by_log = place["committed"] & (place["txn_end"] == "ABORT")
    # There a committed record may have lost its marker, and got another one.
    rewritten = unclean_clusters(t) | {cluster for cluster, _, _ in t.failbacks}
    by_log = by_log & ~place["cluster"].isin(*sorted(rewritten)) if rewritten else by_log
    return F.coalesce(by_client, F.lit(False)) | F.coalesce(by_log, F.lit(False))


def _ordered(t: Tables, rows: DataFrame) -> DataFrame:
    """Compare each send with the earlier sends of its process to its partition."""
    col = F.col
    acked = col("outcome").isin("acked", "committed")
    known = acked & col("offset").isNotNull()
    there = F.filter("here", lambda p: F.coalesce(p["txn_end"] != "ABORT", F.lit(True)))
    at = F.transform(there, lambda p: p["offset"])
    first = F.when(F.array_contains(at, col("offset")), col("offset")).otherwise(F.array_min(at))
    # A record that was read and then lost does not affect the order of those that stayed.
    rows = rows.withColumn("first_seen", F.when(acked & col("lost_form").isNull(), first))
    rows = with_earlier(t, rows)
    same = col("before_seen.client").eqNullSafe(col("client"))
    return rows.withColumns(
        {
            "is_ack_back": F.coalesce(known & (col("offset") < col("before_ack.offset")), F.lit(False)),
            "is_reordered": F.coalesce(same & (col("first_seen") < col("before_seen.offset")), F.lit(False)),
        }
    )


def _torn(t: Tables, rows: DataFrame) -> DataFrame:
    """Mark records of a transaction that read_committed readers skipped although they were shown another, and those
    of an undecided one that the log does not hold although it, or a reader, shows another one committed."""
    col, false = F.col, F.lit(False)
    whole = F.when(col("f") == "txn", F.concat(F.lit("op "), col("op").cast("string")))
    key = F.coalesce("txn", whole, F.concat(F.lit("none "), col("value")))
    visible = F.exists("own", lambda p: p["committed"])
    ended = F.exists("own", lambda p: F.coalesce(p["stored"] & (p["txn_end"] == "COMMIT"), false))
    stored = F.exists("own", lambda p: p["stored"])
    known = F.coalesce(col("offset"), F.array_min(F.transform("here", lambda p: p["offset"])))
    # Without any commit request, its visible records were shown too early (`precommitted_read`).
    undecided = (col("outcome") == "unknown") & F.coalesce(col("commit_asked") != NEVER, F.lit(True))
    appended = F.col("offset").isNotNull() | (F.size("own") > 0)
    there = (col("outcome") == "committed") | (undecided & appended)
    passed = (col("rc_end") > known) & (col("rc_start") <= known)
    if not t.has("final_reads"):
        passed = (col("max_committed") > known) & ~stored & F.coalesce(known >= col("log_start"), F.lit(True))
    by_log = F.coalesce(col("look_ns") >= F.coalesce("done_ns", "invoke_ns"), false)
    gone = undecided & by_log & F.coalesce(col("offset") >= col("log_start"), false) & ~stored
    in_txn = col("txn").isNotNull() | whole.isNotNull()
    window = Window.partitionBy("cluster", key)
    shown = F.max(in_txn & visible).over(window)
    shown_at_all = F.max(in_txn & (visible | ended)).over(window)
    torn = in_txn & there & ~visible & ((shown & passed) | (shown_at_all & F.coalesce(gone, false)))
    rows = rows.withColumn("is_torn", F.coalesce(torn & ~col("deleted") & ~col("removable"), false))
    return _but_for_discarded_markers(t, rows)


def _but_for_discarded_markers(t: Tables, rows: DataFrame) -> DataFrame:
    """Unmark records below the cut of a later failback that the log holds aborted by a marker at or above it: theirs
    was discarded, and the stop of the mirror aborted what it had not got whole."""
    if not t.failbacks or not t.has("records"):
        return rows
    spans = [(*place, list(each)) for place, each in t.failbacks.items()]
    back = t.spark.createDataFrame(
        spans, "cluster string, topic string, partition int, _back array<struct<at: bigint, cut: bigint>>"
    )
    ended = t.truth_log.where("control_type is null and txn_end = 'ABORT'")
    ended = ended.join(F.broadcast(back), list(PARTITION)).select(*PARTITION, "offset", "_back", "txn_end_at")
    rows = rows.join(ended.dropDuplicates([*PARTITION, "offset"]), [*PARTITION, "offset"], "left")
    written = F.coalesce("done_ns", "invoke_ns")
    discarded = F.exists("_back", lambda b: (written < b["at"]) & (F.col("txn_end_at") >= b["cut"]))
    kept = F.col("is_torn") & ~F.coalesce(discarded, F.lit(False))
    return rows.withColumn("is_torn", kept).drop("_back", "txn_end_at")
