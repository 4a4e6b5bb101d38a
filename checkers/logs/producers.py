"""`pid_collision`, `sequence_gap`, `epoch_regressed`, `pid_negative`: producer ids, epochs and sequences in the log.

Checks, in the authoritative log of each cluster and between two producer id resets: one (partition, id, epoch) belongs
to one producer of the test (identified by who sent its records, and to which cluster); no (id, epoch, sequence) stands
for two values; the sequences of one (partition, id, epoch) are contiguous, wrapping to 0 after 2^31 - 1; a new epoch of
an id begins at 0 where the log holds an earlier one and everything since; epochs of producers and of coordinators do
not go back; no id is below -1, and a mirror that rewrites ids rewrites markers alike.

Cannot see: what was below the first batch that is still there (expired or truncated), and so where the first epoch of
an id began; compacted topics, whose gaps are legal; producers of values whose sender is unknown; on a mirror that
produces records again (MM2) the original producers; sequences in histories that do not state them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.keys import PARTITION
from checkers.views.log_comparison import batch_pairs
from checkers.views.mirrored_values import bounds
from checkers.views.mirroring import PAIR, keeps_offsets, keeps_producer_ids
from checkers.views.tables import Tables
from checkers.views.txn_batches import MARKERS, counting_batches

_NEEDS = ("batches", "records", "log_ends")
_KEY = (*PARTITION, "producer_id", "producer_epoch", "resets")
_WRAP = 1 << 31

COLLISION = AnomalyKind(
    name="pid_collision",
    severity=Severity.S1,
    violation="held two producers under one id",
    section=3,
    what="between two resets one (partition, producer id, epoch) belongs to one producer, and a sequence to one value",
    limitations="a collision that left nothing in the log, because the broker dropped it as a duplicate",
    sources=("KIP-1279", "redpanda#31659", "dev@kafka msg155161"),
    requires=_NEEDS,
)
GAP = AnomalyKind(
    name="sequence_gap",
    severity=Severity.S1,
    violation="had holes in the sequences of producers",
    section=3,
    what="the sequences of one (partition, producer id, epoch) are contiguous, and those of a later epoch begin at 0",
    limitations="before the first batch that is still there; compacted topics; a new epoch after offsets that "
    "are not there",
    sources=("KIP-98", "KIP-360", "KAFKA-12152"),
    requires=_NEEDS,
)
EPOCH = AnomalyKind(
    name="epoch_regressed",
    severity=Severity.S2,
    violation="let producer epochs go back",
    section=3,
    what="producer epochs, and coordinator epochs of markers, do not go back",
    limitations="epochs between a producer's batches; writes after a marker are late_write's",
    sources=("KIP-98", "KIP-890"),
    requires=_NEEDS,
)
NEGATIVE = AnomalyKind(
    name="pid_negative",
    severity=Severity.S2,
    violation="held producer ids below -1",
    section=3,
    what="no producer id is below -1, and where ids are rewritten markers are rewritten alike",
    limitations="rewritten ids that stay positive and consistent",
    sources=("KIP-1279", "dev@kafka msg155640"),
    requires=_NEEDS,
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the cluster whose log shows them."""
    collisions = _collisions(t)
    return union([collisions, _gaps(t), _epochs(t), _negative(t), _unlike(t)])


def _batches(t: Tables) -> DataFrame:
    """Batches with a producer, of topics that are not compacted, with `last_sequence` and `holes` (how many gaps
    between batches are before it in its log); from the batch before it with the same key before_sequence (its last) and
    before_offset; from the one before it with the same id earlier_epoch, earlier_offset, earlier_holes."""

    def build(_: Tables) -> DataFrame:
        log = Window.partitionBy(*PARTITION).orderBy("base_offset")
        end = F.max("last_offset").over(log.rowsBetween(Window.unboundedPreceding, -1))
        rows = counting_batches(t).withColumn("hole", (F.col("base_offset") > end + 1).cast("bigint"))
        rows = rows.withColumn("holes", F.coalesce(F.sum("hole").over(log), F.lit(0)))
        rows = rows.where("producer_id != -1 and not coalesce(control, false)")
        if t.compacted is not None:
            rows = rows.join(F.broadcast(t.compacted), ["cluster", "topic"], "left_anti")
        last = (F.col("base_sequence").cast("bigint") + F.col("last_offset") - F.col("base_offset")) % _WRAP
        rows = rows.withColumn("last_sequence", F.when(F.col("base_sequence") >= 0, last))
        order = Window.partitionBy(*_KEY).orderBy("base_offset")
        epochs = Window.partitionBy(*PARTITION, "producer_id", "resets").orderBy("base_offset")
        return rows.select(
            *(*_KEY, "base_offset", "last_offset", "base_sequence", "last_sequence", "holes"),
            F.lag("last_sequence").over(order).alias("before_sequence"),
            F.lag("last_offset").over(order).alias("before_offset"),
            F.lag("producer_epoch").over(epochs).alias("earlier_epoch"),
            F.lag("last_offset").over(epochs).alias("earlier_offset"),
            F.lag("holes").over(epochs).alias("earlier_holes"),
        )

    found = t.once("producer_batches", build)
    assert found is not None
    return found


