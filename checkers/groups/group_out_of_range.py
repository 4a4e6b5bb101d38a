"""`group_out_of_range`: a consumer group's offset on the destination is outside the log.

Proves: a mirror wrote an offset below the log start or above the log end that the destination then had (form `sync`),
or an offset above the log end was seen there (form `look`). A group that resumes there depends on `auto.offset.reset`.
The bounds of the log are proven ones (see `group_sync`): local writes that raise the end above the offset later do not
hide it.

Cannot see: an offset that was outside only between two snapshots; an offset below the log start that was only seen,
because a log start may pass it later; clusters where an unclean election was forced.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence
from checkers.views.group_sync import out_of_range
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="group_out_of_range",
    severity=Severity.S1,
    violation="got group offsets outside its log",
    section=4,
    what="a synced group offset is, when it is written, between log start and log end of the destination",
    limitations="offsets outside only between two snapshots; clusters with unclean elections",
    sources=("KAFKA-12468", "apache/kafka#13178", "KIP-1279"),
    requires=("group_offsets", "log_ends"),
    forms=("sync", "look"),
)
TEXT = "group %s was given offset %s of %s-%s on %s, whose log then ranged from %s to at most %s"


def check(t: Tables) -> DataFrame | None:
    """One row per group, partition and offset."""
    rows = out_of_range(t).where("kind is null or kind != 'share'")
    return anomalies(
        rows,
        "group_out_of_range",
        form=F.col("event"),
        value=None,
        rank=-F.abs(F.col("offset") - F.col("high")),
        explain=sentence(TEXT, "group", "offset", "topic", "partition", "cluster", "low", "high"),
    )


CHECKER = Checker(name="group_out_of_range", kinds=(KIND,), check=check)
