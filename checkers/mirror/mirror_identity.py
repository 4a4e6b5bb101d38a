"""`offset_identity`, `gap_identity`, `unclean_divergence`, `topic_id`: compares the logs of an offset-preserving
mirror.

Judged only where the mirror promises it (capability `offset_identity`), in the range [max(log starts), min(log ends,
cut)) of each partition. A batch's leader epoch is not covered by its CRC and may be rewritten; where the mirror
rewrites producer ids, these and the CRC may differ, and contents are compared by hash.
Each difference is reported once, under its most specific kind: a lost record is `mirror_loss`, a lost marker
`marker_missing`, everything after an unclean election `unclean_divergence`, other missing or extra offsets
`gap_identity`, and different contents at one offset `offset_identity`. On compacted topics, where each broker cleans by
itself, a closed gap shows as a record with another offset than on the source: `gap_identity`.

Cannot see: differences of batches on compacted topics, and offsets that only one side holds there; in an imported
history without a cut, what is above the last mirrored record; equal damage.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.log_comparison import batch_pairs, record_pairs, unequal_partitions
from checkers.views.mirrored_values import bounds, mirrored_values
from checkers.views.mirroring import PAIR, compacted_on, keeps_offsets, unclean_clusters
from checkers.views.tables import Tables

_NEEDS = ("batches", "records", "log_ends")

IDENTITY = AnomalyKind(
    name="offset_identity",
    severity=Severity.S1,
    violation="held other batches than its source at the same offsets",
    section=2,
    what="both logs hold the same at each offset: batch bounds, CRC, producer columns, control type",
    limitations="leader epochs, which a leader may rewrite; batch bounds on compacted topics",
    sources=("KIP-1279",),
    requires=_NEEDS,
)
GAPS = AnomalyKind(
    name="gap_identity",
    severity=Severity.S1,
    violation="had other gaps than its source",
    section=2,
    what="both logs hold the same set of offsets: gaps stay gaps",
    limitations="records of compacted topics that only one side holds: each broker cleans by itself",
    sources=("KIP-1279",),
    requires=_NEEDS,
)
UNCLEAN = AnomalyKind(
    name="unclean_divergence",
    after_healing=True,
    severity=Severity.S1,
    violation="kept what its source had discarded",
    section=2,
    what="after an unclean election the destination equals the source's new log, or the mirror says FAILED",
    limitations="an unclean election that was not recorded",
    sources=("KIP-1279", "KIP-101", "KIP-279"),
    requires=(*_NEEDS, "faults"),
)
TOPIC_ID = AnomalyKind(
    name="topic_id",
    severity=Severity.S4,
    violation="had other topic IDs than its source",
    section=2,
    what="topic IDs are equal on both clusters, where the mirror has that capability",
    limitations="topics without a single batch",
    sources=("KIP-516", "KIP-1279"),
    requires=_NEEDS,
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the destination."""
    if bounds(t) is None:
        return None
    return union([_unclean(t), _contents(t), _gaps(t), _moves(t), _topic_ids(t)])


def ranges(t: Tables) -> DataFrame | None:
    """`bounds` with low and high, the offsets to be compared, of partitions whose logs are known on both sides; none
    where the mirror does not keep offsets."""
    where = bounds(t)
    if where is None or not keeps_offsets(t):
        return None
    both = where.where("from_log and b_end is not null")
    local = t.once("locally_written", _locally_written)
    assert local is not None
    both = both.join(F.broadcast(local), list(PAIR[1:]), "left")
    # Where only the mirror wrote, and it has not failed, all that both logs hold is its work.
    shared, own = F.least("a_end", "b_end"), F.col("stopped") | F.col("local") | (F.col("last_state") == "FAILED")
    high = F.when(own, F.least(shared, "bound")).otherwise(shared)
    both = both.withColumns({"low": F.greatest("a_start", "b_start"), "high": high}).drop("local")
    return both.withColumn("compacted", F.col("origin_topic").isin(*_compacted(t)))


