"""`lost_write` and `unseen`: acknowledged records that are gone, and those that the run cannot decide.

Proves: an acknowledged record (or one of a transaction whose commit was acknowledged) is not there at the end, on the
cluster that acknowledged it. Forms: `gone`: the authoritative log, read after the acknowledgement, does not hold
it (or holds it aborted); `unreadable`: a complete final read did not return it; `passed`: neither log nor final read
exists, it was never read, and a record after it was. A record that was read once and is gone later is lost, too.
A record that a mirror did not copy is not lost here: that is `mirror_loss`. A loss by an unclean election is the loss
of the cluster that held the election. Records above the cut that a failback discarded belong to `failback`; in a round
trip every turn has its own cut, and what is acknowledged after a turn is lost if it is gone.

Cannot see: records that retention or a deletion removed as configured; of compacted topics, records that a later one of
their key supersedes, or may supersede, and those without a key; records sent without acknowledgement, and, without
evidence or complete final reads, a loss at the very end of a partition: those are `unseen`, as Jepsen's checker calls
them, and then the verdict is unknown at best.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.failbacks import discarded_by, discards
from checkers.views.mirror_starts import PLACE
from checkers.views.tables import Tables
from checkers.views.txn_batches import txn_batches

LOST_WRITE = AnomalyKind(
    name="lost_write",
    severity=Severity.S1,
    violation="lost acknowledged writes",
    section=1,
    what="every acknowledged record, and every record of a committed transaction, can be read afterwards",
    limitations="records that expired as configured; superseded records of compacted topics; sends that were never "
    "acknowledged",
    sources=("Jepsen: jepsen.tests.kafka lost-write", "KAFKA-6361", "KIP-279", "KIP-966"),
    forms=("gone", "unreadable", "passed"),
)
UNSEEN = AnomalyKind(
    name="unseen",
    severity=Severity.UNKNOWN,
    section=1,
    what="the final read gets far enough to tell a lost record from a late one",
    limitations="clusters that an imported history never reads",
    sources=("Jepsen: jepsen.tests.kafka unseen",),
)


def check(t: Tables) -> DataFrame | None:
    """Acknowledged records that are not there, and those that were not looked for."""
    ops = op_list("op", "done_index")
    gone = sentence("the log from %s to %s, read afterwards, does not hold it", "log_start", "log_end")
    unreadable = sentence("a complete final read from %s to %s did not return it", "final_start", "final_end")
    passed = sentence("it was never read, though offset %s was read", "max_read")
    form = F.col("lost_form")
    why = F.when(form == "gone", gone).when(form == "unreadable", unreadable).otherwise(passed)
    missing, doubtful = _without_discarded(t, t.suspects.where("is_lost"))
    lost = anomalies(
        missing,
        "lost_write",
        form=form,
        ops=ops,
        rank=F.when(form == "gone", 0).when(form == "unreadable", 1).otherwise(2),
        explain=sentence(
            "%s (%s) was acknowledged by %s for %s-%s at offset %s and is lost: %s",
            *("value", "outcome", "cluster", "topic", "partition", "offset", why),
        ),
    )
    place = ("value", "cluster", "topic", "partition", "offset")
    unseen = anomalies(
        t.suspects.where("is_unseen"),
        "unseen",
        ops=ops,
        explain=sentence(
            "%s was acknowledged by %s for %s-%s at offset %s, and no read got that far: it may be lost or late", *place
        ),
    )
    if doubtful is None:
        return union([lost, unseen])
    where = "a mirror was started over that log: it is lost, or was above the cut and discarded"
    told = sentence(f"%s was acknowledged by %s for %s-%s at offset %s, and {where}", *place)
    return union([lost, unseen, anomalies(doubtful, "unseen", ops=ops, explain=told)])


def _without_discarded(t: Tables, lost: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Leave out what a start of a mirror over this log discarded: records above its cut, and those below it whose
    commit was above it, so that the stop aborted their transaction. Only what was written before that start. The
    second part: records of which nobody knows whether they were above the cut."""
    gone, starts = discarded_by(t, lost.where("offset is not null")), discards(t)
    if gone is None or starts is None:
        return lost, None
    this = ["cluster", "op", "value"]
    gone = gone.select(*this, "known").unionByName(_perhaps_discarded(lost, starts).select(*this, "known"))
    gone = gone.groupBy(*this).agg(F.max("known").alias("known"))
    known = gone.where("known").select(*this)
    kept = lost.join(gone.select(*this), this, "left_anti")
    doubtful = lost.join(gone.select(*this), this, "left_semi").join(known, this, "left_anti")
    ended = txn_batches(t).where("not control and end_type = 'ABORT'").join(F.broadcast(starts), list(PLACE))
    ended = ended.where("base_offset < cut and end_offset >= cut")
    ended = ended.select(*(F.col(c).alias(f"in_{c}") for c in (*PLACE, "base_offset", "last_offset", "mirroring_ns")))
    within = F.col("offset").between(F.col("in_base_offset"), F.col("in_last_offset"))
    within = within & (F.coalesce("done_ns", "invoke_ns") <= F.col("in_mirroring_ns"))
    same = [F.col(c) == F.col(f"in_{c}") for c in PLACE]
    return kept.join(F.broadcast(ended), [*same, within, F.col("outcome") == "committed"], "left_anti"), doubtful


def _perhaps_discarded(lost: DataFrame, starts: DataFrame) -> DataFrame:
    """Records that were acknowledged at an unknown offset, with each start that may have discarded them; known: it
    discarded the whole log."""
    own = lost.where("offset is null").withColumnRenamed("partition", "on_partition")
    rows = own.join(F.broadcast(starts), list(PLACE[:2])).where("on_partition is null or on_partition = partition")
    rows = rows.where("coalesce(done_ns, invoke_ns) <= mirroring_ns")
    return rows.withColumn("known", F.col("known") & (F.col("cut") == 0) & F.col("on_partition").isNotNull())


CHECKER = Checker(name="lost_write", kinds=(LOST_WRITE, UNSEEN), check=check, skip=lambda t: t.unsuspected)
