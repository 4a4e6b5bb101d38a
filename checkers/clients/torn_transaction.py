"""`torn_transaction`: a read_committed reader sees part of a transaction.

Proves: of one transaction that is committed (or of unknown result, but partly visible, hence committed), on the cluster
where it was written, some records were returned by read_committed polls and others were skipped by a complete
read_committed final read; in a history without final reads, by any read_committed poll of a higher offset.

Cannot see: transactions that were aborted (reads of them are `aborted_read`), those cut by a mirror's stop on the
other cluster (`cross_partition`), and records of an undecided transaction that were never seen.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence
from checkers.views.tables import Tables

TORN_TRANSACTION = AnomalyKind(
    name="torn_transaction",
    severity=Severity.S1,
    violation="showed transactions in part",
    section=1,
    what="after its end, read_committed readers see all records of a transaction or none",
    limitations="records of an undecided transaction that were never seen; transactions cut by a mirror's stop",
    sources=("KIP-98", "KIP-890", "KAFKA-17754"),
)


def check(t: Tables) -> DataFrame | None:
    """Records that were skipped while others of their transaction were shown."""
    if not t.facts.transactional:
        return None
    return anomalies(
        t.suspects.where("is_torn"),
        "torn_transaction",
        ops=op_list("op", "done_index", "decided_index"),
        explain=sentence(
            "read_committed readers saw other records of transaction %s, but not %s (%s-%s on %s, offset %s)",
            F.coalesce("txn", F.concat(F.lit("of operation "), F.col("op").cast("string"))),
            *("value", "topic", "partition", "cluster", "offset"),
        ),
    )


CHECKER = Checker(
    name="torn_transaction",
    kinds=(TORN_TRANSACTION,),
    check=check,
    skip=lambda t: t.facts.transactional and t.unsuspected,
)
