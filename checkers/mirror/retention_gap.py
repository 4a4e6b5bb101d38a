"""`retention_gap`: records expired on the source before the mirror had copied them, without a report.

Proves: acknowledged records below the source's log start are not on the destination, and the mirror did not report the
gap: by an error of that partition that gives the reason (expired data, the log start, an offset out of range) and says
which offsets are missing, or by being FAILED in the end (`views.reports`). Expiry is legal; silence is not. For
offset-preserving mirrors snapshots of both logs show the gap, too: one in which the source's log start is above the
destination's log end.

Cannot see: records without an acknowledgement; in runs whose destination expires data as well, what was before its
own first record; what a cleaner may have removed from a compacted topic; a report that went only to the mirror's log.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence
from checkers.views.compaction import with_removable
from checkers.views.incarnations import undecided, with_ended
from checkers.views.mirrored_values import VALUE, bounds, mirrored_values
from checkers.views.mirroring import PAIR, keeps_offsets
from checkers.views.reports import EXPIRED, reported
from checkers.views.tables import Tables
from checkers.views.topic_ids import with_era_of_log

KIND = AnomalyKind(
    name="retention_gap",
    after_healing=True,
    severity=Severity.S1,
    violation="skipped expired records without a report",
    section=2,
    what="when the source's log start passes the destination's end, the gap is reported",
    limitations="records without an acknowledgement; reports that went only to the mirror's own log",
    sources=("apache/kafka#20515", "apache/kafka#22248", "apache/kafka#23091", "KIP-1279"),
    requires=("records", "log_ends"),
)


def check(t: Tables) -> DataFrame | None:
    """One anomaly per partition, at the first missing offset of the source."""
    if t.table("log_ends").where("log_start > 0").isEmpty():
        return t.no_anomalies  # nothing has expired
    values, where = mirrored_values(t), bounds(t)
    if values is None or where is None:
        return None
    missing = _expired_unseen(t, values, where)
    gaps = _seen_in_snapshots(t, where) if keeps_offsets(t) else None
    if gaps is not None:  # records above the cut, or above all that was mirrored, were not skipped
        gaps = gaps.join(F.broadcast(where.select(*PAIR, "bound")), list(PAIR)).where("first < bound").drop("bound")
    rows = missing if gaps is None else missing.unionByName(gaps)
    one = rows.groupBy(*PAIR).agg(
        F.min("first").alias("offset"),
        F.max("last").alias("last"),
        F.max("count").alias("count"),
        F.min("value").alias("value"),
        F.min("done_index").alias("done_index"),
    )
    silent = one.join(F.broadcast(_reports(t, where)), ["destination", *PAIR[2:]], "left")
    names = where.select(*PAIR, "source_topic", "destination_topic", "a_start")
    silent = silent.join(F.broadcast(names), list(PAIR)).where(~F.coalesce("failed", _told(), F.lit(False)))
    return anomalies(
        silent,
        "retention_gap",
        cluster="destination",
        topic="destination_topic",
        ops=op_list("done_index"),
        rank=-F.coalesce(F.col("count"), F.lit(0)),
        explain=sentence(
            "offsets %s to %s of %s-%s expired on %s (log start %s) before they were mirrored to %s, and the mirror"
            " reported nothing; %s acknowledged records are gone",
            *("offset", "last", "source_topic", "partition", "source", "a_start", "destination", "count"),
        ),
    )


def _reports(t: Tables, where: DataFrame) -> DataFrame:
    """What the mirror said of expired data: destination, origin_topic, partition, reports (array of structs), failed
    (true: the partition is FAILED in the end, and nothing is skipped; else null)."""
    said = F.struct("low", "high", F.col("count").alias("records"), "offsets")
    rows = reported(t, EXPIRED).groupBy(F.col("cluster").alias("destination"), *PAIR[2:])
    own = rows.agg(F.collect_set(said).alias("reports"))
    failed = where.where("last_state = 'FAILED'").select("destination", *PAIR[2:], F.lit(True).alias("failed"))
    return own.join(failed, ["destination", *PAIR[2:]], "full")


def _told() -> Column:
    """Whether the reports say which offsets are missing: as ranges from the first to the last, by their number, or by
    the offset that had expired or where the source's log starts. Of a gap that only snapshots show, the ends are not
    known exactly: there a range that begins or ends in it is enough."""
    first, last, exact = F.col("offset"), F.col("last"), F.col("count").isNotNull()
    low = F.flatten(F.transform("reports", lambda r: r["low"]))
    high = F.flatten(F.transform("reports", lambda r: r["high"]))
    whole = (F.array_min(low) <= first) & (F.array_max(high) >= last)
    touched = (F.array_min(low) <= last) & (F.array_max(high) >= first)
    bare = F.filter("reports", lambda r: F.size(r["low"]) == 0)
    by_count = F.exists(bare, lambda r: F.coalesce(r["records"] >= F.col("count"), F.lit(False)))
    by_offset = F.exists(bare, lambda r: F.exists(r["offsets"], lambda n: n <= F.col("a_start")))
    by_range = F.coalesce(F.when(exact, whole).otherwise(touched), F.lit(False))
    return by_range | F.coalesce(by_count, F.lit(False)) | F.coalesce(by_offset, F.lit(False))


def _expired_unseen(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame:
    """Acknowledged records below the source's log start that the destination never had: PAIR, first, last, count, …"""
    sent = t.sends.where("offset is not null and outcome in ('acked', 'committed')")
    if t.incarnation_windows is not None:  # a recreated topic has other offsets
        newest = Window.partitionBy("cluster", "topic")
        sent = sent.where(~undecided()).withColumn("newest", F.max("era").over(newest)).where("era = newest")
    sent = with_removable(t, sent, anywhere=True).where("not removable")
    sent = sent.select(F.col("cluster").alias("source"), *PAIR[2:], "value", "offset", "done_index")
    gone = sent.join(F.broadcast(where), ["source", *PAIR[2:]])
    gone = gone.where("from_log and b_end is not null and offset < a_start and offset < bound")
    there = values.where("b_all > 0").select(*VALUE, F.lit(True).alias("there"))
    gone = gone.join(there, list(VALUE), "left")
    oldest = F.min(F.when(F.col("there"), F.col("offset"))).over(Window.partitionBy(*PAIR))
    gone = gone.withColumn("first_there", oldest).where("there is null")
    # A destination that also expires data may have had them, unless it still holds older ones.
    gone = gone.where("b_start = 0 or offset >= coalesce(first_there, first_mirrored, a_start)")
    return gone.groupBy(*PAIR).agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count("*").alias("count"),
        F.min_by("value", "offset").alias("value"),
        F.min_by("done_index", "offset").alias("done_index"),
    )


