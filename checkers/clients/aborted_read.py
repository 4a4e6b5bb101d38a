"""`aborted_read` and `precommitted_read`: reads of data that was aborted, or not yet committed.

Proves: `aborted_read`: a read_committed poll returned a value of a transaction that was aborted or failed (G1a),
according to its client or to the log that holds the copy (a mirror's own transactions included); or any poll returned a
value whose send definitely failed. It also counts when the log ends a transaction with COMMIT that its client was told
is aborted, or holds a refused record: any reader may see it. Where a value was sent again, a copy is attributed to the
send that was acknowledged at its offset; a copy that may stem from a successful send is no anomaly.
`precommitted_read`: a read_committed poll returned a value of a transaction, and had completed, before its commit was
requested; or an operation read a value that it had itself sent and not yet committed.

Cannot see: transactions whose end is unknown; reads whose isolation level is unknown; for `precommitted_read` by
others, commits whose request is not in this history. A read_uncommitted reader may see aborted data.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.history import KEY, NEVER
from checkers.views.tables import Tables
from checkers.views.value_outcomes import acknowledged_at, shown_undone

ABORTED_READ = AnomalyKind(
    name="aborted_read",
    severity=Severity.S2,
    violation="showed aborted values",
    section=1,
    what="a read_committed reader sees no value of an aborted transaction, and no reader a value whose send failed",
    limitations="transactions whose end is unknown; polls of unknown isolation level",
    sources=("Adya: G1a", "Jepsen: jepsen.tests.kafka G1a", "KAFKA-17754", "KIP-890"),
    forms=("aborted", "failed"),
)
PRECOMMITTED_READ = AnomalyKind(
    name="precommitted_read",
    severity=Severity.S2,
    violation="showed values before their commit",
    section=1,
    what="no read_committed reader sees a record before its commit is requested, and no operation its own before that",
    limitations="transactions whose commit is not in the history; polls of unknown isolation level",
    sources=("Jepsen: jepsen.tests.kafka precommitted-read",),
)


def check(t: Tables) -> DataFrame | None:
    """Aborted or failed values that were read, or can be, and values read too early: one row per value and place."""
    rows = t.suspects.where("is_undone").withColumn("p", F.explode("places"))
    rows = rows.where(shown_undone(t, F.col("p"))).select(
        "value", "outcome", "op", "done_index", "decided_index", "p.*"
    )
    # Of several sends that a copy may stem from, the last; the log counts for all of them.
    last = Window.partitionBy("value", *KEY, "offset").orderBy(F.desc("op"))
    rows = rows.withColumn("n", F.row_number().over(last)).where("n = 1")
    refused = F.col("outcome") == "failed"
    reader = F.when(F.col("committed"), "read_committed").otherwise("read_uncommitted")
    shown = F.when(F.col("readers") > 0, sentence("a %s poll returned it", reader))
    shown = shown.when(refused, F.lit("the log holds it")).otherwise(F.lit("the log ends its transaction with COMMIT"))
    aborted = anomalies(
        rows,
        "aborted_read",
        form=F.when(refused, "failed").otherwise("aborted"),
        ops=op_list("op", "done_index", "decided_index", "op_index"),
        rank=-F.col("readers"),
        explain=sentence(
            "%s at offset %s of %s-%s on %s was %s, and %s",
            *("value", "offset", "topic", "partition", "cluster"),
            F.when(refused, "refused for certain").otherwise("aborted"),
            shown,
        ),
    )
    if not t.facts.transactional:
        return aborted
    own = _own(t)
    early = _precommitted(t).join(own, ["cluster", "topic", "partition", "offset", "value"], "left_anti")
    early = early.select(*own.columns)
    return union([aborted, own, early])


def _own(t: Tables) -> DataFrame:
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


def _precommitted(t: Tables) -> DataFrame:
    """Values that read_committed polls returned before their commit was requested: one row per value and place."""
    reads = t.near_reads.where("isolation = 'read_committed' and value is not null and offset is not null")
    place = [*KEY, "offset", "value"]
    reads = reads.groupBy(*place).agg(F.min("op_index").alias("op_index")).withColumn("p", F.struct(*KEY, "offset"))
    sends = t.near_sends.where("outcome != 'failed'").select(
        "value",
        F.struct(*KEY, "offset").alias("s"),
        *(F.col(c).alias(f"sent_{c}") for c in ("op", "outcome")),
        # Outside transactions there is no commit to wait for; the time of the commit request may also be unknown.
        F.coalesce("commit_asked", F.lit(-1)).alias("asked"),
    )
    rows = reads.join(sends, "value").withColumn("acknowledged", acknowledged_at(F.col("p"), F.col("s")))
    # The send that was acknowledged at this offset counts, else any send of the value; the earliest request counts.
    rows = rows.withColumn("any_acknowledged", F.max("acknowledged").over(Window.partitionBy(*place))).where(
        "acknowledged or not any_acknowledged"
    )
    early = rows.groupBy(*place, "op_index").agg(
        F.min("asked").alias("asked"),
        F.max(F.col("sent_outcome") != "aborted").alias("alive"),
        F.min("sent_op").alias("op"),
    )
    asked = F.when(F.col("asked") < NEVER, F.col("asked"))
    return anomalies(
        early.where("alive and op_index < asked"),
        "precommitted_read",
        ops=op_list("op", "op_index", asked),
        explain=sentence(
            "a read_committed poll returned %s at offset %s of %s-%s on %s before its commit was requested",
            *("value", "offset", "topic", "partition", "cluster"),
        ),
    )


CHECKER = Checker(
    name="aborted_read",
    kinds=(ABORTED_READ, PRECOMMITTED_READ),
    check=check,
    # For a small run the reads of transactions are not among the suspects.
    skip=lambda t: t.unsuspected and (t.large or not t.facts.transactional),
)
