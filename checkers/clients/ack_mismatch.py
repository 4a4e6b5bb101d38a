"""`ack_mismatch`: a producer was told an offset at which another record is stored.

Proves: for an acknowledged record v with offset o, no reader and no log shows v at o, and either v is at another offset
of its partition (form `elsewhere`), or v is nowhere and the authoritative log holds another record at o that was there
already when v was acknowledged (form `overlaid`). The latter is how a broker answers when it mistakes a new record for
a duplicate of an old one.

Cannot see: a record that was stored, lost, and its offset reused (that is `lost_write`); acknowledgements without
an offset; `overlaid` without evidence of the log.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.keys import PARTITION, REPLICA
from checkers.views.tables import Tables

ACK_MISMATCH = AnomalyKind(
    name="ack_mismatch",
    severity=Severity.S1,
    violation="stored other records than it acknowledged",
    section=1,
    what="the record stored at an acknowledged offset is the record that was acknowledged there",
    limitations="acknowledgements without an offset; offsets reused after a loss; logs without evidence",
    sources=("redpanda#31659", "KIP-98", "KIP-1279"),
    forms=("elsewhere", "overlaid"),
)


def check(t: Tables) -> DataFrame | None:
    """Acknowledged records whose offset holds something else."""
    moved = t.suspects.where("is_elsewhere").withColumn(
        "found", F.array_min(F.transform("here", lambda p: p["offset"]))
    )
    elsewhere = anomalies(
        moved,
        "ack_mismatch",
        form=F.lit("elsewhere"),
        ops=op_list("op", "done_index"),
        rank=1,
        explain=sentence(
            "%s was acknowledged at offset %s of %s-%s on %s and is at offset %s",
            *("value", "offset", "topic", "partition", "cluster", "found"),
        ),
    )
    return union([elsewhere, _overlaid(t)])


def _overlaid(t: Tables) -> DataFrame | None:
    if not t.has("records"):
        return None
    place = [*PARTITION, "offset"]
    overlaid = t.suspects.where("is_overlaid and look_ns >= coalesce(done_ns, invoke_ns) and offset < log_end").select(
        *place, "value", "op", "done_index", "done_ns", "invoke_ns"
    )
    now = t.truth_log.select(
        *place, F.coalesce("value", F.concat(F.lit("a "), "control_type", F.lit(" marker"))).alias("now")
    )
    rows = overlaid.join(now, place).where("value != now")
    return anomalies(
        _stored_before(t, rows),
        "ack_mismatch",
        form=F.lit("overlaid"),
        ops=op_list("op", "done_index"),
        explain=sentence(
            "%s was acknowledged at offset %s of %s-%s on %s, where %s was stored already",
            *("value", "offset", "topic", "partition", "cluster", "now"),
        ),
    )


def _stored_before(t: Tables, rows: DataFrame) -> DataFrame:
    """The rows whose other record (`now`) is known to have been there before: by its own acknowledgement there, a read
    or an earlier snapshot; or, for a mirrored record, by its acknowledgement elsewhere before this one was sent."""
    place = [*PARTITION, "offset"]
    sent = t.near_sends.where("done_ns is not null and outcome in ('acked', 'committed')")
    sent = sent.select(
        F.col("value").alias("now"),
        F.col("cluster").alias("at"),
        F.col("offset").alias("o"),
        F.col("done_ns").alias("since"),
    )
    by_ack = rows.join(sent, "now").where(
        "(at = cluster and o = offset and since < done_ns) or (at != cluster and since < invoke_ns)"
    )
    read = t.near_polled.select(*place, F.col("value").alias("now"), F.col("first_ns").alias("since"))
    by_read = rows.join(read, [*place, "now"]).where("since < done_ns")
    times = (
        t.table("log_ends")
        .where("broker is not null")
        .select(*REPLICA, F.coalesce("look", F.lit(0)).alias("look"), F.col("time_ns").alias("since"))
    )
    snapshots = (
        t.table("records").withColumn("look", F.coalesce("look", F.lit(0))).join(F.broadcast(times), [*REPLICA, "look"])
    )
    snapshots = snapshots.select(*place, F.col("value").alias("now"), "since")
    by_snapshot = rows.join(snapshots, [*place, "now"]).where("since < done_ns")
    keys = ["cluster", "topic", "partition", "offset", "value", "now", "op", "done_index"]
    return by_ack.select(*keys).union(by_read.select(*keys)).union(by_snapshot.select(*keys)).distinct()


CHECKER = Checker(name="ack_mismatch", kinds=(ACK_MISMATCH,), check=check, skip=lambda t: t.unsuspected)
