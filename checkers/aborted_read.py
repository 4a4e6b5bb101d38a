"""`aborted_read` and `precommitted_read`: reads of what was undone, or not yet done.

Proves: `aborted_read`: a read_committed poll returned a value of a transaction that was aborted or failed (G1a), or
any poll returned a value whose send definitely failed. `precommitted_read`: an operation read a value that it had
itself sent and not yet committed.

Cannot see: transactions whose end is unknown; reads of which the isolation level is unknown. A read_uncommitted
reader may see aborted data lawfully.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import Checker, Kind, Severity, anomalies, op_list, sentence, union
from checkers.tables import Tables

ABORTED_READ = Kind(
    name="aborted_read",
    severity=Severity.S2,
    section=1,
    what="a read_committed reader sees no value of an aborted transaction, and nobody one whose send failed",
    blind="transactions whose end is unknown; polls of unknown isolation level",
    sources=("Adya: G1a", "Jepsen: jepsen.tests.kafka G1a", "KAFKA-17754", "KIP-890"),
    forms=("aborted", "failed"),
)
PRECOMMITTED_READ = Kind(
    name="precommitted_read",
    severity=Severity.S2,
    section=1,
    what="no operation reads its own records before it has committed them",
    blind="transactions whose polls do not name the transaction",
    sources=("Jepsen: jepsen.tests.kafka precommitted-read",),
)


def find(t: Tables) -> DataFrame | None:
    """Undone values that were read, one row per value and place; own values read too early."""
    places = t.suspects.where("is_undone").select(
        "value", "outcome", "op", "done_index", "decided_index", F.explode("places").alias("p")
    )
    rows = places.select("value", "outcome", "op", "done_index", "decided_index", "p.*")
    rows = rows.where("(outcome = 'aborted' and committed) or (outcome = 'failed' and readers > 0)")
    aborted = anomalies(
        rows,
        "aborted_read",
        form=F.col("outcome"),
        ops=op_list("op", "done_index", "decided_index", "op_index"),
        rank=-F.col("readers"),
        explain=sentence(
            "%s at offset %s of %s-%s on %s was %s, and a %s poll returned it",
            *("value", "offset", "topic", "partition", "cluster"),
            F.when(F.col("outcome") == "aborted", "aborted").otherwise("refused for certain"),
            F.when(F.col("committed"), "read_committed").otherwise("read_uncommitted"),
        ),
    )
    return union([aborted, _precommitted(t)])


def _precommitted(t: Tables) -> DataFrame | None:
    if not t.facts.transactional:
        return None
    reads = t.near_reads.where(
        "(f = 'txn' or txn is not null) and coalesce(isolation, '') != 'read_uncommitted'"
    ).select(
        *("cluster", "value", "topic", "partition", "offset", "op_index"),
        F.col("op").alias("read_op"),
        F.col("txn").alias("read_txn"),
    )
    sends = t.near_sends.where("f = 'txn' or txn is not null").select("cluster", "value", "op", "txn", "decided_index")
    own = ((F.col("op") == F.col("read_op")) & F.col("decided_index").isNull()) | (
        (F.col("txn") == F.col("read_txn")) & (F.col("op_index") < F.coalesce("decided_index", F.lit(2**62)))
    )
    return anomalies(
        reads.join(sends, ["cluster", "value"]).where(own),
        "precommitted_read",
        ops=op_list("op", "op_index"),
        explain=sentence(
            "a transaction read %s at offset %s of %s-%s on %s, which it had sent itself and not yet committed",
            *("value", "offset", "topic", "partition", "cluster"),
        ),
    )


CHECKER = Checker(name="aborted_read", kinds=(ABORTED_READ, PRECOMMITTED_READ), find=find)
