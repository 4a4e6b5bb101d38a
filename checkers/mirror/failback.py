"""`failback`: after the mirror has been reversed, the old source's log equals the destination's again.

A failback took place when mirror states name a source cluster (A) as a destination. Two forms: `unequal`: the logs
differ between the greater log start and the shorter end, which also shows a source that was not truncated to the cut;
`unreported`: a start of the mirror discarded an acknowledged write above its cut, and no report of that start (numbers
and a reason, `checkers.views.reports`) covers it.

Cannot see: a truncation below the cut that was fetched again; writes that were discarded without an acknowledgement.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.failbacks import discarded_by, mirrored_back
from checkers.views.log_comparison import batch_pairs, record_pairs, unequal_partitions
from checkers.views.mirror_starts import PLACE
from checkers.views.mirroring import NEVER, PAIR
from checkers.views.reports import covers, discards_reported
from checkers.views.tables import Tables

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
    """Anomalies on the old source, or wherever a start discarded writes; None when nothing was mirrored back."""
    back = mirrored_back(t)
    return union([None if back is None else _unequal(t, back), _unreported(t)])


def _unequal(t: Tables, back: DataFrame) -> DataFrame:
    ranges = back.where("coalesce(back_state, '') != 'FAILED' and coalesce(last_state, '') != 'FAILED'").select(
        *PAIR, F.greatest("a_start", "b_start").alias("low"), F.least("a_end", "b_end", "back_cut").alias("high")
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


def _unreported(t: Tables) -> DataFrame | None:
    """Acknowledged writes that a start discarded, and that no report of it covers: by offset, or by their number."""
    sent = t.sends.where("offset is not null and outcome in ('acked', 'committed')")
    above = discarded_by(t, sent)
    if above is None:
        return None
    held = t.truth_log.where("control_type is null and value is not null and offset >= coalesce(log_start, 0)")
    gone = above.where("known").join(held.select(*PLACE, "value"), [*PLACE, "value"], "left_anti")
    # A record that a later start found again above its own cut was discarded by the first of them.
    first = Window.partitionBy("cluster", "op", "value").orderBy("begin_ns")
    gone = gone.withColumn("turn", F.row_number().over(first)).where("turn = 1")
    start = ("from_ns", "begin_ns", "mirroring_ns", "cut")
    next_ns = F.lead("from_ns").over(Window.partitionBy(*PLACE).orderBy("begin_ns"))
    starts = gone.select(*PLACE, *start).distinct().withColumn("until_ns", F.coalesce(next_ns, F.lit(NEVER)))
    said = discards_reported(t).join(F.broadcast(starts), list(PLACE)).where("time_ns between from_ns and until_ns")
    said = said.groupBy(*PLACE, "begin_ns").agg(
        F.collect_set(F.struct("low", "high", "count", "since")).alias("reports"),
        F.max(F.when(F.size("low") == 0, F.col("count"))).alias("told"),
    )
    rows = gone.join(said, [*PLACE, "begin_ns"], "left")
    named = F.exists("reports", lambda r: covers(F.col("offset"), r))
    rows = rows.where(~F.coalesce(named, F.lit(False)))
    rank = F.row_number().over(Window.partitionBy(*PLACE, "begin_ns").orderBy("offset"))
    rows = rows.withColumn("number", rank).where("number > coalesce(told, 0)")
    said_what = F.when(F.col("told").isNotNull(), sentence("the mirror reported %s discarded records", "told"))
    return anomalies(
        rows,
        "failback",
        form=F.lit("unreported"),
        ops=op_list("done_index"),
        rank=F.col("offset"),
        explain=sentence(
            "%s was acknowledged at offset %s of %s-%s on %s, above the cut at %s; the failback discarded it and %s",
            *("value", "offset", "topic", "partition", "cluster", "cut"),
            said_what.otherwise(F.lit("nothing reported which offsets it discarded")),
        ),
    )


CHECKER = Checker(name="failback", kinds=(KIND,), check=check)
