"""`failback`: after the mirror has been reversed, the old source's log equals the destination's again.

A failback took place when mirror states name a source cluster (A) as a destination. Two forms: `unequal`: the logs
differ between the greater log start and the shorter end, which also shows a source that was not truncated to the cut;
`unreported`: the failback discarded an acknowledged write above the cut and did not report it (by an error of that
partition that mentions discarding or truncating).

Cannot see: a truncation below the cut that was fetched again; writes that were discarded without an acknowledgement.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.failbacks import mirrored_back
from checkers.views.log_comparison import batch_pairs, record_pairs, unequal_partitions
from checkers.views.mirroring import PAIR
from checkers.views.tables import Tables

_REPORT = "(?i)discard|truncat"
KIND = AnomalyKind(
    name="failback",
    after_healing=True,
    severity=Severity.S1,
    violation="differed after a failback, or discarded writes without a report",
    section=2,
    what="after a failback both logs are identical, and every discarded acknowledged write is reported",
    limitations="records truncated below the cut and fetched again; unacknowledged writes",
    forms=("unequal", "unreported"),
    sources=("KIP-1279",),
    requires=("batches", "records", "log_ends", "mirror_states"),
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the old source; None when nothing was mirrored back."""
    back = mirrored_back(t)
    return None if back is None else union([_unequal(t, back), _unreported(t, back)])


def _unequal(t: Tables, back: DataFrame) -> DataFrame:
    ranges = back.where("coalesce(back_state, '') != 'FAILED'").select(
        *PAIR, F.greatest("a_start", "b_start").alias("low"), F.least("a_end", "b_end").alias("high")
    )
    batches = batch_pairs(t, ranges)
    suspect = ranges.join(F.broadcast(unequal_partitions(batches)), list(PAIR), "left_semi")
    records = record_pairs(t, suspect).select(*PAIR, "offset", F.coalesce("a.value", "b.value").alias("value"))
    of_batches = batches.where("differs is not null and differs != 'missing'")
    of_batches = of_batches.select(
        *PAIR, F.col("base_offset").alias("offset"), F.lit(None).cast("string").alias("value")
    )
    rows = (
        records.unionByName(of_batches)
        .groupBy(*PAIR)
        .agg(F.min("offset").alias("offset"), F.min_by("value", "offset").alias("value"), F.count("*").alias("places"))
    )
    named = rows.join(F.broadcast(back.select(*PAIR, "source_topic", "cut")), list(PAIR))
    return anomalies(
        named,
        "failback",
        form=F.lit("unequal"),
        cluster="source",
        topic="source_topic",
        rank=-F.col("places"),
        explain=sentence(
            "after the failback %s-%s differs on %s and %s at %s places, first at offset %s (the cut was %s)",
            *("source_topic", "partition", "source", "destination", "places", "offset", "cut"),
        ),
    )


def _unreported(t: Tables, back: DataFrame) -> DataFrame:
    sent = t.sends.where("offset is not null and outcome in ('acked', 'committed')")
    sent = sent.select(F.col("cluster").alias("source"), *PAIR[2:], "value", "offset", "done_index")
    above = sent.join(F.broadcast(back), ["source", *PAIR[2:]]).where("offset >= cut")
    held = t.truth_log.where("control_type is null and value is not null and offset >= coalesce(log_start, 0)")
    held = held.select(F.col("cluster").alias("source"), *PAIR[2:], "value")
    gone = above.join(held, ["source", *PAIR[2:], "value"], "left_anti")
    reports = t.table("mirror_states").where(F.col("error").rlike(_REPORT))
    reports = reports.select(F.col("cluster").alias("source"), t.canonical().alias("origin_topic"), "partition")
    gone = gone.join(F.broadcast(reports.distinct()), ["source", *PAIR[2:]], "left_anti")
    return anomalies(
        gone,
        "failback",
        form=F.lit("unreported"),
        cluster="source",
        topic="source_topic",
        ops=op_list("done_index"),
        rank=F.col("offset"),
        explain=sentence(
            "%s was acknowledged at offset %s of %s-%s on %s, above the cut at %s; the failback discarded it and"
            " nothing reported that",
            *("value", "offset", "source_topic", "partition", "source", "cut"),
        ),
    )


CHECKER = Checker(name="failback", kinds=(KIND,), check=check)