def _locally_written(t: Tables) -> DataFrame:
    """Partitions that clients wrote to themselves: destination, origin_topic, partition, local."""
    sent = t.sends.where("outcome != 'failed' and partition is not null")
    return sent.select(F.col("cluster").alias("destination"), *PAIR[2:], F.lit(True).alias("local")).distinct()


def _compacted(t: Tables) -> list[str]:
    return compacted_on(t, *{letter for pair in t.mirror_pairs for letter in pair})


def _batches(t: Tables) -> DataFrame | None:
    where = ranges(t)
    if where is None:
        return None
    plain = where.where(~F.col("compacted"))
    return t.once("batch_pairs", lambda _: batch_pairs(t, plain.select(*PAIR, "low", "high")))


def _records(t: Tables) -> DataFrame | None:
    """The records that differ, with the topics' names; None where none has to be compared."""
    where, batches = ranges(t), _batches(t)
    if where is None or batches is None:
        return None

    def build(_: Tables) -> DataFrame | None:
        unequal = t.found(unequal_partitions(batches))
        if unequal is None and not _compacted(t):
            return None
        suspect = unequal_partitions(batches) if unequal is None else unequal
        suspect = suspect.withColumn("suspect", F.lit(True))
        compared = where.join(F.broadcast(suspect), list(PAIR), "left").where("compacted or suspect")
        rows = record_pairs(t, compared.select(*PAIR, "low", "high", "compacted", *_NAMES))
        named = compared.select(*PAIR, "compacted", *_NAMES)
        return rows.join(F.broadcast(named), list(PAIR))

    return t.once("record_pairs", build)


_NAMES = ("source_topic", "destination_topic")


def diverged(t: Tables) -> DataFrame | None:
    """First difference of each partition of a pair where an unclean election happened: PAIR, offset, what. It covers
    the tail that only one side holds. None when there was none, or the mirror does not keep offsets."""
    return t.once("diverged", _diverged)


def _diverged(t: Tables) -> DataFrame | None:
    unclean = unclean_clusters(t)
    where = ranges(t)
    if where is None or not unclean or not t.has("batches"):
        return None
    hit = F.col("source").isin(*unclean) | F.col("destination").isin(*unclean)
    failed = F.coalesce(F.col("last_state") == "FAILED", F.lit(False))
    where = where.where(hit & ~F.col("compacted") & ~failed)
    # Up to the cut also offsets that only one side has: the source truncated its tail, or the destination kept it.
    end = F.when(F.col("stopped"), F.col("bound")).otherwise(F.greatest("a_end", "b_end"))
    tail = F.col("stopped") | F.col("all_due") | F.col("lag0_ns").isNotNull()
    longer = where.withColumn("high", F.when(tail, F.least(end, F.greatest("a_end", "b_end"))).otherwise(F.col("high")))
    longer = longer.withColumn(
        "high", F.when(~tail & (F.col("b_end") > F.col("a_end")), F.col("b_end")).otherwise(F.col("high"))
    )
    compared = longer.select(*PAIR, "low", "high")
    batches = batch_pairs(t, compared)
    suspect = compared.join(F.broadcast(unequal_partitions(batches)), list(PAIR), "left_semi")
    records = record_pairs(t, suspect).select(*PAIR, "offset", F.lit("the record").alias("what"))
    of_batches = batches.where("differs is not null and differs != 'missing'")
    of_batches = of_batches.select(*PAIR, F.col("base_offset").alias("offset"), F.col("differs").alias("what"))
    return (
        records.unionByName(of_batches)
        .groupBy(*PAIR)
        .agg(F.min("offset").alias("offset"), F.min_by("what", "offset").alias("what"), F.count("*").alias("places"))
    )


