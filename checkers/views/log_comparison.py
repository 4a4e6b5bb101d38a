"""Compares the logs of two clusters, batch by batch and, where batches differ, record by record.

Not a checker: shared by `mirror_identity` and `failback`. Batches are joined on their base offset, so the cost depends
on their number, never on how large their offsets are. Records are compared only in partitions where a batch differs or
where the history does not have the CRCs (an imported one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.views.mirroring import PAIR, keeps_producer_ids

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_SAME = ("last_offset", "producer_epoch", "base_sequence", "control_type", "records_count")
_BATCH = ("base_offset", *_SAME, "producer_id", "crc", "leader_epoch")


def batch_pairs(t: Tables, where: DataFrame) -> DataFrame:
    """Batches of both sides: PAIR, base_offset, a and b (structs of the batch's columns, null where a side has no
    batch that begins there), `differs`: the difference, null when all is equal.

    where: PAIR, low, high: the range of offsets to compare, one row per partition.
    """
    sides = [_batches(t, where, side) for side in ("source", "destination")]
    both = (
        sides[0]
        .withColumnRenamed("batch", "a")
        .join(sides[1].withColumnRenamed("batch", "b"), [*PAIR, "base_offset"], "full")
    )
    return both.withColumn("differs", _difference(keeps_producer_ids(t)))


def _batches(t: Tables, where: DataFrame, side: str) -> DataFrame:
    log = t.log_batches.join(F.broadcast(t.truth.select("cluster", "topic", "partition", "broker")),
                             ["cluster", "topic", "partition", "broker"])  # fmt: skip
    ranges = where.withColumnRenamed(side, "cluster")
    inside = log.join(F.broadcast(ranges), ["cluster", "origin_topic", "partition"])
    inside = inside.where("last_offset >= low and base_offset < high")
    inside = inside.withColumnRenamed("cluster", side)
    return inside.select(*PAIR, "base_offset", F.struct(*_BATCH[1:]).alias("batch"))


def _difference(ids_kept: bool) -> Column:
    both = F.col("a").isNotNull() & F.col("b").isNotNull()
    result = F.lit(None).cast("string")
    # A batch's CRC covers its producer id: where ids are rewritten it must differ, and is verified separately.
    names = (*_SAME, "producer_id", "crc") if ids_kept else _SAME
    for name in reversed(names):
        one, two = F.col(f"a.{name}"), F.col(f"b.{name}")
        unequal = ~one.eqNullSafe(two)
        if name in ("crc", "records_count"):
            unequal = one != two  # unknown is not unequal
        elif name != "control_type":
            unequal = F.coalesce(one, F.lit(-1)) != F.coalesce(two, F.lit(-1))
        words = F.concat(F.lit(name.replace("_", " ")), F.lit(" "), _shown(one), F.lit(" and "), _shown(two))
        result = F.when(both & F.coalesce(unequal, F.lit(False)), words).otherwise(result)
    return F.when(F.col("a").isNull() | F.col("b").isNull(), F.lit("missing")).otherwise(result)


def _shown(value: Column) -> Column:
    return F.coalesce(value.cast("string"), F.lit("none"))


def record_pairs(t: Tables, where: DataFrame) -> DataFrame:
    """Records that are not equal on both sides: PAIR, offset, a and b (structs of value, key, hash, control_type; null
    where a side has nothing at that offset). `where` as in `batch_pairs`."""
    sides = []
    for side in ("source", "destination"):
        ranges = where.withColumnRenamed(side, "cluster")
        rows = t.truth_log.join(F.broadcast(ranges), ["cluster", "origin_topic", "partition"])
        rows = rows.where("offset >= low and offset < high").withColumnRenamed("cluster", side)
        record = F.struct("value", "key", F.col("value_hash").alias("hash"), "control_type")
        sides.append(rows.select(*PAIR, "offset", record.alias(side[0])))
    both = sides[0].withColumnRenamed("s", "a").join(sides[1].withColumnRenamed("d", "b"), [*PAIR, "offset"], "full")
    a, b = F.col("a"), F.col("b")
    # Control records have a version and a coordinator epoch in their bytes: only their type counts.
    hashes = a["hash"].isNotNull() & b["hash"].isNotNull() & a["control_type"].isNull()
    content = F.when(hashes, a["hash"] == b["hash"]).otherwise(
        a["value"].eqNullSafe(b["value"]) & a["key"].eqNullSafe(b["key"])
    )
    equal = a["control_type"].eqNullSafe(b["control_type"]) & content
    return both.where(a.isNull() | b.isNull() | ~equal)


def unequal_partitions(batches: DataFrame) -> DataFrame:
    """PAIR of the partitions whose records must be compared, from the rows of `batch_pairs`."""
    unknown = F.col("a.crc").isNull() | F.col("b.crc").isNull()
    return batches.where(F.col("differs").isNotNull() | unknown).select(*PAIR).distinct()
