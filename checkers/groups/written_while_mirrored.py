"""`written_while_mirrored`: a client's write was accepted on the destination before its partition's mirror stopped.

Proves: a send was acknowledged by the destination, and both its beginning and its acknowledgement are within a time
span in which the partition was mirrored according to the mirror's states (anything but STOPPED; paused and failed ones
are still read-only). Form `unclear`: in such a span a send was refused with an uninformative error (an unknown server
error).

Cannot see: partitions whose state is not recorded; a write between the last snapshot of a mirrored partition and a stop
that only a snapshot shows; writes by the mirror's own principal, and by clients that the history does not record.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence
from checkers.views.keys import PARTITION
from checkers.views.mirror_spans import spans
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="written_while_mirrored",
    severity=Severity.S1,
    violation="accepted writes while it was mirrored",
    section=4,
    what="no client's write to the destination succeeds before the partition is stopped; the refusal gives the reason",
    limitations="partitions without recorded states; writers that the history does not record",
    sources=("KIP-1279",),
    requires=("ops", "op_records", "mirror_states"),
    forms=("accepted", "unclear"),
)
_UNCLEAR = ("UNKNOWN_SERVER_ERROR", "UNKNOWN", "_FAIL")


def check(t: Tables) -> DataFrame | None:
    """One row per value."""
    sends = t.sends.where("partition is not null and type in ('ok', 'fail') or outcome in ('acked', 'committed')")
    rows = sends.join(F.broadcast(spans(t)), list(PARTITION))
    rows = rows.where("invoke_ns >= from_ns and coalesce(done_ns, invoke_ns) < coalesce(until_ns, 9223372036854775807)")
    # Also in a transaction that was aborted later: the append itself must be refused.
    accepted = (F.col("type") == "ok") | F.col("outcome").isin("acked", "committed")
    refused = t.ops.where("type = 'fail' and f = 'send'").where(F.upper("error").isin(*_UNCLEAR))
    refused = refused.select(F.col("index").alias("done_index"), "error")
    rows = rows.join(refused, "done_index", "left")
    rows = rows.withColumn("accepted", accepted).where("accepted or error is not null")
    return anomalies(
        rows,
        "written_while_mirrored",
        form=F.when(F.col("accepted"), "accepted").otherwise("unclear"),
        ops=op_list("op", "done_index"),
        rank="done_index",
        explain=F.when(
            F.col("accepted"),
            sentence(
                "%s accepted %s at offset %s of %s-%s while that partition was mirrored (%s)",
                *("cluster", "value", "offset", "topic", "partition", "state"),
            ),
        ).otherwise(
            sentence(
                "%s refused %s for %s-%s, which is mirrored, with %s: that does not give the reason",
                *("cluster", "value", "topic", "partition", "error"),
            )
        ),
    )


CHECKER = Checker(name="written_while_mirrored", kinds=(KIND,), check=check)
