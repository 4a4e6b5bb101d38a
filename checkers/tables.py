"""Shared, cached views over a run's stored tables: what every checker starts from.

All are DataFrame expressions and sparse in offsets: a log that starts at 10^12 costs what one that starts at 0
costs. Each view is built at most once per run. Clusters are letters; `topic` is always the name on that cluster,
and `origin_topic` the name on A (`canonical`), so that two clusters can be joined.
"""

from __future__ import annotations

from functools import cached_property, reduce
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from checkers.stored import Stored, open_stored
from harness.history.runfile import RunMeta

PARTITION = ("cluster", "topic", "partition")
REPLICA = ("cluster", "topic", "partition", "broker")


class Tables:
    """The views of one run. Give it to a checker's `find`."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.spark: SparkSession = stored.spark
        self.meta: RunMeta = stored.meta
        self._cached: list[DataFrame] = []

    @classmethod
    def open(cls, path: Path, spark: SparkSession) -> Tables:
        """Open a run folder. Raises HistoryError."""
        return cls(open_stored(path, spark))

    # -- stored tables ------------------------------------------------------------------------------------------

    def has(self, table: str) -> bool:
        """Whether a stored table is there."""
        return self.stored.has(table)

    def table(self, name: str) -> DataFrame:
        """A stored table, all columns of the schema; empty when it is missing."""
        return self.stored.table(name)

    def cache(self, frame: DataFrame) -> DataFrame:
        """Keep a view for several checkers; freed by `close`."""
        frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.append(frame)
        return frame

    def close(self) -> None:
        """Free what was cached."""
        for frame in self._cached:
            frame.unpersist()
        self._cached.clear()

    # -- topics -------------------------------------------------------------------------------------------------

    def canonical(self, cluster: Column | str = "cluster", topic: Column | str = "topic") -> Column:
        """The topic's name on A, of a topic named `topic` on `cluster`."""
        c = F.col(cluster) if isinstance(cluster, str) else cluster
        name = F.col(topic) if isinstance(topic, str) else topic
        maps = {"B": dict(self.meta.topic_map), **{k: dict(v) for k, v in self.meta.topic_maps.items()}}
        pairs = [(k, there, here) for k, m in maps.items() for here, there in m.items() if here != there]
        if not pairs:
            return name
        entries = [F.lit(x) for k, there, here in pairs for x in (f"{k}\t{there}", here)]
        return F.coalesce(F.create_map(*entries)[F.concat_ws("\t", c, name)], name)

    @cached_property
    def mirror_pairs(self) -> tuple[tuple[str, str], ...]:
        """(source, destination) letters, in the order of the chain: A→B, then B→C when there is a C."""
        letters = set(self.meta.clusters)
        if not letters:
            looks = self.table("log_ends").select("cluster").union(self.table("ops").select("cluster"))
            letters = {r[0] for r in looks.distinct().collect() if r[0] in ("A", "B", "C")}
        return tuple((s, d) for s, d in (("A", "B"), ("B", "C")) if s in letters and d in letters)

    # -- the evidence: replicas' logs ---------------------------------------------------------------------------

    @cached_property
    def replicas(self) -> DataFrame:
        """The last look at each replica: cluster, topic, partition, broker, look, time_ns, log_start, log_end,
        high_watermark, last_stable, leader, leader_epoch, isr, replicas, mirror_of, origin_topic.

        In a run of ours the last look is the cluster's last (a replica that was dead then has none); in an
        imported history each replica's own last.
        """
        ends = self.table("log_ends").where("broker is not null and log_end is not null")
        ends = ends.withColumn("look", F.coalesce("look", F.lit(0)))
        scope = REPLICA if self.stored.imported else ("cluster",)
        newest = Window.partitionBy(*scope)
        last = ends.withColumn("_last", F.max("look").over(newest)).where("look = _last").drop("_last")
        order = Window.partitionBy(*REPLICA).orderBy(F.desc("time_ns"), F.desc("log_end"))
        last = last.withColumn("_n", F.row_number().over(order)).where("_n = 1").drop("_n")
        return self.cache(last.withColumn("origin_topic", self.canonical()))

    @cached_property
    def log(self) -> DataFrame:
        """Every record (control records included) of every replica at its last look: the columns of `records`,
        `origin_topic`, the replica's log_start, log_end, high_watermark, last_stable, and of data records
        `txn_end`: the control type of the first marker of its producer id and epoch behind it in that log (null
        outside transactions and for an open one), and `aborted`: whether that is ABORT.
        """
        log = self._at_last_look(self.table("records"))
        if log.where("control_type in ('COMMIT', 'ABORT')").limit(1).count() == 0:
            return log.withColumn("txn_end", F.lit(None).cast("string")).withColumn("aborted", F.lit(False))
        ahead = Window.partitionBy(*REPLICA, "producer_id", "producer_epoch").orderBy("offset")
        ahead = ahead.rowsBetween(Window.currentRow, Window.unboundedFollowing)
        marker = F.when(F.col("control_type").isin("COMMIT", "ABORT"), F.col("control_type"))
        in_txn = F.col("control_type").isNull() & (F.col("producer_id") >= 0)
        in_txn = in_txn & (F.coalesce("transactional", F.lit(False)) | F.col("txn").isNotNull())
        log = log.withColumn("txn_end", F.when(in_txn, F.first(marker, ignorenulls=True).over(ahead)))
        return log.withColumn("aborted", F.coalesce(F.col("txn_end") == "ABORT", F.lit(False)))

    @cached_property
    def log_batches(self) -> DataFrame:
        """Every batch of every replica at its last look: the columns of `batches`, `origin_topic`, and the replica's
        log_start, log_end, high_watermark, last_stable."""
        return self._at_last_look(self.table("batches"))

    def _at_last_look(self, frame: DataFrame) -> DataFrame:
        keep = (*REPLICA, "look", "log_start", "log_end", "high_watermark", "last_stable", "origin_topic")
        looks = F.broadcast(self.replicas.select(*keep))
        frame = frame.withColumn("look", F.coalesce("look", F.lit(0)))
        return frame.join(looks, [*REPLICA, "look"])

    @cached_property
    def truth(self) -> DataFrame:
        """The replica whose log counts, one row per partition: the columns of `replicas`.

        The known leader; where no leader is known, the replica whose last batch has the greatest leader epoch, then
        the longest log: the order in which Kafka's own truncation would settle it.
        """
        epochs = (
            self.table("records")
            .withColumn("look", F.coalesce("look", F.lit(0)))
            .groupBy(*REPLICA, "look")
            .agg(F.max("leader_epoch").alias("_epoch"))
        )
        leads = F.coalesce(F.col("leader") == F.col("broker"), F.lit(False))
        order = Window.partitionBy(*PARTITION).orderBy(
            leads.desc(), F.col("_epoch").desc_nulls_last(), F.desc("log_end"), F.asc("broker")
        )
        ranked = self.replicas.join(epochs, [*REPLICA, "look"], "left").withColumn("_n", F.row_number().over(order))
        return self.cache(ranked.where("_n = 1").drop("_n", "_epoch"))

    @cached_property
    def truth_log(self) -> DataFrame:
        """The records of the replica that counts (`truth`), one log per partition: columns as `log`."""
        return self.log.join(F.broadcast(self.truth.select(*REPLICA)), list(REPLICA))

    @cached_property
    def cuts(self) -> DataFrame:
        """Where the mirror ended: cluster (destination), topic (its name there), origin_topic, partition,
        source_offset, destination_offset, time_ns. One row per partition of the newest STOPPED look."""
        order = Window.partitionBy("cluster", "topic", "partition").orderBy(F.desc("time_ns"))
        stopped = self.table("mirror_states").where("state = 'STOPPED'")
        last = stopped.withColumn("_n", F.row_number().over(order)).where("_n = 1")
        return last.withColumn("origin_topic", self.canonical()).select(
            "cluster", "topic", "origin_topic", "partition", "source_offset", "destination_offset", "time_ns"
        )

    # -- the history: what clients did --------------------------------------------------------------------------

    @cached_property
    def ops(self) -> DataFrame:
        """Events with `op`: the index of the invoke that the event belongs to (its own index on an invoke, and on a
        completion that nobody invoked). Columns of `ops` and `op`."""
        ops = self.table("ops").withColumn("cluster", F.coalesce("cluster", F.lit("A")))
        unpaired = ops.where("type != 'invoke' and invoke_index is null").limit(1).count() > 0
        op = F.coalesce("invoke_index", "index")
        if unpaired:
            before = Window.partitionBy("process", "f").orderBy("index").rowsBetween(Window.unboundedPreceding, 0)
            last_invoke = F.last(F.when(F.col("type") == "invoke", F.col("index")), ignorenulls=True).over(before)
            op = F.coalesce(F.col("invoke_index"), last_invoke, F.col("index"))
        return ops.withColumn("op", F.when(F.col("type") == "invoke", F.col("index")).otherwise(op))

    @cached_property
    def events(self) -> DataFrame:
        """One row per record of an operation event: op_records joined with its event's columns."""
        records = self.table("op_records")
        ops = self.ops.select(
            F.col("index").alias("op_index"),
            *("op", "time_ns", "process", "type", "f", "phase", "cluster", "client", "txn"),
            *("group", "isolation", "reset", "error"),
        )
        return records.join(ops, "op_index")

    @cached_property
    def txns(self) -> DataFrame:
        """Transactions made of separate steps: cluster, txn, txn_outcome (committed, aborted, unknown), decided_index,
        decided_ns. A transaction with both an acknowledged commit and an acknowledged abort is unknown."""
        ends = self.ops.where("f in ('txn_commit', 'txn_abort') and txn is not null and type = 'ok'")
        commits = F.count(F.when(F.col("f") == "txn_commit", 1))
        aborts = F.count(F.when(F.col("f") == "txn_abort", 1))
        outcome = (
            F.when((commits > 0) & (aborts == 0), "committed")
            .when((aborts > 0) & (commits == 0), "aborted")
            .otherwise("unknown")
        )
        return ends.groupBy("cluster", "txn").agg(
            outcome.alias("txn_outcome"), F.min("index").alias("decided_index"), F.min("time_ns").alias("decided_ns")
        )

    @cached_property
    def sends(self) -> DataFrame:
        """One row per value and operation that sent it: op (invoke index), position, value, key, cluster, topic,
        origin_topic, partition, offset, process, client, txn, type (ok, fail, info: the operation's), outcome,
        invoke_ns, done_index, done_ns, producer_id, producer_epoch, sequence, leader_epoch, phase, error.

        outcome: `acked` (outside a transaction), `committed`, `aborted`, `failed`, `unknown`. An operation with two
        completions that contradict each other, or with none, is `unknown`.
        """
        rows = self.events.where("action = 'send' and value is not null")
        done = F.col("type") != "invoke"

        def of_type(kind: str) -> Column:
            return F.count(F.when(F.col("type") == kind, 1)) > 0

        def kept(name: str) -> Column:
            return F.coalesce(F.max(F.when(done, F.col(name))), F.max(name)).alias(name)

        kind = F.when(of_type("ok") & ~of_type("fail"), "ok").when(of_type("fail") & ~of_type("ok"), "fail")
        sent = rows.groupBy("op", "cluster", "value").agg(
            kind.otherwise("info").alias("type"),
            F.min("position").alias("position"),
            F.max(F.when(F.col("offset") >= 0, F.col("offset"))).alias("offset"),
            *(kept(c) for c in ("topic", "partition", "key", "producer_id", "producer_epoch", "sequence")),
            *(kept(c) for c in ("leader_epoch", "error")),
            *(F.max(c).alias(c) for c in ("process", "client", "txn", "phase", "f")),
            F.min("time_ns").alias("invoke_ns"),
            F.max(F.when(done, F.col("op_index"))).alias("done_index"),
            F.max(F.when(done, F.col("time_ns"))).alias("done_ns"),
        )
        sent = sent.join(self.txns, ["cluster", "txn"], "left")
        whole = F.col("f") == "txn"
        outcome = (
            F.when(whole & (F.col("type") == "ok"), "committed")
            .when(whole & (F.col("type") == "fail"), "aborted")
            .when(F.col("txn").isNotNull() & ~whole & (F.col("txn_outcome") == "aborted"), "aborted")
            .when(F.col("type") == "fail", "failed")
            .when((F.col("type") == "info") | whole, "unknown")
            .when(F.col("txn").isNull(), "acked")
            .otherwise(F.coalesce("txn_outcome", F.lit("unknown")))
        )
        sent = sent.withColumn("outcome", outcome).withColumn("origin_topic", self.canonical())
        return self.cache(sent.drop("txn_outcome"))

    @cached_property
    def reads(self) -> DataFrame:
        """One row per record that a poll returned: op_index (of the completion), position, value, cluster, topic,
        origin_topic, partition, offset, leader_epoch, process, client, group, isolation, reset, phase, type, time_ns."""
        rows = self.events.where("action = 'poll' and type != 'invoke'").select(
            *("op_index", "position", "value", "cluster", "topic", "partition", "offset", "leader_epoch"),
            *("process", "client", "group", "isolation", "reset", "phase", "type", "time_ns"),
        )
        return self.cache(rows.withColumn("origin_topic", self.canonical()))

    @cached_property
    def seen(self) -> DataFrame:
        """What was seen where, one row per cluster, topic, partition, offset and value: columns op_index (the first
        poll that returned it, null when only a log shows it), readers (polls), stored (in the log that counts).

        Data records of the log that counts are included, aborted ones left out.
        """
        place = [*PARTITION, "offset", "value"]
        polled = self.reads.where("value is not null and offset is not null").groupBy(*place).agg(
            F.min("op_index").alias("op_index"), F.count("*").alias("readers"), F.lit(0).alias("stored")
        )
        if not self.has("records"):
            return self.cache(polled.withColumn("stored", F.lit(False)))
        stored = self.truth_log.where("control_type is null and value is not null and not aborted").select(
            *place, F.lit(None).cast("bigint").alias("op_index"), F.lit(0).cast("bigint").alias("readers"), F.lit(1).alias("stored")
        )
        both = polled.unionByName(stored).groupBy(*place).agg(
            F.min("op_index").alias("op_index"), F.sum("readers").alias("readers"), (F.max("stored") == 1).alias("stored")
        )
        return self.cache(both)

    def union_all(self, *frames: DataFrame) -> DataFrame:
        """The union of frames with equal columns."""
        return reduce(DataFrame.unionByName, frames)
