"""`pid_swallowed`: a local write that the destination acknowledged and dropped as a duplicate of a mirrored producer's.

A broker that holds mirrored producer state answers a local producer of the same id, epoch and sequence with the offset
of the mirrored batch, and appends nothing. Proves it from the log: the acknowledged value is nowhere in it, and at the
acknowledged offset is a record of the source whose batch has a sequence (and, where the client knows its producer id,
that id and epoch). `lost_write` and `ack_mismatch` report the same write without its cause.

Cannot see: the cause where the log does not state sequences, as in imported histories; writes dropped on a mirror that
renumbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.keys import PARTITION
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="pid_swallowed",
    severity=Severity.S1,
    violation="treated new writes as duplicates",
    section=3,
    what="an acknowledged local write is at its offset, not deduplicated against a mirrored producer's state",
    limitations="the cause, where the log does not state sequences",
    sources=("KIP-1279", "redpanda#31659", "CORE-16631"),
    requires=("ops", "op_records", "records", "log_ends"),
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the destination, at the acknowledged offset."""
    chain = [source for source, _ in t.mirror_pairs]
    return union([_swallowed(t, chain[: n + 1], destination) for n, (_, destination) in enumerate(t.mirror_pairs)])


def _swallowed(t: Tables, sources: Sequence[str], destination: str) -> DataFrame:
    """sources: the clusters from which records come here, over one mirror or several."""
    log = t.truth_log.where(F.col("cluster") == destination).where("control_type is null")
    mirrored = t.sends.where(F.col("cluster").isin(*sources)).select("value").distinct()
    at_offset = log.where("sequence >= 0").join(mirrored, "value", "left_semi")
    at_offset = at_offset.select(
        *(*PARTITION, "offset", "sequence"),
        F.col("value").alias("stored"),
        F.col("producer_id").alias("stored_id"),
        F.col("producer_epoch").alias("stored_epoch"),
    )
    local = t.sends.where(F.col("cluster") == destination).where(
        "offset is not null and outcome in ('acked', 'committed')"
    )
    local = local.where("era >= 0")  # not of a branch of the log that a later failback discarded
    rows = local.select(*PARTITION, "offset", "value", "process", "producer_id", "producer_epoch", "op", "done_index")
    rows = rows.join(at_offset, [*PARTITION, "offset"]).where("value != stored")
    same = F.coalesce(F.col("producer_id") == F.col("stored_id"), F.lit(True))
    same = same & F.coalesce(F.col("producer_epoch") == F.col("stored_epoch"), F.lit(True))
    held = log.select(*PARTITION, "value")
    rows = rows.where(same).join(held, [*PARTITION, "value"], "left_anti")
    return anomalies(
        rows,
        "pid_swallowed",
        ops=op_list("op", "done_index"),
        rank=F.col("offset"),
        explain=sentence(
            "%s of %s was acknowledged at offset %s of %s-%s on %s, where the mirrored %s is (producer id %s, epoch"
            " %s, sequence %s); it is nowhere in the log",
            *("value", "process", "offset", "topic", "partition", "cluster", "stored", "stored_id", "stored_epoch"),
            "sequence",
        ),
    )


CHECKER = Checker(name="pid_swallowed", kinds=(KIND,), check=check)