def _seen_in_snapshots(t: Tables, where: DataFrame) -> DataFrame:
    """Gaps that snapshots of both logs show: PAIR, first, last (offsets), count (null), value, done_index (null)."""
    snapshots = with_ended(t, with_era_of_log(t, t.table("log_ends"))).where("not ended")
    snapshots = snapshots.withColumn("origin_topic", t.canonical())
    snapshots = snapshots.where("broker is null or leader is null or broker = leader or broker < 0")
    keys = where.where("from_log").select(*PAIR)
    a = snapshots.join(F.broadcast(keys), (F.col("cluster") == keys.source) & _same(snapshots, keys)).select(
        *(keys[c] for c in PAIR),
        "time_ns",
        F.col("log_start").alias("a_start"),
        F.lit(None).cast("long").alias("b_end"),
    )
    b = snapshots.join(F.broadcast(keys), (F.col("cluster") == keys.destination) & _same(snapshots, keys)).select(
        *(keys[c] for c in PAIR), "time_ns", F.lit(None).cast("long").alias("a_start"), F.col("log_end").alias("b_end")
    )
    so_far = Window.partitionBy(*PAIR).orderBy("time_ns").rowsBetween(Window.unboundedPreceding, 0)
    rows = a.unionByName(b).withColumns(
        {"a": F.max("a_start").over(so_far), "b": F.last("b_end", ignorenulls=True).over(so_far)}
    )
    rows = rows.where("a > b").groupBy(*PAIR, "b").agg(F.max("a").alias("a"))
    return (
        _never_there(t, rows)
        .groupBy(*PAIR)
        .agg(F.min("b").alias("first"), (F.max("a") - 1).alias("last"))
        .withColumns({"count": F.lit(None).cast("long"), "value": F.lit(None).cast("string")})
        .withColumn("done_index", F.lit(None).cast("long"))
    )


def _never_there(t: Tables, rows: DataFrame) -> DataFrame:
    """Leave out gaps at whose start (`b`) the destination holds a batch: it was mirrored after the snapshot, in
    time."""
    held = t.log_batches.select(
        F.col("cluster").alias("destination"),
        *PAIR[2:],
        F.col("base_offset").alias("low"),
        F.col("last_offset").alias("high"),
    )
    held = held.join(F.broadcast(rows.select(*PAIR[1:]).distinct()), list(PAIR[1:]), "left_semi")
    same = [rows[c] == held[c] for c in PAIR[1:]]
    return rows.join(held, [*same, rows["b"].between(held["low"], held["high"])], "left_anti")


def _same(snapshots: DataFrame, keys: DataFrame) -> Column:
    return (snapshots.origin_topic == keys.origin_topic) & (snapshots.partition == keys.partition)


CHECKER = Checker(name="retention_gap", kinds=(KIND,), check=check)
