"""The logs of replicas in their last snapshots, and which replica's log is the authoritative one of its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views import topic_ids
from checkers.views.completeness import is_listed
from checkers.views.keys import PARTITION, REPLICA

if TYPE_CHECKING:
    from checkers.views.tables import Tables


def last_snapshots(t: Tables) -> DataFrame:
    """The last snapshot of each replica whose log is complete: cluster, topic, partition, broker, look, time_ns,
    log_start, log_end, high_watermark, last_stable, leader, leader_epoch, isr, replicas, mirror_of, era, origin_topic.

    In a Shatterproof run that is the cluster's last snapshot (a replica that was dead then has none); in an imported
    history each replica's own last. For a recreated topic only those of its newest incarnation, which is the column
    `era`.
    """
    ends = t.table("log_ends").where("broker is not null and log_end is not null")
    ends = ends.withColumn("look", F.coalesce("look", F.lit(0)))
    scope = REPLICA if t.stored.imported else ("cluster",)
    newest = Window.partitionBy(*scope)
    last = ends.withColumn("_last", F.max("look").over(newest)).where("look = _last").drop("_last")
    order = Window.partitionBy(*REPLICA).orderBy(F.desc("time_ns"), F.desc("log_end"))
    last = last.withColumn("_n", F.row_number().over(order)).where("_n = 1").drop("_n")
    if t.expected is not None:
        incomplete = t.expected.where("not complete").select(*REPLICA)
        last = last.join(F.broadcast(incomplete), list(REPLICA), "left_anti")
    last = topic_ids.of_the_newest_incarnation(t, last)
    return t.cache(last.withColumn("origin_topic", t.canonical()))


def at_last_snapshot(t: Tables, frame: DataFrame) -> DataFrame:
    """The rows of a table of logs (records, batches) in each replica's last snapshot, with what that says of it."""
    keep = (*REPLICA, "look", "log_start", "log_end", "high_watermark", "last_stable", "origin_topic")
    snapshots = F.broadcast(t.replicas.select(*keep, F.col("time_ns").alias("look_ns")))
    frame = frame.withColumn("look", F.coalesce("look", F.lit(0)))
    return frame.join(snapshots, [*REPLICA, "look"])


def records(t: Tables, *, only: DataFrame | None = None) -> DataFrame:
    """Every record (control records included) of every replica in its last snapshot: the columns of `records`,
    `origin_topic`, the replica's log_start, log_end, high_watermark, last_stable, look_ns, and of data records
    `in_txn`: whether it belongs to a transaction; `txn_end`: the control type of the first marker of its producer id
    after it in that log (null outside transactions and for an open one); `txn_end_at`: its offset; `aborted`: whether
    it is ABORT. only: the replicas to keep.
    """
    log = at_last_snapshot(t, t.table("records"))
    if only is not None:
        log = log.join(F.broadcast(only.select(*REPLICA)), list(REPLICA))
    return _with_txn_end(t, log)


def in_transaction() -> Column:
    """Whether a record of a log is a data record of a transaction."""
    # Brokers keep no state for ids below -1: records with such ids are not held back.
    data = F.col("control_type").isNull() & (F.col("producer_id") >= -1)
    return data & (F.coalesce("transactional", F.lit(False)) | F.col("txn").isNotNull())


def _with_txn_end(t: Tables, log: DataFrame) -> DataFrame:
    if not t.has_markers:
        none = {"txn_end": F.lit(None).cast("string"), "txn_end_at": F.lit(None).cast("bigint")}
        return log.withColumns({"in_txn": in_transaction(), **none, "aborted": F.lit(False)})
    # Not by epoch: with transaction version 2 a marker carries the epoch after that of its records.
    # Backwards: Spark takes quadratic time for a frame that ends after the current row.
    # An imported history may name a transaction and no producer id.
    named = F.when(F.col("producer_id") == -1, F.col("txn"))
    later = Window.partitionBy(*REPLICA, "producer_id", named).orderBy(F.desc("offset"))
    later = later.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marker = F.when(F.col("control_type").isin("COMMIT", "ABORT"), F.struct("control_type", "offset"))
    log = log.withColumn("in_txn", in_transaction())
    log = log.withColumn("_end", F.when(F.col("in_txn"), F.last(marker, ignorenulls=True).over(later)))
    log = log.withColumns({"txn_end": F.col("_end.control_type"), "txn_end_at": F.col("_end.offset")}).drop("_end")
    return log.withColumn("aborted", F.coalesce(F.col("txn_end") == "ABORT", F.lit(False)))


def authoritative(t: Tables) -> DataFrame:
    """The replica with the authoritative log, one row per partition: the columns of `last_snapshots`.

    The known leader, if its log was stored; otherwise, or where no leader is known, the replica whose last batch has
    the greatest leader epoch, then the longest log: the order in which Kafka's own truncation would decide. Where the
    leader is known and its log is incomplete, only another in-sync replica can replace it. A mirror's process that
    leads partitions has no log of its own.
    """
    epochs = (
        t.table("records")
        .withColumn("look", F.coalesce("look", F.lit(0)))
        .groupBy(*REPLICA, "look")
        .agg(F.max("leader_epoch").alias("_epoch"), F.count("*").alias("_records"))
    )
    stored = (F.coalesce("_records", F.lit(0)) > 0) | (F.col("log_end") == F.col("log_start"))
    leads = F.coalesce(F.col("leader") == F.col("broker"), F.lit(False))
    order = Window.partitionBy(*PARTITION).orderBy(
        stored.desc(), leads.desc(), F.col("_epoch").desc_nulls_last(), F.desc("log_end"), F.asc("broker")
    )
    ranked = t.replicas.join(epochs, [*REPLICA, "look"], "left").withColumn("_n", F.row_number().over(order))
    first = ranked.where("_n = 1")
    if t.expected is None:
        return t.cache(first.drop("_n", "_epoch", "_records"))
    first = first.where(stored | is_listed(t, "broker")).drop("_n", "_epoch", "_records")
    incomplete = t.expected.where("not complete").select(*PARTITION, F.col("broker").alias("leader"))
    led = first.join(F.broadcast(incomplete), [*PARTITION, "leader"], "left_semi")
    lagging = led.where(~F.coalesce(F.array_contains("isr", F.col("broker")), F.lit(False))).select(*PARTITION)
    return t.cache(first.join(F.broadcast(lagging), list(PARTITION), "left_anti"))