def _unclean(t: Tables) -> DataFrame | None:
    rows, where = diverged(t), ranges(t)
    if rows is None or where is None:
        return None
    rows = rows.join(F.broadcast(where.select(*PAIR, *_NAMES, "last_state", "lag0_ns")), list(PAIR))
    return anomalies(
        rows,
        "unclean_divergence",
        cluster="destination",
        topic="destination_topic",
        value=None,
        rank=-F.col("places"),
        explain=sentence(
            "after an unclean election %s-%s on %s differs from %s at %s places, first at offset %s (%s), and the"
            " mirror says %s",
            *("destination_topic", "partition", "destination", "source", "places", "offset", "what"),
            F.coalesce("last_state", F.lit("nothing")),
        ),
    )


def _before_divergence(t: Tables, rows: DataFrame, at: str) -> DataFrame:
    known = diverged(t)
    if known is None:
        return rows
    first = known.select(*PAIR, F.col("offset").alias("diverges_at"))
    rows = rows.join(F.broadcast(first), list(PAIR), "left")
    return rows.where(F.col("diverges_at").isNull() | (F.col(at) < F.col("diverges_at"))).drop("diverges_at")


def _contents(t: Tables) -> DataFrame | None:
    batches, records, where = _batches(t), _records(t), ranges(t)
    if batches is None or where is None:
        return None
    if records is None:
        return t.no_anomalies
    unequal = batches.where("differs is not null and differs != 'missing'")
    unequal = unequal.join(F.broadcast(where.select(*PAIR, *_NAMES)), list(PAIR))
    of_batches = _before_divergence(t, unequal, "base_offset").select(
        *(*PAIR, *_NAMES),
        F.col("base_offset").alias("offset"),
        F.lit(None).cast("string").alias("value"),
        F.concat(F.lit("the batches there have "), "differs").alias("what"),
    )
    # Where a batch at an offset is already reported, its records add nothing.
    reported = of_batches.select(*PAIR, "offset")
    contents = records.where("a is not null and b is not null").join(reported, [*PAIR, "offset"], "left_anti")
    # Batches with equal CRCs cannot hold unequal records; unequal batches are reported above.
    contents = contents.where("compacted") if _crcs_known(t) else _before_divergence(t, contents, "offset")
    moved = moved_values(t)
    if moved is not None:  # a record in another's place is reported as moved
        contents = contents.withColumn("value", F.col("b.value")).join(
            moved.select(*PAIR, "value"), [*PAIR, "value"], "left_anti"
        )
    words = [F.coalesce(F.col(f"{s}.control_type"), F.col(f"{s}.value"), F.lit("no value")) for s in ("a", "b")]
    of_records = contents.select(
        *(*PAIR, *_NAMES, "offset"),
        F.col("b.value").alias("value"),
        F.concat(F.lit("the records there are "), words[0], F.lit(" and "), words[1]).alias("what"),
    )
    return anomalies(
        of_batches.unionByName(of_records),
        "offset_identity",
        cluster="destination",
        topic="destination_topic",
        rank=F.col("offset"),
        explain=sentence(
            "offset %s of %s-%s is not equal on %s and %s: %s",
            *("offset", "destination_topic", "partition", "source", "destination", "what"),
        ),
    )


def _crcs_known(t: Tables) -> bool:
    return t.table("batches").where("crc is null").isEmpty()


