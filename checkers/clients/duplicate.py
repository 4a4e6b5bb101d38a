"""`duplicate` and `duplicate_or_aborted`: one value at more offsets of a partition than its sends, or its copies on the
source, explain.

Proves: clients saw, or the authoritative log holds, a value more often than it was sent there with success or unknown
result; on a mirror's destination, more often than on the source. Each send of a value that is sent again (after a
definite refusal, a time-out, an abort) may leave one copy; the same producer id, epoch and sequence is the same send,
and is stored once. A client whose log or sends show that it works without idempotence (producer id -1) repeats records
itself, and no broker could detect it; its duplicates, and the mirror's copies of them, are no anomaly. Neither are
those of librdkafka's idempotent producer after a record has timed out: it raises its producer epoch, and sends again
what it had sent together with that record (confluentinc/librdkafka#4953). Copies of aborted transactions do not count,
whether a client's or the mirror's own, because read_committed readers never see them. The contract decides whether
duplicates are a fault or an accepted cost.
`duplicate_or_aborted`: on the destination of a mirror that writes in transactions of its own, polls that were not
read_committed returned several copies, and no log shows which of them were aborted: the run cannot decide.

Cannot see: two copies of which one expired before it was read; copies of values without a known send on the destination
of a topic that is compacted on the source; a broker that duplicates what a client without idempotence sent.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.history import KEY
from checkers.views.incarnations import undecided
from checkers.views.mirroring import NEVER, compacted_on, own_transactions
from checkers.views.tables import Tables
from checkers.views.value_outcomes import undone

_TIMED_OUT = "_MSG_TIMED_OUT"

DUPLICATE = AnomalyKind(
    name="duplicate",
    severity=Severity.S1,
    violation="held values twice",
    section=1,
    what="a partition holds a value once for each send of it, and a destination no more often than its source",
    limitations="a second copy that expired before it was read; records of clients without idempotence; records that "
    "Shatterproof's clients sent again under a new producer epoch after a time-out",
    sources=("Jepsen: jepsen.tests.kafka duplicate", "KIP-98", "KIP-656"),
)
DUPLICATE_OR_ABORTED = AnomalyKind(
    name="duplicate_or_aborted",
    severity=Severity.UNKNOWN,
    section=1,
    what="for a value that was read twice, a log or a read_committed reader shows whether a copy is an aborted one",
    limitations="mirrors that write without transactions of their own: there each copy counts",
    sources=("KIP-618",),
)


def check(t: Tables) -> DataFrame | None:
    """Values at more offsets of one partition than its sends explain. `offset` is the second copy's."""
    first, least = ("attempts", "places"), ("op", "done_index")
    rows = t.suspects.where("is_duplicate").groupBy("value")
    values = rows.agg(*(F.first(c).alias(c) for c in first), *(F.min(c).alias(c) for c in least))
    copies = values.withColumn("p", F.explode("places")).where(~_aborted(F.col("p"), F.col("attempts")))
    copies = copies.where(~undecided("p.era"))  # read while its topic was recreated: of either incarnation
    copies = copies.withColumn("certain", _certain(t, F.col("p")))
    by_place: DataFrame = copies.groupBy("value", *(F.col(f"p.{c}").alias(c) for c in (*KEY, "origin_topic"))).agg(
        F.array_sort(F.collect_set("p.offset")).alias("offsets"),
        F.array_sort(F.collect_set(F.when(F.col("certain"), F.col("p.offset")))).alias("sure"),
        F.collect_set(F.struct("p.offset", "p.producer_id", "p.producer_epoch", "p.sequence")).alias("held"),
        F.bool_and(F.coalesce(F.col("p.producer_id") == -1, F.lit(False))).alias("plain"),
        F.bool_or(F.coalesce(F.col("p.producer_id") >= 0, F.lit(False))).alias("idempotent"),
        F.bool_and(F.col("certain") & (F.col("p.stored") | F.col("p.committed"))).alias("settled"),
        *(F.first(c).alias(c) for c in first),
        *(F.min(c).alias(c) for c in least),
        F.min("p.op_index").alias("first_read"),
        F.max("p.op_index").alias("last_read"),
    )
    by_place = by_place.where("size(offsets) > 1").withColumns({"allowed": _allowed(t), "repeats": _repeats()})
    late = t.ops.where(f"f = 'send' and type = 'info' and error = '{_TIMED_OUT}'").select("cluster").distinct()
    by_place = by_place.join(F.broadcast(late.withColumn("timed_out", F.lit(True))), "cluster", "left")
    by_place = by_place.where(~_without_idempotence(t) & ~_under_new_epochs(t))
    doubled = F.col("repeats") | (F.size("sure") > F.col("allowed"))
    where = ("topic", "partition", "cluster")
    listed = F.concat_ws(", ", F.slice("offsets", 1, 8).cast("array<string>"))
    ops = op_list("op", "done_index", "first_read", "last_read")
    by_place = by_place.withColumn("doubled", F.coalesce(doubled, F.lit(False)))
    found = anomalies(
        by_place.where("doubled"),
        "duplicate",
        offset=F.col("offsets")[1],
        ops=ops,
        rank=-F.size("offsets"),
        explain=sentence("%s is %s times in %s-%s on %s: at offsets %s", "value", F.size("offsets"), *where, listed),
    )
    either = anomalies(
        by_place.where("not doubled and size(offsets) > allowed"),
        "duplicate_or_aborted",
        offset=F.col("offsets")[1],
        ops=ops,
        explain=sentence(
            "%s was read %s times in %s-%s on %s (at offsets %s), and no log shows whether a copy is an aborted one",
            *("value", F.size("offsets"), *where, listed),
        ),
    )
    return union([found, either])


