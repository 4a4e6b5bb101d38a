"""`inconsistent_offsets`: two values at one offset of one partition.

Proves: two readers, or one reader at two times, or a reader and the authoritative log, have different records at one
(cluster, topic, partition, offset); or one snapshot of one replica shows two there. Where no log was read, an
acknowledgement contradicts what readers saw; it may be within an operation or transaction whose result is unknown.

Cannot see: differences between replicas that no client read (`replica_divergence`), and an acknowledgement that the log
contradicts (`ack_mismatch`): each fault has one name. An offset whose first record was lost unread is `lost_write`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.keys import PARTITION
from checkers.views.tables import Tables

INCONSISTENT_OFFSETS = AnomalyKind(
    name="inconsistent_offsets",
    severity=Severity.S1,
    violation="held two records at one offset",
    section=1,
    what="an offset of a partition holds one record, for every reader and at all times",
    limitations="differences between replicas that no client read",
    sources=("Jepsen: jepsen.tests.kafka inconsistent-offsets", "KAFKA-14704", "KAFKA-6361"),
)
PLACE = (*PARTITION, "era", "offset")


def check(t: Tables) -> DataFrame | None:
    """Offsets at which two values were seen, at least one of them by a reader, or both in one log."""
    seen = t.conflicts.select(*PLACE, "value", "op_index", "readers", "stored")
    overlaid = t.suspects.where("is_overlaid and not coalesce(look_ns >= coalesce(done_ns, invoke_ns), false)")
    read = t.near_polled.select(*PLACE, F.col("value").alias("other"), F.col("op_index").alias("read_index"))
    against = overlaid.select(*PLACE, "value", F.col("done_index").alias("op_index")).join(read, list(PLACE))
    mixed = seen.groupBy(*PLACE).agg(
        F.sort_array(F.collect_set("value")).alias("values"),
        F.min("op_index").alias("first"),
        F.max("op_index").alias("last"),
        F.sum("readers").alias("readers"),
        F.count(F.when(F.col("stored"), 1)).alias("stored"),
    )
    what = "offset %s of %s-%s on %s holds %s values: %s"
    listed = F.concat_ws(", ", F.slice("values", 1, 8))
    frames = [
        anomalies(
            mixed.where("readers > 0 or stored > 1"),
            "inconsistent_offsets",
            value=F.col("values")[0],
            ops=op_list("first", "last"),
            rank=-F.size("values"),
            explain=sentence(what, "offset", "topic", "partition", "cluster", F.size("values"), listed),
        ),
        anomalies(
            against,
            "inconsistent_offsets",
            ops=op_list("op_index", "read_index"),
            explain=sentence(
                "offset %s of %s-%s on %s was acknowledged for %s, and %s was read there",
                *("offset", "topic", "partition", "cluster", "value", "other"),
            ),
        ),
    ]
    return union(frames)


CHECKER = Checker(name="inconsistent_offsets", kinds=(INCONSISTENT_OFFSETS,), check=check, skip=lambda t: t.unsuspected)
