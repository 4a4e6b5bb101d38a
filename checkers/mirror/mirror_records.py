"""`mirror_loss`, `mirror_duplicate`, `mirror_reorder`: the records of the source against those of the destination.

Proves: by the unique value of each record, whether what the source holds at the end is on the destination, as often as
on the source, in the same order. The source is taken as it is: what A lost itself (an unclean election) is not the
mirror's loss, and copies of it on B are not duplicates. Records above the cut are lag, not loss, unless the mirror had
reported lag 0 after their acknowledgement, at a source offset after them. Expired records are `retention_gap`.

Cannot see: tombstones (they have no value); a loss above the last mirrored record in an imported history that records
neither a cut nor lag 0; records that B's own configured retention deleted before the end, or that were deleted with
their topic; on compacted topics, what a cleaner may have removed (`checkers.views.compaction`): records without a key,
those that a later copied record of their key supersedes, and the order and number of copies of values that may have
been there more often; a value written twice to A of which only the first copy has expired counts as a duplicate unless
records that A no longer holds are next to its copy on B, or the sends show that A may have had it before its log's
start.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, checked, op_list, sentence
from checkers.mirror.mirror_identity import diverged
from checkers.views.compaction import in_order, out_of_order, without_removed
from checkers.views.mirrored_values import VALUE, bounds, explained_copies, mirrored_values
from checkers.views.mirroring import PAIR, keeps_offsets, own_transactions
from checkers.views.tables import Tables

_NEEDS = ("records", "log_ends")
_SOURCES = ("KIP-382", "KIP-618", "KIP-1279")
_DAY_MS = 86_400_000

LOSS = AnomalyKind(
    name="mirror_loss",
    after_healing=True,
    severity=Severity.S1,
    violation="lacked records of its source",
    section=2,
    what="every record of the source below the cut, neither expired nor compacted away, is on the destination",
    limitations="tombstones; what B's own retention deleted; the tail of an imported history without a cut or lag 0",
    sources=_SOURCES,
    requires=_NEEDS,
)
DUPLICATE = AnomalyKind(
    name="mirror_duplicate",
    severity=Severity.S1,
    violation="held records of its source twice",
    section=2,
    what="each record of the source is on the destination once",
    limitations="copies of records that the source no longer holds",
    sources=_SOURCES,
    requires=_NEEDS,
)
REORDER = AnomalyKind(
    name="mirror_reorder",
    severity=Severity.S2,
    violation="held records out of the order of its source",
    section=2,
    what="the first copies on the destination are in the order of the source, partition by partition",
    limitations="order across partitions; order among records of which one was lost",
    sources=_SOURCES,
    requires=_NEEDS,
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the destination, at the source's offset (loss), or at the destination's (duplicate, reorder)."""
    values, where = mirrored_values(t), bounds(t)
    if values is None or where is None:
        return None
    return checked(t, [_losses(t, values, where), _duplicates(t, values, where), _disorder(t, values, where)])


