"""`checkpoint_rewind`: MirrorMaker 2 translated a group's offset wrongly.

Proves, by form, of rows of `group_offsets` with event `checkpoint`:
- `back`: a translated offset is lower than one before it, although the source offset did not go back.
- `ahead`: a translated offset is past the true position: above the log end that the destination can have had, or after
  every copy of a record whose offset on the source is not below the checkpoint's source offset.
A translated offset that is too low is no fault: records are only read again.

Cannot see: translations of records whose offset on the source is unknown, or that expired; a checkpoint that no
reader recorded.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.group_sync import places, source_of, written
from checkers.views.keys import GROUP, PARTITION
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="checkpoint_rewind",
    severity=Severity.S1,
    violation="got translated offsets that went back or too far",
    section=4,
    what="a translated offset goes back only with the source's, and is never past the true position",
    limitations="translations of records whose source offset is unknown",
    sources=("KIP-545", "KAFKA-12468", "KAFKA-14666", "apache/kafka#13178"),
    requires=("group_offsets",),
    forms=("back", "ahead"),
)


def check(t: Tables) -> DataFrame | None:
    """One row per checkpoint that went back or too far."""
    rows = written(t).where("event = 'checkpoint'")
    return union([_back(rows), _ahead(t, rows)])


def _back(rows: DataFrame) -> DataFrame:
    order = Window.partitionBy(*GROUP).orderBy("time_ns", "source_offset", "offset")
    before = F.lag(F.struct("offset", "source_offset")).over(order)
    bad = rows.where("source_offset is not null").withColumn("before", before)
    bad = bad.where("offset < before.offset and source_offset >= before.source_offset")
    return anomalies(
        bad,
        "checkpoint_rewind",
        form=F.lit("back"),
        value=None,
        rank=F.col("offset") - F.col("before.offset"),
        explain=sentence(
            "the checkpoint of group %s for %s-%s on %s went back from %s to %s while the source went from %s to %s",
            *("group", "topic", "partition", "cluster", "before.offset", "offset"),
            *("before.source_offset", "source_offset"),
        ),
    )


def _ahead(t: Tables, rows: DataFrame) -> DataFrame:
    # Each value's last copy on the destination, and its offset on the source.
    copies = t.stored_values if t.has("records") else t.reads.where("value is not null and offset is not null")
    here = F.broadcast(rows.select(*PARTITION).distinct())
    copies = (
        copies.join(here, list(PARTITION))
        .groupBy(*PARTITION, "value")
        .agg(F.max("offset").alias("copy"), F.count_distinct("offset").alias("copies"))
    )
    copies = copies.withColumn("source", source_of("cluster")).join(places(t), "value").where("sent_on = source")
    # A value sent several times of which there are fewer copies: the last of these may be of the first time.
    whole = F.col("copies") >= F.col("sent_times")
    copies = copies.withColumn("sent_at", F.when(whole, F.col("sent_at")).otherwise(F.col("sent_first")))
    passed = rows.join(copies.select(*PARTITION, "value", "copy", "sent_at"), list(PARTITION), "left")
    wrong = (F.col("copy") < F.col("offset")) & (F.col("sent_at") >= F.col("source_offset"))
    first = F.min(F.when(wrong, F.struct("copy", "value", "sent_at")))
    found = passed.groupBy(*GROUP, "offset", "source_offset", "time_ns", "high").agg(first.alias("p"))
    found = found.where("p is not null or offset > high").dropDuplicates([*GROUP, "offset", "source_offset"])
    what = F.when(
        F.col("p").isNotNull(), sentence("%s at %s, source offset %s, is before it", "p.value", "p.copy", "p.sent_at")
    )
    return anomalies(
        found.withColumn("what", what.otherwise(sentence("the log ended at %s", "high"))),
        "checkpoint_rewind",
        form=F.lit("ahead"),
        value=F.col("p.value"),
        rank="offset",
        explain=sentence(
            "the checkpoint of group %s for %s-%s on %s translates %s to %s, past the true position: %s",
            *("group", "topic", "partition", "cluster", "source_offset", "offset", "what"),
        ),
    )


CHECKER = Checker(name="checkpoint_rewind", kinds=(KIND,), check=check)