def _gaps(t: Tables) -> DataFrame | None:
    records, values = _records(t), mirrored_values(t)
    if records is None or values is None:
        return None
    found = t.found(records.where("(a is null or b is null) and not compacted"))
    if found is None:
        return t.no_anomalies
    one_sided = _before_divergence(t, found, "offset")
    # A value that the destination does not hold at all is a loss, and a marker that it lacks is a missing marker.
    marker = F.coalesce(F.col("a.control_type").isin("COMMIT", "ABORT"), F.lit(False))
    one_sided = one_sided.where(~(marker & F.col("b").isNull()))
    one_sided = one_sided.withColumn("value", F.coalesce("a.value", "b.value"))
    lost = values.where("a_all > 0 and b_all = 0").select(*PAIR, "value", F.lit(True).alias("lost"))
    one_sided = one_sided.join(lost, [*PAIR, "value"], "left").where("not (b is null and coalesce(lost, false))")
    there, gone = (
        F.when(F.col("b").isNull(), F.col(one)).otherwise(F.col(two))
        for one, two in (("source", "destination"), ("destination", "source"))
    )
    what = F.coalesce("value", F.col("a.control_type"), F.col("b.control_type"), F.lit("a record"))
    return anomalies(
        one_sided,
        "gap_identity",
        cluster="destination",
        topic="destination_topic",
        rank=F.col("offset"),
        explain=sentence(
            "offset %s of %s-%s holds %s on %s and nothing on %s",
            *("offset", "destination_topic", "partition", what, there, gone),
        ),
    )


def moved_values(t: Tables) -> DataFrame | None:
    """Records of compacted topics that both sides hold once, at different offsets: PAIR, value, there (the source's
    offset), offset (the destination's). None where the mirror does not keep offsets, or nothing is compacted."""
    if not _compacted(t):
        return None
    return t.once("moved", _moved)


def _moved(t: Tables) -> DataFrame | None:
    where, values = ranges(t), mirrored_values(t)
    if where is None or values is None:
        return None
    both = values.where("a_all = 1 and b_all = 1 and b_first is not null and a_any != b_first")
    both = both.join(F.broadcast(where.where("compacted").select(*PAIR)), list(PAIR), "left_semi")
    # The source may have had a record there, too, and have removed it when its value was written again.
    sent = t.sends.where("outcome in ('acked', 'committed')").withColumnRenamed("cluster", "source")
    sent = sent.select("source", *PAIR[2:], "value", F.col("offset").alias("b_first"))
    both = both.join(sent, ["source", *PAIR[2:], "value", "b_first"], "left_anti")
    return both.select(*PAIR, "value", F.col("a_any").alias("there"), F.col("b_first").alias("offset"))


def _moves(t: Tables) -> DataFrame | None:
    moved, where = moved_values(t), ranges(t)
    if moved is None or where is None:
        return None
    return anomalies(
        moved.join(F.broadcast(where.select(*PAIR, *_NAMES)), list(PAIR)),
        "gap_identity",
        cluster="destination",
        topic="destination_topic",
        rank=F.col("there"),
        explain=sentence(
            "%s has offset %s in %s-%s on %s and offset %s on %s",
            *("value", "there", "destination_topic", "partition", "source", "offset", "destination"),
        ),
    )


def _topic_ids(t: Tables) -> DataFrame | None:
    probed = t.meta.capabilities.get("topic_id")
    where = bounds(t)
    if where is None or not (probed.yes if probed is not None else keeps_offsets(t)):
        return None
    ids = t.log_batches.where("topic_id is not null").groupBy("cluster", "origin_topic")
    one = ids.agg(F.min("topic_id").alias("id"))
    topics = where.select("source", "destination", "origin_topic", "destination_topic").distinct()
    a = one.select(F.col("cluster").alias("source"), "origin_topic", F.col("id").alias("a_id"))
    b = one.select(F.col("cluster").alias("destination"), "origin_topic", F.col("id").alias("b_id"))
    rows = topics.join(a, ["source", "origin_topic"]).join(b, ["destination", "origin_topic"]).where("a_id != b_id")
    return anomalies(
        rows,
        "topic_id",
        cluster="destination",
        topic="destination_topic",
        partition=None,
        offset=None,
        value=None,
        explain=sentence(
            "topic %s has ID %s on %s and %s on %s",
            *("destination_topic", "a_id", "source", "b_id", "destination"),
        ),
    )


CHECKER = Checker(name="mirror_identity", kinds=(IDENTITY, GAPS, UNCLEAN, TOPIC_ID), check=check)
