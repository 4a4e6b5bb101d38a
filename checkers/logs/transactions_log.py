"""`late_write`, `marker_missing`, `lso_wrong`: transactions in one cluster's log.

Checks, in the authoritative log: no data of a transaction is after the marker that ended it (by the transaction's
name, where clients or an imported history give it, else by a producer epoch below that of an earlier marker); every
transaction has a marker, in time; the last stable offset is not above the first open transaction, and does not stall.
A transaction without an end is reported once: as `late_write` where its data came after its marker, else as
`marker_missing`.

Cannot see: a second marker of one transaction, which Kafka may write after a coordinator moved (it ends nothing); late
data of an unnamed transaction under an unchanged epoch, which looks like a new transaction; stalls and delays in
imported histories, whose times have no known unit; anything that a fault excuses (the time of faults is added).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, checked, op_list, sentence
from checkers.views.failbacks import discards
from checkers.views.keys import PARTITION
from checkers.views.mirror_starts import PLACE
from checkers.views.mirrored_values import bounds
from checkers.views.mirroring import PAIR, keeps_offsets, unclean_clusters
from checkers.views.tables import Tables
from checkers.views.truncations import truncates_at_stop
from checkers.views.txn_batches import txn_batches, txn_names

_NEEDS = ("batches", "records", "log_ends")
_TIMEOUT_MS = 60_000  # transaction.timeout.ms of librdkafka, Java clients and Connect alike
_GRACE_MS = 30_000  # coordinators look for timed-out transactions every 10 s
_BLOCK = 1024  # offsets

LATE = AnomalyKind(
    name="late_write",
    severity=Severity.S1,
    violation="stored data of transactions after their markers",
    section=3,
    what="no data of a transaction comes after its marker",
    limitations="late data of an unnamed transaction under an unchanged epoch",
    sources=("KAFKA-14402", "KIP-890", "KAFKA-14884"),
    requires=_NEEDS,
)
MISSING = AnomalyKind(
    name="marker_missing",
    severity=Severity.S1,
    violation="left transactions without a marker",
    section=3,
    what="each transaction in the log ends in a marker, at most one timeout after its last batch",
    limitations="a transaction that was still within its timeout at the last snapshot; second markers",
    sources=("KIP-98", "KIP-890", "KIP-1279"),
    requires=_NEEDS,
)
LSO = AnomalyKind(
    name="lso_wrong",
    severity=Severity.S2,
    violation="had a wrong last stable offset",
    section=3,
    what="the last stable offset is at most the first open transaction's, and does not stall",
    limitations="states between two snapshots; logs without snapshots",
    sources=("KIP-98", "KAFKA-14402", "dev@kafka msg155640"),
    requires=_NEEDS,
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the cluster whose log shows them; None without transactions."""
    if t.is_empty(txn_batches(t)):
        return None
    late = [] if t.is_empty(_late(t)) else [_late_rows(t), _lso_hanging(t)]
    still_open = [] if t.is_empty(_open(t)) else [_missing(t), _lso_above(t)]
    return checked(t, [*late, *still_open, _slow(t), _lso_passed(t), _lso_stalled(t)])


def _limit_ms(t: Tables) -> int:
    """Longest time that a transaction may stay open: its timeout, some grace, and the duration of faults."""
    asked = t.meta.test.workload_options.get("transaction_timeout_ms", _TIMEOUT_MS)
    span = 0
    if t.has("faults"):
        row = t.table("faults").agg(F.max("time_ns") - F.min("time_ns")).head()
        span = int((row[0] if row is not None else 0) or 0) // 1_000_000
    return int(asked) + _GRACE_MS + span


