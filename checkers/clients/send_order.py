"""`nonmonotonic_send` and `reordered`: one producer's records in another order than it sent them.

Proves: `nonmonotonic_send`: a process got a lower offset than for a record that it had sent before to the same
partition. `reordered`: two acknowledged records of one client and process and one partition are in the log, or were
read, in the opposite order. The order of sends is that of their invocations, and counts where it is guaranteed
(see `send_lines`). A value that is there twice counts at its first offset.

Cannot see: records with unknown result (they may be appended later); concurrent sends of producers that may have
retried without idempotence; the order on the other side of a mirror, which is `mirror_reorder`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.tables import Tables

NONMONOTONIC_SEND = AnomalyKind(
    name="nonmonotonic_send",
    severity=Severity.S2,
    violation="acknowledged sends at falling offsets",
    section=1,
    what="the offsets acknowledged to one process for one partition rise in the order of its sends",
    limitations="sends without an acknowledged offset; concurrent sends without idempotence",
    sources=("Jepsen: jepsen.tests.kafka nonmonotonic-send",),
)
REORDERED = AnomalyKind(
    name="reordered",
    severity=Severity.S2,
    violation="stored records out of the order of their sends",
    section=1,
    what="acknowledged records of one producer are in a partition in the order in which it sent them",
    limitations="sends with unknown result; concurrent sends without idempotence",
    sources=("KIP-98", "KAFKA-5494"),
)


def check(t: Tables) -> DataFrame | None:
    """Sends that were acknowledged at a lower offset, or are at a lower offset, than an earlier one."""
    back = anomalies(
        t.suspects.where("is_ack_back"),
        "nonmonotonic_send",
        ops=op_list("before_ack.op", "before_ack.done_index", "op", "done_index"),
        rank=F.col("offset") - F.col("before_ack.offset"),
        explain=sentence(
            "%s got offset %s of %s-%s on %s for %s, after offset %s for %s",
            *("process", "offset", "topic", "partition", "cluster", "value", "before_ack.offset", "before_ack.value"),
        ),
    )
    reordered = anomalies(
        t.suspects.where("is_reordered"),
        "reordered",
        offset="first_seen",
        ops=op_list("before_seen.op", "before_seen.done_index", "op", "done_index"),
        rank=F.col("first_seen") - F.col("before_seen.offset"),
        explain=sentence(
            "%s sent %s before %s, but %s-%s on %s holds them at offsets %s and %s",
            F.coalesce("client", "process"),
            *("before_seen.value", "value", "topic", "partition", "cluster", "before_seen.offset", "first_seen"),
        ),
    )
    return union([back, reordered])


CHECKER = Checker(name="send_order", kinds=(NONMONOTONIC_SEND, REORDERED), check=check, skip=lambda t: t.unsuspected)