def _jump() -> Column:
    """By how much a batch's first sequence is ahead of the expected one, modulo 2^31."""
    return (F.col("base_sequence").cast("bigint") - F.col("before_sequence") - 1 + _WRAP) % _WRAP


def _jumps(t: Tables) -> DataFrame | None:
    """Batches whose sequence does not follow the one before, with `jump`; None when there are none."""

    def build(_: Tables) -> DataFrame:
        rows = _batches(t).where("base_sequence >= 0 and before_sequence is not null")
        return rows.withColumn("jump", _jump()).where("jump != 0")

    found = t.once("sequence_jumps", build)
    return None if found is None or t.is_empty(found) else found


def _collisions(t: Tables) -> DataFrame:
    keys = _colliding(t)
    return anomalies(
        keys,
        "pid_collision",
        rank=F.col("offset"),
        explain=sentence(
            "producer id %s, epoch %s in %s-%s on %s: %s",
            *("producer_id", "producer_epoch", "topic", "partition", "cluster", "what"),
        ),
    )


def _colliding(t: Tables) -> DataFrame:
    """Keys (_KEY) that two producers share, or with a sequence of two values: offset, value, what."""

    def build(_: Tables) -> DataFrame:
        rows, twice = _shared(t), _two_values(t)
        if twice is not None:
            rows = rows.unionByName(twice)
        return (
            rows.groupBy(*_KEY)
            .agg(F.min_by(F.struct("offset", "value", "what"), F.struct("kind", "offset")).alias("first"))
            .select(*_KEY, "first.*")
        )

    found = t.once("colliding", build)
    assert found is not None
    return found


def _records(t: Tables) -> DataFrame:
    """Data records with a producer id, with `resets`."""
    log = t.truth_log.where("control_type is null and producer_id != -1 and value is not null")
    log = log.where("offset >= coalesce(log_start, 0)")
    resets = (
        counting_batches(t).where("control_type = 'PID_RESET'").select(*PARTITION, F.col("base_offset").alias("at"))
    )
    if resets.isEmpty():
        return log.withColumn("resets", F.lit(0).cast("bigint"))
    resets = resets.groupBy(*PARTITION).agg(F.array_sort(F.collect_list("at")).alias("ats"))
    log = log.join(F.broadcast(resets), list(PARTITION), "left")
    before = F.coalesce(F.size(F.filter("ats", lambda at: at <= F.col("offset"))), F.lit(0))
    return log.withColumn("resets", F.when(F.col("ats").isNull(), F.lit(0)).otherwise(before).cast("bigint")).drop(
        "ats"
    )


def _shared(t: Tables) -> DataFrame:
    """Keys with records of two producers. A producer is a client (several processes may share one), or a process where
    the history names no client, and the cluster that it wrote to; where the mirror produces records again, all that
    come from elsewhere are the mirror's own."""
    producer = F.coalesce("client", "process").alias("producer")
    sent = t.sends.groupBy("value").agg(F.min(F.struct("cluster", producer)).alias("by"))
    rows = _records(t).join(sent, "value")
    local = F.col("by.cluster") == F.col("cluster")
    owner = F.concat_ws(" on ", "by.producer", "by.cluster")
    if not keeps_offsets(t):
        owner = F.when(local, owner).otherwise(F.lit("the mirror"))
    keys = (
        rows.withColumn("owner", owner)
        .groupBy(*_KEY)
        .agg(
            F.min("owner").alias("one"),
            F.max("owner").alias("two"),
            F.max(F.struct("owner", F.col("offset"), "value")).alias("last"),
        )
    )
    return keys.where("one != two").select(
        *_KEY,
        F.col("last.offset").alias("offset"),
        F.col("last.value").alias("value"),
        sentence("two producers share it, %s and %s", "one", "two").alias("what"),
        F.lit(0).alias("kind"),
    )