def _late(t: Tables) -> DataFrame:
    """Data batches after the marker of their transaction: PARTITION, base_offset, producer, marker, txn, open."""

    def build(_: Tables) -> DataFrame:
        data = txn_batches(t).where("not control").drop("txn")
        data = data.join(txn_names(t), [*PARTITION, "base_offset"], "left")
        order = Window.partitionBy(*PARTITION, "txn").orderBy("base_offset")
        first_end = F.first("end_offset").over(order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
        data = data.withColumn("own_end", F.when(F.col("txn").isNotNull(), first_end))
        by_name = F.coalesce(F.col("base_offset") > F.col("own_end"), F.lit(False))
        by_epoch = F.coalesce(F.col("producer_epoch") < F.col("last_marker_epoch"), F.lit(False))
        rows = data.where(by_name | by_epoch).withColumn(
            "marker", F.when(by_name, F.col("own_end")).otherwise(F.col("last_marker"))
        )
        return rows.withColumn("open", F.col("end_offset").isNull())

    found = t.once("late_writes", build)
    assert found is not None
    return found


def _late_rows(t: Tables) -> DataFrame:
    rows = _late(t).withColumn("offset", F.col("base_offset"))
    values = t.truth_log.where("control_type is null").select(*PARTITION, "offset", "value")
    rows = rows.join(values, [*PARTITION, "offset"], "left")
    closed = F.when(F.col("open"), F.lit("nothing closes it")).otherwise(sentence("it was closed at %s", "end_offset"))
    return anomalies(
        rows,
        "late_write",
        rank=F.col("offset"),
        explain=sentence(
            "%s of transaction %s (producer %s) is at offset %s of %s-%s on %s, after that transaction's marker at"
            " %s; %s",
            *("value", "txn", "producer", "offset", "topic", "partition", "cluster", "marker"),
            closed,
        ),
    )


def _open(t: Tables) -> DataFrame:
    """Transactions without a marker, one row per partition and producer: first offset and time of the last batch."""
    found = t.once("open_transactions", _built_open)
    assert found is not None
    return found


def _built_open(t: Tables) -> DataFrame:
    data = txn_batches(t).where("not control and end_offset is null").drop("txn")
    data = data.join(txn_names(t), [*PARTITION, "base_offset"], "left")
    return data.groupBy(*PARTITION, "origin_topic", "producer").agg(
        F.min("base_offset").alias("offset"),
        F.max("last_offset").alias("last"),
        F.max("timestamp").alias("last_ms"),
        F.max("look_ns").alias("look_ns"),
        F.max("last_stable").alias("last_stable"),
        F.max("high_watermark").alias("high_watermark"),
        F.min("txn").alias("txn"),
        F.min_by("outcome", "base_offset").alias("outcome"),
        F.min_by("decided_ns", "base_offset").alias("decided_ns"),
        F.min_by("decided_index", "base_offset").alias("decided_index"),
    )


def _missing(t: Tables) -> DataFrame:
    rows = _open(t)
    if not t.is_empty(_late(t)):
        late = _late(t).where("open").select(*PARTITION, "producer").distinct()
        rows = rows.join(late, [*PARTITION, "producer"], "left_anti")
    decided = F.col("outcome").isin("committed", "aborted") & (F.col("decided_ns") < F.col("look_ns"))
    why = F.when(decided, sentence("its client was told that it was %s", "outcome"))
    if keeps_offsets(t):
        rows = _with_source_marker(t, rows)
        why = why.when(
            F.col("source_marker").isNotNull(),
            sentence("its source has a %s at offset %s", "source_type", "source_marker"),
        )
    if not t.stored.imported:
        now = t.table("batches").groupBy("cluster").agg(F.max("timestamp").alias("now_ms"))
        rows = rows.join(F.broadcast(now), "cluster")
        age, limit = F.col("now_ms") - F.col("last_ms"), _limit_ms(t)
        why = why.when((F.col("last_ms") > 0) & (age > limit), sentence("it was left open for %s ms", age))
    rows = rows.withColumn("why", why).where("why is not null")
    return anomalies(
        rows,
        "marker_missing",
        value=None,
        ops=op_list("decided_index"),
        rank=F.col("offset"),
        explain=sentence(
            "no marker ends the transaction %s of producer %s in %s-%s on %s (offsets %s to %s), although %s",
            *("txn", "producer", "topic", "partition", "cluster", "offset", "last", "why"),
        ),
    )


def _with_source_marker(t: Tables, rows: DataFrame) -> DataFrame:
    """Add source_marker, source_type: the marker, below the bound, that ends the same data on the source."""
    where = bounds(t)
    empty = {"source_marker": F.lit(None).cast("long"), "source_type": F.lit(None).cast("string")}
    if where is None:
        return rows.withColumns(empty)
    # Where everything had to arrive, and the mirror could go on, a marker after the destination's end is missing, too.
    due = F.col("all_due") & F.lit(not t.meta.unhealed)
    high = F.when(due, F.col("bound")).otherwise(F.least("bound", "b_end"))
    own = where.where("from_log").select(*PAIR, high.alias("high"))
    source = txn_batches(t).where("not control and end_offset is not null")
    source = source.select(
        F.col("cluster").alias("source"),
        *PAIR[2:],
        F.col("base_offset").alias("offset"),
        F.col("end_offset").alias("source_marker"),
        F.col("end_type").alias("source_type"),
    )
    known = source.join(F.broadcast(own), ["source", *PAIR[2:]]).where("source_marker < high")
    known = known.withColumnRenamed("destination", "cluster").drop("source", "high")
    return rows.join(known, ["cluster", *PAIR[2:], "offset"], "left")


def _slow(t: Tables) -> DataFrame | None:
    """Transactions whose marker came later than a timeout after their last batch."""
    if t.stored.imported:
        return None
    limit = _limit_ms(t)
    data = txn_batches(t).where("not control and end_time > 0 and timestamp > 0")
    rows = data.groupBy(*PARTITION, "producer", "end_offset", "end_type").agg(
        (F.max("end_time") - F.max("timestamp")).alias("took"), F.min("base_offset").alias("offset")
    )
    return anomalies(
        rows.where(F.col("took") > limit),
        "marker_missing",
        value=None,
        rank=-F.col("took"),
        explain=sentence(
            "the %s at offset %s of %s-%s on %s came %s ms after the last batch of producer %s's transaction",
            *("end_type", "end_offset", "topic", "partition", "cluster", "took", "producer"),
        ),
    )


def _lso_above(t: Tables) -> DataFrame:
    first = (
        _open(t)
        .groupBy(*PARTITION)
        .agg(
            F.min("offset").alias("offset"),
            F.min_by("producer", "offset").alias("producer"),
            F.max("last_stable").alias("last_stable"),
            F.max("high_watermark").alias("high_watermark"),
        )
    )
    return anomalies(
        first.where("last_stable > offset"),
        "lso_wrong",
        value=None,
        rank=F.col("offset"),
        explain=sentence(
            "the last stable offset of %s-%s on %s is %s, above the transaction of producer %s, open at offset %s",
            *("topic", "partition", "cluster", "last_stable", "producer", "offset"),
        ),
    )


def _lso_passed(t: Tables) -> DataFrame | None:
    """Snapshots of a leader with a last stable offset above a transaction whose marker was not there yet.

    Leaders are asked for the last stable offset before the high watermark, so a marker at or above the latter came
    later. Batches of a later leader epoch than the snapshot's may have replaced others; so may batches at or above the
    cut of a mirror that was started over the log, which keep the source's older epochs, until it is MIRRORING. For the
    same reason the copies of a source with unclean elections are left out. A stop that truncates the destination's log
    to its last stable offset may remove the marker of a transaction that began below: one that is there now is another.
    """
    block = F.floor(F.col("high_watermark") / _BLOCK)  # joined by block: a log has many transactions and many snapshots
    snapshots = t.table("log_ends").where("last_stable is not null and high_watermark is not null")
    snapshots = snapshots.select(
        *PARTITION, "last_stable", "high_watermark", "leader_epoch", "time_ns", block.alias("block")
    )
    snapshots = snapshots.withColumnRenamed("leader_epoch", "at_epoch")
    data = txn_batches(t).where("not control and end_offset is not null")
    columns = ("origin_topic", "producer", "end_offset", "leader_epoch")
    data = data.select(*PARTITION, *columns, F.col("base_offset").alias("offset"))
    blocks = F.sequence(F.floor(F.col("offset") / _BLOCK), F.floor(F.col("end_offset") / _BLOCK))
    rows = data.withColumn("block", F.explode(blocks)).join(snapshots, [*PARTITION, "block"])
    rows = rows.where("offset < last_stable and end_offset >= high_watermark and end_offset >= last_stable")
    passed = t.found(rows.where("leader_epoch <= at_epoch"))
    if passed is None:
        return None
    rows = _not_replaced(t, passed)
    if truncates_at_stop(t):
        rows = _not_cut_at_a_stop(t, rows)
    found = rows.groupBy(*PARTITION, "offset", "producer", "end_offset").agg(
        F.min_by("last_stable", "time_ns").alias("last_stable"), F.min_by("high_watermark", "time_ns").alias("seen")
    )
    return anomalies(
        found,
        "lso_wrong",
        value=None,
        rank=F.col("offset"),
        explain=sentence(
            "the last stable offset of %s-%s on %s was %s at a high watermark of %s, above the transaction of producer"
            " %s that was open at offset %s and ends at %s",
            *("topic", "partition", "cluster", "last_stable", "seen", "producer", "offset", "end_offset"),
        ),
    )


def _not_replaced(t: Tables, rows: DataFrame) -> DataFrame:
    """Leave out snapshots of logs that were truncated, below the end of the transaction, after them."""
    unclean = unclean_clusters(t)
    copies = {d for s, d in t.mirror_pairs if s in unclean} | {s for s, d in t.mirror_pairs if d in unclean}
    if copies and t.has("mirror_states"):
        rows = rows.where(~F.col("cluster").isin(*sorted(copies)))
    found = discards(t)
    if found is None:
        return rows
    ends = F.collect_list(F.struct("mirroring_ns", "cut")).alias("starts")
    rows = rows.join(F.broadcast(found.groupBy(*PLACE).agg(ends)), list(PLACE), "left")
    gone = F.exists("starts", lambda s: (F.col("time_ns") < s["mirroring_ns"]) & (F.col("end_offset") >= s["cut"]))
    return rows.where(~F.coalesce(gone, F.lit(False))).drop("starts")


def _not_cut_at_a_stop(t: Tables, rows: DataFrame) -> DataFrame:
    """Leave out snapshots before a stop of transactions whose marker is above its cut."""
    where = bounds(t)
    if where is None:
        return rows
    stops = where.where("stopped").select(F.col("destination").alias("cluster"), *PAIR[2:], "bound", "cut_ns")
    rows = rows.join(F.broadcast(stops), ["cluster", *PAIR[2:]], "left")
    cut = (F.col("time_ns") <= F.col("cut_ns")) & (F.col("end_offset") >= F.col("bound"))
    return rows.where(~F.coalesce(cut, F.lit(False))).drop("bound", "cut_ns")


def _lso_hanging(t: Tables) -> DataFrame:
    """A hanging transaction: data after its marker, which nothing will ever close, holds back the last stable
    offset."""
    rows = (
        _late(t)
        .where("open")
        .groupBy(*PARTITION)
        .agg(
            F.min("base_offset").alias("offset"),
            F.min_by("txn", "base_offset").alias("txn"),
            F.max("last_stable").alias("last_stable"),
            F.max("high_watermark").alias("high_watermark"),
        )
    )
    return anomalies(
        rows.where("last_stable <= offset and last_stable < high_watermark"),
        "lso_wrong",
        value=None,
        rank=F.col("offset"),
        explain=sentence(
            "the last stable offset of %s-%s on %s stays at %s, below the high watermark %s: transaction %s hangs at"
            " offset %s",
            *("topic", "partition", "cluster", "last_stable", "high_watermark", "txn", "offset"),
        ),
    )


def _lso_stalled(t: Tables) -> DataFrame | None:
    if t.stored.imported:
        return None
    limit = _limit_ms(t) * 1_000_000
    snapshots = t.table("log_ends").where("last_stable < high_watermark")
    same = snapshots.groupBy(*PARTITION, F.col("last_stable").alias("offset")).agg(
        (F.max("time_ns") - F.min("time_ns")).alias("took_ns"), F.max("high_watermark").alias("high_watermark")
    )
    return anomalies(
        same.where(F.col("took_ns") > limit),
        "lso_wrong",
        value=None,
        rank=-F.col("took_ns"),
        explain=sentence(
            "the last stable offset of %s-%s on %s stayed at %s for %s ms, below the high watermark (%s)",
            *(
                "topic",
                "partition",
                "cluster",
                "offset",
                (F.col("took_ns") / 1_000_000).cast("bigint"),
                "high_watermark",
            ),
        ),
    )


CHECKER = Checker(name="transactions_log", kinds=(LATE, MISSING, LSO), check=check)
