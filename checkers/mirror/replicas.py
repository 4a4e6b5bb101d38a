"""`replica_divergence` and `crc_invalid`: the replicas of one partition against each other, and every batch by itself.

Checks: in the last snapshot all replicas that must be in sync hold equal batches below the high watermark and below the
shortest log, and every stored batch of every snapshot has the CRC32C of its bytes.

Cannot see: what replicas held between snapshots; differences above the high watermark; equal damage on all replicas; on
compacted topics, batch bounds and absent records (each broker cleans by itself), only unequal records at one offset.
A replica whose broker was gone and which had left the ISR does not count: it will be truncated when it comes back.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Logs, Severity, anomalies, checked, sentence
from checkers.views.keys import PARTITION, REPLICA
from checkers.views.tables import Tables

DIVERGENCE = AnomalyKind(
    name="replica_divergence",
    severity=Severity.S1,
    violation="had replicas that differ",
    section=2,
    what="all replicas of a partition hold equal batches below the high watermark, after quiet",
    limitations="differences that were gone at the last snapshot; differences above the high watermark",
    sources=("KIP-101", "KIP-279", "KAFKA-6361"),
    requires=("batches", "records", "log_ends"),
    logs=Logs.EVERY,
)
CRC = AnomalyKind(
    name="crc_invalid",
    severity=Severity.S1,
    violation="stored batches with a wrong CRC",
    section=2,
    what="the CRC32C stored in every batch is that of its bytes",
    limitations="base offset and leader epoch, which Kafka's CRC does not cover",
    sources=("https://kafka.apache.org/documentation/#recordbatch",),
    requires=("batches",),
    logs=Logs.EVERY,
)


def check(t: Tables) -> DataFrame | None:
    """Divergence is reported per differing offset, for all replicas together; a wrong CRC per batch and replica."""
    return checked(t, [_divergence(t), _crc(t)])


def _divergence(t: Tables) -> DataFrame | None:
    if not (t.has("records") and t.has("log_ends")):
        return None
    where = t.found(_comparable(t).select(*REPLICA, "low", "high", "replicas_there"))
    if where is None:
        return None
    keys = F.broadcast(where)
    compacted = t.compacted
    batches = t.log_batches.join(keys, list(REPLICA)).where("base_offset >= low and last_offset < high")
    records = t.log.join(keys, list(REPLICA)).where("offset >= low and offset < high")
    if compacted is not None:
        batches = batches.join(F.broadcast(compacted), ["cluster", "topic"], "left_anti")
    batch = F.struct(
        *("last_offset", "crc", "producer_id", "producer_epoch", "base_sequence", "control_type", "leader_epoch")
    )
    by_batch = batches.groupBy(*PARTITION, F.col("base_offset").alias("offset")).agg(
        F.size(F.collect_set("broker")).alias("holders"),
        F.max("replicas_there").alias("replicas_there"),
        _differs(batch).alias("unequal"),
        F.array_sort(F.collect_set("broker")).alias("brokers"),
    )
    unequal = by_batch.where("holders < replicas_there or unequal").select(
        *PARTITION,
        "offset",
        F.lit(None).cast("string").alias("value"),
        F.when(
            F.col("holders") < F.col("replicas_there"),
            sentence("only replicas %s hold a batch there", F.col("brokers").cast("string")),
        )
        .otherwise(F.lit("the batches there are not equal"))
        .alias("what"),
    )
    of_records = _unequal_records(t, records, unequal)
    rows = unequal if of_records is None else unequal.unionByName(of_records)
    return anomalies(
        rows,
        "replica_divergence",
        rank=F.col("offset"),
        explain=sentence(
            "the replicas of %s-%s on %s differ at offset %s: %s", *("topic", "partition", "cluster", "offset", "what")
        ),
    )


def _differs(columns: Column) -> Column:
    """Whether a group's structs are not all equal. As a count of distinct ones, Spark would compute each row twice."""
    return F.min(F.xxhash64(columns)) != F.max(F.xxhash64(columns))


def _unequal_records(t: Tables, records: DataFrame, reported: DataFrame) -> DataFrame | None:
    """Unequal records of replicas at one offset, where batches do not show it: no CRC is known, or the topic is
    compacted."""
    unknown = not t.table("batches").where("crc is null").isEmpty()
    if t.compacted is None and not unknown:
        return None
    if not unknown:
        assert t.compacted is not None
        records = records.join(F.broadcast(t.compacted), ["cluster", "topic"], "left_semi")
    record = F.struct(
        *("value", "key", "value_hash", "control_type", "producer_id", "producer_epoch", "sequence"),
    )
    forms = records.groupBy(*PARTITION, "offset").agg(
        _differs(record).alias("unequal"),
        F.min("value").alias("value"),
        F.array_join(F.array_sort(F.collect_set(F.coalesce("value", "control_type"))), ", ").alias("values"),
    )
    forms = forms.where("unequal").join(reported.select(*PARTITION, "offset"), [*PARTITION, "offset"], "left_anti")
    return forms.select(*PARTITION, "offset", "value", F.concat(F.lit("they hold "), "values").alias("what"))


def _comparable(t: Tables) -> DataFrame:
    """Replicas to be compared: REPLICA, low and high (the range that all of them must hold), replicas_there."""
    isr = t.truth.select(*PARTITION, F.col("isr").alias("known_isr"))
    all_ = t.replicas.join(F.broadcast(isr), list(PARTITION), "left")
    # Rows made from a dead broker's folder have no ISR of their own.
    left = F.col("isr").isNull() & F.col("known_isr").isNotNull() & ~F.array_contains("known_isr", F.col("broker"))
    all_ = all_.where(~F.coalesce(left, F.lit(False)))
    # A leader without a log of its own (the reference mirror) is no replica to compare.
    stored = t.table("batches").select(*REPLICA).distinct().withColumn("stored", F.lit(True))
    all_ = all_.join(F.broadcast(stored), list(REPLICA), "left").where("stored or log_start = log_end")
    ends = all_.groupBy(*PARTITION).agg(
        F.max(F.coalesce("log_start", F.lit(0))).alias("low"),
        F.min(F.least("log_end", F.coalesce("high_watermark", "log_end"))).alias("high"),
        F.size(F.collect_set("broker")).alias("replicas_there"),
    )
    return all_.select(*REPLICA).join(ends.where("replicas_there > 1"), list(PARTITION))


def _crc(t: Tables) -> DataFrame | None:
    if not t.has("batches"):
        return None
    bad = t.table("batches").where(~F.col("crc_ok"))
    return anomalies(
        bad,
        "crc_invalid",
        offset="base_offset",
        value=None,
        rank=F.col("base_offset"),
        explain=sentence(
            "the batch at offset %s of %s-%s on broker %s of %s (%s, byte %s) does not match its CRC32C (%s)",
            *("base_offset", "topic", "partition", "broker", "cluster", "segment", "position", "crc"),
        ),
    )


CHECKER = Checker(name="replicas", kinds=(DIVERGENCE, CRC), check=check)