def _two_values(t: Tables) -> DataFrame | None:
    """Keys with one sequence that stands for two values. Only batches that go back can cause it, so only the records of
    their keys are checked."""
    jumps = _jumps(t)
    if jumps is None:
        return None
    back = jumps.where(F.col("jump") > _WRAP // 2).select(*_KEY).distinct()
    rows = _records(t).where("sequence >= 0").join(back, list(_KEY), "left_semi")
    twice = rows.groupBy(*_KEY, "sequence").agg(
        F.count_distinct("value").alias("values"), F.max_by(F.struct("offset", "value"), "offset").alias("last")
    )
    return twice.where("values > 1").select(
        *_KEY,
        "last.*",
        sentence("its sequence %s stands for %s values, the last one %s", "sequence", "values", "last.value").alias(
            "what"
        ),
        F.lit(1).alias("kind"),
    )


def _gaps(t: Tables) -> DataFrame:
    found, jumps = _false_starts(t), _jumps(t)
    if jumps is not None:
        # A repeated batch goes back, but skips nothing: duplicate and mirror_duplicate report it.
        again = _batches(t).groupBy(*_KEY, "base_sequence").agg(F.count("*").alias("copies")).where("copies > 1")
        jumps = jumps.join(again, [*_KEY, "base_sequence"], "left_anti")
        jumps = jumps.withColumn("said", sentence("after sequence %s (offset %s)", "before_sequence", "before_offset"))
        found = jumps.unionByName(found, allowMissingColumns=True)
    found = found.join(_colliding(t).select(*_KEY), list(_KEY), "left_anti")
    return anomalies(
        found,
        "sequence_gap",
        offset="base_offset",
        value=None,
        rank=F.col("base_offset"),
        explain=sentence(
            "producer id %s, epoch %s in %s-%s on %s: %s comes %s (offset %s)",
            *("producer_id", "producer_epoch", "topic", "partition", "cluster", "said", "base_sequence", "base_offset"),
        ),
    )


def _false_starts(t: Tables) -> DataFrame:
    """First batches of an epoch that do not begin at sequence 0, though the log holds an earlier epoch of their id and
    all offsets since."""
    rows = _batches(t).where("base_sequence > 0 and before_offset is null and earlier_epoch < producer_epoch")
    said = sentence("as its first one, after epoch %s up to offset %s,", "earlier_epoch", "earlier_offset")
    return rows.where("holes = earlier_holes").withColumn("said", said)


def _epochs(t: Tables) -> DataFrame:
    rows = counting_batches(t).where("producer_id != -1")
    marker = F.coalesce(F.col("control_type").isin(*MARKERS), F.lit(False))
    before = Window.partitionBy(*PARTITION, "producer_id", "resets").orderBy("base_offset")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumns(
        {
            "seen": F.max("producer_epoch").over(before),
            "seen_marker": F.max(F.when(marker, F.col("producer_epoch"))).over(before),
            "seen_coordinator": F.max("coordinator_epoch").over(before),
        }
    )
    late = F.coalesce("transactional", F.lit(False)) & ~marker & (F.col("producer_epoch") < F.col("seen_marker"))
    producer = (F.col("producer_epoch") < F.col("seen")) & ~F.coalesce(late, F.lit(False))
    coordinator = F.col("coordinator_epoch") < F.col("seen_coordinator")
    what = F.when(producer, sentence("producer epoch %s after %s", "producer_epoch", "seen")).when(
        coordinator, sentence("coordinator epoch %s after %s", "coordinator_epoch", "seen_coordinator")
    )
    return anomalies(
        rows.withColumn("what", what).where("what is not null"),
        "epoch_regressed",
        offset="base_offset",
        value=None,
        rank=F.col("base_offset"),
        explain=sentence(
            "producer id %s in %s-%s on %s, offset %s: %s",
            *("producer_id", "topic", "partition", "cluster", "base_offset", "what"),
        ),
    )


def _negative(t: Tables) -> DataFrame:
    rows = counting_batches(t).where("producer_id < -1").groupBy(*PARTITION, "producer_id")
    return anomalies(
        rows.agg(F.min("base_offset").alias("offset"), F.count("*").alias("batches")),
        "pid_negative",
        value=None,
        rank=F.col("offset"),
        explain=sentence(
            "%s batches of %s-%s on %s, the first at offset %s, have the producer id %s: brokers keep no state for it",
            *("batches", "topic", "partition", "cluster", "offset", "producer_id"),
        ),
    )


def _unlike(t: Tables) -> DataFrame | None:
    """Producer ids of the source that became two ids on the destination, e.g. one in data and another in markers."""
    where = bounds(t)
    if where is None or not keeps_offsets(t) or keeps_producer_ids(t):
        return None
    both = where.where("from_log and b_end is not null")
    compared = both.select(
        *PAIR, F.greatest("a_start", "b_start").alias("low"), F.least("a_end", "b_end", "bound").alias("high")
    )
    rows = batch_pairs(t, compared).where("a is not null and b is not null and a.producer_id != -1")
    ids = rows.groupBy(*PAIR, F.col("a.producer_id").alias("own")).agg(
        F.array_sort(F.collect_set("b.producer_id")).alias("ids"), F.min("base_offset").alias("offset")
    )
    ids = ids.where(F.size("ids") > 1).join(F.broadcast(both.select(*PAIR, "destination_topic")), list(PAIR))
    return anomalies(
        ids,
        "pid_negative",
        cluster="destination",
        topic="destination_topic",
        value=None,
        rank=F.col("offset"),
        explain=sentence(
            "producer id %s of %s became %s in %s-%s on %s",
            *("own", "source", F.col("ids").cast("string"), "destination_topic", "partition", "destination"),
        ),
    )


CHECKER = Checker(name="producers", kinds=(COLLISION, GAP, EPOCH, NEGATIVE), check=check)
