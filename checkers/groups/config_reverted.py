"""`config_reverted`: after the stop, something other than an administrator changed a topic's configuration.

Proves: after the mirror of a topic was stopped on the destination, a configuration entry had a value (by a snapshot, or
an administrator's change), and a later snapshot shows another although no administrator changed it in between; or a
change is recorded whose actor is the mirror. Form `retention`: the entry controls deletion, so that the destination
may lose its own records.

Cannot see: a value that changed between the last snapshot before the stop and the first known value after it; an entry
that was removed (snapshots show entries that a topic sets itself).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.groups.acl_lost import by_mirror
from checkers.views.mirror_spans import stop_acknowledged
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="config_reverted",
    severity=Severity.S1,
    violation="had topic configurations changed after the stop",
    section=4,
    what="after the stop only an administrator changes the destination's topic configurations",
    limitations="changes before the first snapshot after the stop; entries that were removed",
    sources=("KIP-1279",),
    requires=("configs", "mirror_states"),
    forms=("retention", "other"),
)
_RETENTION = "^(retention\\.|local\\.retention\\.|delete\\.retention\\.|cleanup\\.policy|log_start)"


def check(t: Tables) -> DataFrame | None:
    """One row per change that has no recorded actor, or was the mirror's."""
    stopped = F.broadcast(stop_acknowledged(t))
    rows = (
        t.table("configs").where("name is not null").join(stopped, ["cluster", "topic"]).where("time_ns >= stopped_ns")
    )
    rows = rows.withColumn("change", F.col("event") != "look").withColumn("mine", by_mirror())
    order = Window.partitionBy("cluster", "topic", "name").orderBy("time_ns", F.desc("change"))
    rows = rows.withColumns({"before": F.lag("value").over(order), "known": F.lag("time_ns").over(order)})
    silent = rows.where("not change and known is not null and not value <=> before and name != 'log_start'")
    silent = silent.withColumn("how", F.lit("by no recorded change"))
    own = rows.where("change and mine").withColumn("how", sentence("by %s", "actor"))
    return union([_row(silent), _row(own)])


def _row(rows: DataFrame) -> DataFrame:
    before = F.coalesce("before", F.lit("an unknown value"))
    return anomalies(
        rows,
        "config_reverted",
        form=F.when(F.col("name").rlike(_RETENTION), "retention").otherwise("other"),
        partition=None,
        offset=None,
        value="name",
        rank="time_ns",
        explain=sentence(
            "after the stop %s of %s on %s went from %s to %s, %s",
            *("name", "topic", "cluster", before, "value", "how"),
        ),
    )


CHECKER = Checker(name="config_reverted", kinds=(KIND,), check=check)
