"""Every value of a mirrored partition with its copies on both sides: the one shuffle that all record checkers use.

A mirror that renumbers (MirrorMaker 2) is judged by the unique value of each record; so is one that preserves offsets,
where `checkers.mirror.mirror_identity` then judges the offsets. Tombstones (no value) are therefore not included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.compaction import compacted_pairs, removed_copies
from checkers.views.incarnations import with_ended
from checkers.views.mirroring import NEVER, PAIR, keeps_offsets, mirrors_aborted, scopes
from checkers.views.replica_logs import in_transaction

if TYPE_CHECKING:
    from checkers.views.tables import Tables

VALUE = (*PAIR, "value")


def mirrored_values(t: Tables) -> DataFrame | None:
    """One row per value: PAIR, value, key, and

    - a_all, a_visible: copies on the source, all and those neither aborted nor undecided; a_aborted: one is aborted;
    - b_all, b_alive, b_visible: copies on the destination: all, those not aborted, those visible to read_committed;
    - a_first, a_last, a_any: first and last offset of the copies that had to be mirrored, first of any; b_first,
      b_last: of the copies that count;
    - expected_copies, mirrored_copies: how many copies had to be mirrored, and how many were.

    None without a mirrored partition whose logs are known.
    """
    return t.once("mirrored_values", _mirrored_values)


def _mirrored_values(t: Tables) -> DataFrame | None:
    where = scopes(t)
    if where is None or not t.has("records"):
        return None
    rows = _stored(t)
    for source, destination in t.mirror_pairs:
        pair = {"source": F.lit(source), "destination": F.lit(destination), "side": F.lit("a")}
        rows = rows.unionByName(_acknowledged(t, source, where).withColumns(pair))
    known = where.select(*PAIR)
    return _copies(t, rows.join(F.broadcast(known), list(PAIR), "left_semi"))


def _union(frames: list[DataFrame]) -> DataFrame:
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame)
    return found


def _stored(t: Tables) -> DataFrame:
    """Data records of the logs that are still there and below the high watermark, for each side of each pair that
    their cluster is."""
    log = t.truth_log.where("control_type is null and value is not null")
    log = log.where("offset >= coalesce(log_start, 0) and offset < coalesce(high_watermark, log_end)")
    state = F.when(F.col("aborted"), "aborted").when(in_transaction() & F.col("txn_end").isNull(), "open")
    log = log.withColumn("state", state.otherwise("visible"))
    roles = [(c, s, d, side) for s, d in t.mirror_pairs for c, side in ((s, "a"), (d, "b"))]
    which = t.spark.createDataFrame(roles, "cluster string, source string, destination string, side string")
    columns = ("origin_topic", "partition", "value", "key", "offset", "state", "source", "destination", "side")
    return log.join(F.broadcast(which), "cluster").select(*columns)


def _acknowledged(t: Tables, cluster: str, where: DataFrame) -> DataFrame:
    """Acknowledged sends replace the log of partitions whose log on the source was not captured."""
    unknown = where.where((F.col("source") == cluster) & ~F.col("from_log")).select("origin_topic", "partition")
    sent = t.sends.where((F.col("cluster") == cluster) & F.col("outcome").isin("acked", "committed"))
    # Records deleted with their topic need not be mirrored any more.
    sent = with_ended(t, sent.where("offset is not null")).where("not ended")
    sent = sent.join(F.broadcast(unknown), ["origin_topic", "partition"], "left_semi")
    return sent.select("origin_topic", "partition", "value", "key", "offset", F.lit("visible").alias("state"))


def _copies(t: Tables, rows: DataFrame) -> DataFrame:
    a, b = F.col("side") == "a", F.col("side") == "b"
    visible, aborted = F.col("state") == "visible", F.col("state") == "aborted"
    due = a if mirrors_aborted(t) else a & visible
    counts = b if keeps_offsets(t) else b & ~aborted

    def count(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    def offset(condition: Column) -> Column:
        return F.when(condition, F.col("offset"))

    return rows.groupBy(*VALUE).agg(
        F.max(F.when(a, F.col("key"))).alias("key"),
        count(a).alias("a_all"),
        count(a & visible).alias("a_visible"),
        F.max(a & aborted).alias("a_aborted"),
        count(b).alias("b_all"),
        count(b & ~aborted).alias("b_alive"),
        count(b & visible).alias("b_visible"),
        count(due).alias("expected_copies"),
        count(counts).alias("mirrored_copies"),
        F.min(offset(a)).alias("a_any"),
        F.min(offset(due)).alias("a_first"),
        F.max(offset(due)).alias("a_last"),
        F.min(offset(counts)).alias("b_first"),
        F.max(offset(counts)).alias("b_last"),
    )


def bounds(t: Tables) -> DataFrame | None:
    """`scopes` with `bound`: every record of the source below it must be on the destination; and first_mirrored,
    last_mirrored: least and greatest source offset of the records that are.

    The recorded cut; everything where the run waited for it; else everything before the last mirrored record.
    """
    return t.once("bounds", _bounds)


def _bounds(t: Tables) -> DataFrame | None:
    where, values = scopes(t), mirrored_values(t)
    if where is None or values is None:
        return None
    seen = values.where("expected_copies > 0 and mirrored_copies > 0").groupBy(*PAIR)
    reach = seen.agg(F.min("a_first").alias("first_mirrored"), F.max("a_first").alias("last_mirrored"))
    cut = F.col("cut_source")
    if keeps_offsets(t):
        cut = F.least(cut, F.coalesce("b_end", cut))
    bound = (
        F.when(F.col("stopped") & F.col("cut_source").isNotNull(), cut)
        .when(F.col("all_due"), F.lit(NEVER))
        .otherwise(F.coalesce(F.col("last_mirrored") + 1, F.lit(0)))
    )
    return where.join(reach, list(PAIR), "left").withColumn("bound", bound)


def explained_copies(t: Tables) -> DataFrame | None:
    """Values (VALUE) with `copies`: how many of their first copies on the destination stem from records that the source
    itself lost or let expire.

    If a producer sent a value again, both records may have been in the source's log, and the first has expired there:
    the sends show how many records the source can have had before its log start. A cleaner may have removed it, too, if
    the source has room for it among the offsets that it no longer holds.
    If a producer sent a value, lost it in an unclean election and sent it again, it is once in the log that the source
    kept, and the mirror may have copied both. On the destination such a first copy is among records that the source no
    longer holds, with no record in between that it does hold.
    None when there is nothing of the kind.
    """
    return t.once("explained_copies", _explained)


def _explained(t: Tables) -> DataFrame | None:
    values, where = mirrored_values(t), scopes(t)
    if values is None or where is None:
        return None
    several = values.where("expected_copies > 0 and mirrored_copies > expected_copies")
    sent = t.sends.select(F.col("cluster").alias("source"), "value").distinct()
    gone = values.where("a_all = 0 and mirrored_copies > 0").join(sent, ["source", "value"], "left_semi")
    topics = compacted_pairs(t)
    if topics is not None:  # there a cleaner has removed it
        gone = gone.join(F.broadcast(topics.where("on_source")), list(PAIR[:3]), "left_anti")
    if several.isEmpty():
        return None
    expired = _expired(t, several, where)
    removed = removed_copies(t, several, where)
    expired = expired if removed is None else expired.unionByName(removed)
    if gone.isEmpty():
        return expired.groupBy(*VALUE).agg(F.max("copies").alias("copies"))
    rows = _union(
        [
            several.select(*VALUE, "b_first", F.lit("several").alias("what")),
            gone.select(*VALUE, "b_first", F.lit("gone").alias("what")),
            values.where("expected_copies > 0 and mirrored_copies = expected_copies").select(
                *VALUE, "b_first", F.lit("held").alias("what")
            ),
        ]
    )
    before = Window.partitionBy(*PAIR).orderBy("b_first").rowsBetween(Window.unboundedPreceding, 0)
    rows = rows.withColumn("island", F.count(F.when(F.col("what") == "held", 1)).over(before))
    within = Window.partitionBy(*PAIR, "island")
    rows = rows.withColumn("with_gone", F.max(F.col("what") == "gone").over(within))
    lost = rows.where("what = 'several' and with_gone").select(*VALUE, F.lit(1).cast("bigint").alias("copies"))
    return lost.unionByName(expired).groupBy(*VALUE).agg(F.max("copies").alias("copies"))


def _expired(t: Tables, several: DataFrame, where: DataFrame) -> DataFrame:
    """For these values, how many records the source had, or may have had, before its log start: sends with such an
    acknowledged offset, and those of unknown outcome without one."""
    sent = with_ended(t, t.sends.where("outcome in ('acked', 'committed', 'unknown')")).where("not ended")
    sent = sent.select(F.col("cluster").alias("source"), *PAIR[2:], "value", "op", "offset", "outcome")
    started = F.broadcast(where.select(*PAIR, "a_start").where("a_start > 0"))
    early = several.select(*VALUE).join(started, list(PAIR)).join(sent, ["source", *PAIR[2:], "value"])
    early = early.where("offset < a_start or (offset is null and outcome = 'unknown')")
    return early.groupBy(*VALUE).agg(F.countDistinct(F.coalesce("offset", -1 - F.col("op"))).alias("copies"))
