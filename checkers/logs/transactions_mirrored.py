"""`aborted_set`, `transaction_outcome`, `cross_partition`: transactions of the source on the destination.

Checks: what read_committed hides is the same on both clusters below the cut, a transaction that was committed on the
source is committed on the destination too, and at a stop no transaction over several partitions is there in part.
What the source committed beyond the cut is lag as long as the mirror could not know it: see `checkers.views.decided`.
The last two are limits of an asynchronous mirror; the contract decides their weight. A mirror that produces records
again (MM2) keeps no transactions: there only `aborted_set` (aborted records that became visible) and `cross_partition`
can be found, and a committed record that stays hidden is `mirror_loss`.

Cannot see: transactions whose records are not named, except partition by partition; partial visibility before the stop.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, checked, op_list, sentence
from checkers.views.decided import decided_in_time
from checkers.views.mirrored_values import bounds, mirrored_values
from checkers.views.mirroring import PAIR, keeps_offsets
from checkers.views.tables import Tables

_NEEDS = ("records", "log_ends")
ABORTED = AnomalyKind(
    name="aborted_set",
    severity=Severity.S2,
    violation="hid other records than its source from read_committed",
    section=3,
    what="what read_committed hides below the cut is the same on source and destination",
    limitations="transactions undecided on the source at the last snapshot",
    sources=("KIP-98", "KIP-1279"),
    requires=_NEEDS,
)
OUTCOME = AnomalyKind(
    name="transaction_outcome",
    severity=Severity.INFO,
    violation="ended transactions in another way than its source",
    section=3,
    what="a transaction committed on the source is committed on the destination, where its marker is below the cut or "
    "a stop had to wait for it: begun before, committed within 4 s, with a source that could be asked",
    limitations="mirrors that do not keep transactions; transactions that cannot be proven to have begun "
    "before the stop",
    sources=("KIP-1279: no exactly-once across clusters",),
    requires=_NEEDS,
)
CROSS = AnomalyKind(
    name="cross_partition",
    severity=Severity.INFO,
    violation="held parts of transactions at the stop",
    section=3,
    what="at the stop a transaction over several partitions is on the destination wholly or not at all",
    limitations="transactions whose records are not named; runs without a stop",
    sources=("KIP-1279", "KIP-656"),
    requires=_NEEDS,
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the destination; transactions are reported once each, with their first record."""
    values, where = mirrored_values(t), bounds(t)
    if values is None or where is None:
        return None
    return checked(t, [_visible(t, values, where), _outcomes(t, values, where), _partial(t, values, where)])


def _visible(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame | None:
    """Records that every transaction of the source aborted, visible on the destination."""
    shown = t.found(values.where("a_aborted and a_visible = 0 and b_visible > 0"))
    if shown is None:
        return None
    rows = shown.join(F.broadcast(where), list(PAIR))
    return anomalies(
        rows.where("a_any < bound or not stopped"),
        "aborted_set",
        cluster="destination",
        topic="destination_topic",
        offset="b_first",
        rank=F.col("a_any"),
        explain=sentence(
            "%s was aborted on %s (offset %s of %s-%s) and is visible on %s at offset %s",
            *("value", "source", "a_any", "source_topic", "partition", "destination", "b_first"),
        ),
    )


def _named(t: Tables, rows: DataFrame) -> DataFrame:
    """Add txn: the transaction's name, by who sent the value or by the log, else its producer and partition; and
    txn_end_at: the offset of the marker that ends it on the source."""
    sent = t.sends.where("txn is not null or f = 'txn'").select(
        F.col("cluster").alias("source"),
        "value",
        F.coalesce("txn", F.concat(F.lit("op "), F.col("op").cast("string"))).alias("sent_txn"),
        "decided_index",
    )
    sent = sent.dropDuplicates(["source", "value"])
    logs = t.truth_log.where("control_type is null and producer_id is not null")
    logs = logs.select(
        *(F.col("cluster").alias("source"), *PAIR[2:], "value", F.col("txn").alias("log_txn"), "producer_id"),
        "txn_end_at",
    ).dropDuplicates(["source", *PAIR[2:], "value"])
    rows = rows.join(sent, ["source", "value"], "left").join(logs, ["source", *PAIR[2:], "value"], "left")
    fallback = sentence("of producer %s in %s-%s", "producer_id", "origin_topic", "partition")
    return rows.withColumn("txn", F.coalesce("sent_txn", "log_txn", fallback))


def _outcomes(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame | None:
    if not keeps_offsets(t):
        return None
    hidden = values.where("a_visible > 0 and b_all > 0 and b_alive = 0").join(F.broadcast(where), list(PAIR))
    found = t.found(hidden.where("a_first < bound"))
    if found is None:
        return None
    hidden = decided_in_time(t, _named(t, found))
    one = hidden.groupBy("source", "destination", "txn").agg(
        F.count("*").alias("records"),
        F.min(F.struct("destination_topic", "partition", F.col("b_first").alias("offset"), "value")).alias("first"),
        F.max("decided_index").alias("decided_index"),
    )
    return anomalies(
        one.select("source", "destination", "txn", "records", "decided_index", "first.*"),
        "transaction_outcome",
        cluster="destination",
        topic="destination_topic",
        ops=op_list("decided_index"),
        rank=-F.col("records"),
        explain=sentence(
            "transaction %s was committed on %s and aborted on %s: %s of its records are hidden there, the first %s",
            *("txn", "source", "destination", "records", "value"),
        ),
    )


def _partial(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame | None:
    if not t.facts.transactional:
        return None
    stopped = t.found(where.where("stopped"))
    if stopped is None:
        return None
    rows = values.where("a_visible > 0").join(F.broadcast(stopped), list(PAIR))
    sent = t.sends.where("outcome = 'committed'").select(
        F.col("cluster").alias("source"),
        "value",
        F.coalesce("txn", F.concat(F.lit("op "), F.col("op").cast("string"))).alias("txn"),
        F.coalesce("decided_index", "done_index").alias("decided_index"),
    )
    rows = rows.join(sent.dropDuplicates(["source", "value"]), ["source", "value"])
    place = F.concat_ws("-", "destination_topic", "partition")
    there = F.col("b_visible") > 0
    # Not mirrored in time, or mirrored and then aborted by the stop.
    lag = ~there & ((F.col("a_first") >= F.col("bound")) | (F.col("b_all") > 0))
    one = rows.groupBy("source", "destination", "txn").agg(
        F.count_distinct(place).alias("places"),
        F.count(F.when(there, 1)).alias("there"),
        F.count(F.when(lag, 1)).alias("lagging"),
        F.array_join(F.array_sort(F.collect_set(F.when(there, place))), ", ").alias("with"),
        F.min(F.when(lag, F.struct("destination_topic", "partition", F.col("a_first").alias("offset"), "value"))).alias(
            "first"
        ),
        F.max("decided_index").alias("decided_index"),
    )
    one = one.where("places > 1 and there > 0 and lagging > 0")
    return anomalies(
        one.select("source", "destination", "txn", "there", "lagging", "with", "decided_index", "first.*"),
        "cross_partition",
        cluster="destination",
        topic="destination_topic",
        ops=op_list("decided_index"),
        rank=F.col("offset"),
        explain=sentence(
            "at the stop transaction %s was on %s in part: %s records are visible (%s), %s are not, the first %s",
            *("txn", "destination", "there", "with", "lagging", "value"),
        ),
    )


CHECKER = Checker(name="transactions_mirrored", kinds=(ABORTED, OUTCOME, CROSS), check=check)