def _losses(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame | None:
    fewer = t.found(values.where("expected_copies > mirrored_copies"))
    if fewer is None:
        return None
    missing = fewer.join(F.broadcast(where), list(PAIR))
    missing = missing.withColumn(
        "offset", F.when(F.col("mirrored_copies") == 0, F.col("a_first")).otherwise(F.col("a_last"))
    )
    sent = t.sends.where("offset is not null and done_ns is not null and outcome in ('acked', 'committed')")
    sent = sent.select(F.col("cluster").alias("source"), *PAIR[2:], "value", "done_ns", "done_index")
    missing = missing.join(sent, ["source", *PAIR[2:], "value"], "left").dropDuplicates([*VALUE])
    said_done = F.coalesce(F.col("done_ns") < F.col("lag0_ns"), F.lit(False))
    # A mirror that reads committed data stops at an open transaction: records after it are no loss.
    said_done = said_done & F.coalesce(F.col("offset") < F.col("lag0_source"), F.lit(True))
    lost = missing.where((F.col("offset") < F.col("bound")) | said_done)
    lost = _without_expired_on_destination(t, lost)
    lost = without_removed(t, lost, values, where)
    if t.incarnation_windows is not None:  # records may have been deleted with the destination's topic
        gone = t.incarnation_windows.select(
            F.col("cluster").alias("destination"), F.col("topic").alias("destination_topic")
        )
        lost = lost.join(gone, ["destination", "destination_topic"], "left_anti")
    divergences = diverged(t)
    if divergences is not None:  # reported as `unclean_divergence`, with everything that differs
        first = divergences.groupBy(*PAIR).agg(F.min("offset").alias("diverges_at"))
        lost = lost.join(F.broadcast(first), list(PAIR), "left")
        lost = lost.where("diverges_at is null or offset < diverges_at").drop("diverges_at")
    why = (
        F.when(F.col("stopped") & (F.col("offset") < F.col("bound")), sentence("below the cut at %s", "bound"))
        .when(said_done, F.lit("the mirror reported lag 0 after it was acknowledged"))
        .when(F.col("all_due"), F.lit("the mirror was not stopped, so everything had to arrive"))
        .otherwise(F.lit("later records are there"))
    )
    return anomalies(
        lost,
        "mirror_loss",
        cluster="destination",
        topic="destination_topic",
        ops=op_list("done_index"),
        rank=F.col("offset"),
        explain=sentence(
            "%s at offset %s of %s-%s on %s is not on %s: %s",
            *("value", "offset", "source_topic", "partition", "source", "destination"),
            why,
        ),
    )


def _without_expired_on_destination(t: Tables, lost: DataFrame) -> DataFrame:
    """Leave out records before the first one that is still on a destination with retention of its own."""
    if not t.has("configs"):
        return lost
    small = (F.col("name") == "retention.ms") & F.col("value").try_cast("bigint").between(0, _DAY_MS)
    small = small | ((F.col("name") == "retention.bytes") & (F.col("value").try_cast("bigint") >= 0))
    deletes = t.table("configs").where(small | (F.col("event") == "retention"))
    deletes = deletes.select(F.col("cluster").alias("destination"), F.col("topic").alias("destination_topic"))
    deletes = deletes.distinct().withColumn("deletes", F.lit(True))
    lost = lost.join(F.broadcast(deletes), ["destination", "destination_topic"], "left")
    gone = F.col("deletes") & (F.col("b_start") > 0)
    gone = gone & (F.col("first_mirrored").isNull() | (F.col("offset") < F.col("first_mirrored")))
    return lost.where(~F.coalesce(gone, F.lit(False)))


def _duplicates(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame | None:
    more = t.found(values.where("expected_copies > 0 and mirrored_copies > expected_copies"))
    if more is None:
        return None
    several = more.join(F.broadcast(where), list(PAIR))
    explained = explained_copies(t)
    if explained is not None:
        flagged = explained.withColumnRenamed("copies", "explained")
        several = several.join(flagged, list(VALUE), "left").where(
            "mirrored_copies - coalesce(explained, 0) > expected_copies"
        )
    local = t.sends.select(F.col("cluster").alias("destination"), "value").distinct()
    several = several.join(local, ["destination", "value"], "left_anti")
    return anomalies(
        several,
        "mirror_duplicate",
        cluster="destination",
        topic="destination_topic",
        offset="b_last",
        rank=-F.col("mirrored_copies"),
        explain=sentence(
            "%s of %s-%s is %s times on %s (first at %s, last at %s) and %s times on %s (at %s)",
            *("value", "destination_topic", "partition", "mirrored_copies", "destination", "b_first", "b_last"),
            *("expected_copies", "source", "a_first"),
        ),
    )


def _disorder(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame | None:
    both = values.where("expected_copies > 0 and mirrored_copies > 0").withColumn("b_at", F.col("b_first"))
    explained = explained_copies(t)
    if explained is not None:
        both = both.join(explained.drop("copies").withColumn("explained", F.lit(True)), list(VALUE), "left")
        # With more than one unexplained copy the order of the others is unknown.
        both = both.where("explained is null or mirrored_copies = expected_copies + 1")
        both = both.withColumn("b_at", F.when(F.col("explained"), F.col("b_last")).otherwise(F.col("b_at")))
    both = in_order(t, both)
    order = Window.partitionBy(*PAIR).orderBy("a_first")
    lagged = {"before": "value", "before_from": "a_first", "before_at": "b_at"}
    both = both.withColumns({name: F.lag(column).over(order) for name, column in lagged.items()})
    once = keeps_offsets(t) or bool(own_transactions(t))
    earlier = t.found(both.where("b_at < before_at"))
    if earlier is None:
        return None
    wrong = out_of_order(t, earlier, where, once=once).join(F.broadcast(where), list(PAIR))
    return anomalies(
        wrong,
        "mirror_reorder",
        cluster="destination",
        topic="destination_topic",
        offset="b_at",
        rank=F.col("a_first"),
        explain=sentence(
            "on %s %s (offset %s) comes before %s (offset %s) in %s-%s, on %s after it: offsets %s and %s",
            *("source", "before", "before_from", "value", "a_first", "source_topic", "partition", "destination"),
            *("before_at", "b_at"),
        ),
    )


CHECKER = Checker(name="mirror_records", kinds=(LOSS, DUPLICATE, REORDER), check=check)
