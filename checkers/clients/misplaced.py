"""`phantom` and `misplaced`: values that were read but never sent, or sent to another partition.

Proves: `phantom`, form `unsent`: a value was read, or is in the authoritative log, and no operation of the history
ever sent it on any cluster: corruption, data of another run, a wrong topic. Form `taken_back`: a record without
acknowledgement was read, and the log holds another record at its offset afterwards, so the broker showed something
that was never committed. `misplaced`: a value was seen in another topic or partition than it was sent to; a mirrored
topic's name on the other cluster counts as the same topic.

Cannot see: a phantom that happens to equal a value that was sent. Values of writers that do not record their sends
look like phantoms, so every client that writes to a checked topic must record its sends.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.history import KEY
from checkers.views.keys import PARTITION
from checkers.views.tables import Tables

PHANTOM = AnomalyKind(
    name="phantom",
    severity=Severity.S1,
    violation="showed values that no client sent, or took back what was read",
    section=1,
    what="every value that is read was sent, and what was read once stays",
    limitations="a wrong value that equals one that was sent",
    sources=("Jepsen: jepsen.tests.kafka (there it ends the analysis)", "KAFKA-14704"),
    forms=("unsent", "taken_back"),
)
MISPLACED = AnomalyKind(
    name="misplaced",
    severity=Severity.S1,
    violation="showed values in another partition than theirs",
    section=1,
    what="every value is read from the topic and partition to which it was sent",
    limitations="sends whose partition is unknown",
)


def check(t: Tables) -> DataFrame | None:
    """Values without a sender, values that were taken back, and values in the wrong place."""
    unsent = t.suspects.where("is_unsent").select("value", F.explode("places").alias("p"))
    unsent = unsent.select("value", "p.*")
    if t.has("records"):
        # Evidence may hold topics that no client of the test writes to, e.g. a mirror's own.
        ours = t.table("op_records").where("action = 'send'").select(F.col("topic").alias("written")).distinct()
        known = (F.col("written") == F.col("topic")) | (F.col("written") == F.col("origin_topic"))
        unsent = unsent.join(F.broadcast(ours), known, "left").where("readers > 0 or written is not null")
        unsent = unsent.drop("written").distinct()
    phantoms = anomalies(
        unsent,
        "phantom",
        form=F.lit("unsent"),
        ops=op_list("op_index"),
        rank=-F.col("readers"),
        explain=sentence(
            "%s was %s at offset %s of %s-%s on %s, and no operation ever sent it",
            "value",
            F.when(F.col("readers") > 0, "read").otherwise("found in the log"),
            *("offset", "topic", "partition", "cluster"),
        ),
    )
    return union([phantoms, _taken_back(t), _misplaced(t)])


def _taken_back(t: Tables) -> DataFrame | None:
    if not t.has("records"):
        return None
    place = [*PARTITION, "era", "offset"]
    over = t.conflicts.where("stored").select(*place, F.col("value").alias("now"))
    read = t.conflicts.where("readers > 0 and not stored").join(over, place)
    unsure = t.near_sends.where("outcome in ('unknown', 'failed', 'aborted')").select(
        "cluster", "value", "op", "done_index"
    )
    kept = t.near_sends.where("outcome in ('acked', 'committed')").select("cluster", "value")
    unsure = unsure.join(kept, ["cluster", "value"], "left_anti").dropDuplicates(["cluster", "value"])
    return anomalies(
        read.join(unsure, ["cluster", "value"]),
        "phantom",
        form=F.lit("taken_back"),
        ops=op_list("op", "done_index", "op_index"),
        rank=10,
        explain=sentence(
            "%s, never acknowledged, was read at offset %s of %s-%s on %s; the log holds %s there now",
            *("value", "offset", "topic", "partition", "cluster", "now"),
        ),
    )


def _misplaced(t: Tables) -> DataFrame:
    rows = t.suspects.where("is_misplaced").select(
        *("value", "op", "done_index", F.col("topic").alias("sent_topic"), F.col("partition").alias("sent_partition")),
        *("attempts", F.col("cluster").alias("sent_cluster")),
        F.explode("places").alias("p"),
    )
    names = ("value", "op", "done_index", "sent_topic", "sent_partition", "sent_cluster", "attempts")
    rows = rows.select(*names, "p.*")
    # A value that was sent to two places may be in either.
    at_home = F.exists(
        "attempts",
        lambda s: (
            (s["origin_topic"] == F.col("origin_topic"))
            & (F.coalesce(s["partition"], F.col("partition")) == F.col("partition"))
        ),
    )
    first = Window.partitionBy("value", *KEY, "offset").orderBy("op")
    rows = rows.where(~at_home).withColumn("n", F.row_number().over(first)).where("n = 1")
    return anomalies(
        rows,
        "misplaced",
        ops=op_list("op", "done_index", "op_index"),
        explain=sentence(
            "%s was sent to %s-%s on %s and found at offset %s of %s-%s on %s",
            *("value", "sent_topic", "sent_partition", "sent_cluster", "offset", "topic", "partition", "cluster"),
        ),
    )


CHECKER = Checker(name="misplaced", kinds=(PHANTOM, MISPLACED), check=check, skip=lambda t: t.unsuspected)