def _aborted(place: Column, attempts: Column) -> Column:
    """Whether the copy at a place is one of an aborted transaction, by its log, or can only be that of a send that was
    aborted or refused (reads of it are `aborted_read`)."""
    by_send = F.exists(attempts, lambda s: undone(place, s, attempts))
    return F.coalesce(place["txn_end"] == "ABORT", F.lit(False)) | by_send


def _certain(t: Tables, place: Column) -> Column:
    """Whether a copy is known not to be an aborted one of the mirror's own transactions."""
    mirrored = place["cluster"].isin(*own_transactions(t))
    sent_there = F.exists("attempts", lambda s: s["cluster"] == place["cluster"])
    return ~mirrored | sent_there | place["stored"] | place["committed"]


def _tries(cluster: Column, aborted: Callable[[Column], Column]) -> Column:
    """How many sends may have left a copy in the row's partition on a cluster: refused ones did not, and
    aborted ones only if `aborted` says so. One that repeats another's producer id, epoch and sequence does not count.
    """

    def counts(s: Column) -> Column:
        same = (s["origin_topic"] == F.col("origin_topic")) & (
            F.coalesce(s["partition"], F.col("partition")) == F.col("partition")
        )
        kept = (s["outcome"] != "failed") & ((s["outcome"] != "aborted") | aborted(s))
        return same & (s["cluster"] == cluster) & kept

    sends = F.filter("attempts", counts)
    numbered = F.filter(sends, lambda s: F.coalesce((s["producer_id"] >= 0) & (s["sequence"] >= 0), F.lit(False)))
    names = F.transform(numbered, lambda s: F.struct(s["producer_id"], s["producer_epoch"], s["sequence"]))
    return F.size(sends) - F.size(numbered) + F.size(F.array_distinct(names))


def _allowed(t: Tables) -> Column:
    """How many copies the sends on this cluster, and the copies on those it is mirrored from, explain. A copy that
    neither a log nor a read_committed reader shows may be of a transaction that was aborted."""
    unsettled = ~F.col("settled")
    mirrored = F.greatest(*(_mirrored_from(t, letter) for letter in ("A", "B", "C")))
    own = _tries(F.col("cluster"), lambda s: unsettled & s["offset"].isNull())
    return F.greatest(own + mirrored, F.lit(1))


def _mirrored_from(t: Tables, letter: str) -> Column:
    """How many copies may have come from that cluster: as many as it holds, or, where that is unknown, as were sent to
    it. Where a cleaner may have removed copies and no send is known, it may have been any number."""
    source, unsettled = F.lit(letter), ~F.col("settled")
    sent = F.exists("attempts", lambda s: s["cluster"] == source)
    log_seen = F.exists("attempts", lambda s: (s["cluster"] == source) & s["log_seen"])
    copies = F.filter("places", lambda p: _copy_of(p, source) & (unsettled | ~_aborted(p, F.col("attempts"))))
    cleaned = F.col("origin_topic").isin(*compacted_on(t, letter))
    tries = F.when(log_seen & F.col("settled") & ~cleaned, 0).otherwise(_tries(source, lambda _: unsettled))
    upstream = (source < F.col("cluster")) | (sent & (source != F.col("cluster")))
    many = F.when(cleaned & ~sent & (F.size(copies) > 0), NEVER)
    return F.when(upstream, F.coalesce(many, F.greatest(F.size(copies), tries))).otherwise(0)


def _copy_of(place: Column, cluster: Column) -> Column:
    """Whether a place is in the row's partition on that cluster."""
    return (
        (place["cluster"] == cluster)
        & (place["origin_topic"] == F.col("origin_topic"))
        & (place["partition"] == F.col("partition"))
    )


def _repeats() -> Column:
    """Whether the log holds one producer id, epoch and sequence at two offsets."""
    numbered = F.filter("held", lambda h: F.coalesce((h["producer_id"] >= 0) & (h["sequence"] >= 0), F.lit(False)))
    names = F.transform(numbered, lambda h: F.struct(h["producer_id"], h["producer_epoch"], h["sequence"]))
    return F.size(F.array_distinct(names)) < F.size(names)


def _sent_here() -> Column:
    """Whether the value was sent to the row's cluster."""
    return F.exists("attempts", lambda s: s["cluster"] == F.col("cluster"))


def _without_idempotence(t: Tables) -> Column:
    """Whether the client that sent the value to this cluster works without idempotence and may have repeated it itself,
    unseen. The logs of a Shatterproof run show this for each record; elsewhere the send must state it, and recorded
    retries are counted."""
    if not t.stored.imported:
        return _sent_here() & F.col("plain")
    here = F.filter("attempts", lambda s: s["cluster"] == F.col("cluster"))
    said = F.forall(here, lambda s: F.coalesce(s["producer_id"] == -1, F.lit(False)))
    return (F.size(here) == 1) & said & ~F.col("idempotent")


def _under_new_epochs(t: Tables) -> Column:
    """Whether the client that sent the value to this cluster sent it again under other producer epochs, after a record
    of a client's had timed out. No broker makes a copy with another epoch than it was sent with."""
    if t.stored.imported:
        return F.lit(False)
    ids = F.array_distinct(F.transform("held", lambda h: h["producer_id"]))
    epochs = F.array_distinct(F.transform("held", lambda h: h["producer_epoch"]))
    one_client = (F.size(ids) == 1) & F.coalesce(ids[0] >= 0, F.lit(False))
    return _sent_here() & F.coalesce("timed_out", F.lit(False)) & one_client & (F.size(epochs) == F.size("held"))


CHECKER = Checker(name="duplicate", kinds=(DUPLICATE, DUPLICATE_OR_ABORTED), check=check, skip=lambda t: t.unsuspected)
