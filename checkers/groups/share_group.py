"""`share_group`: the rules of `group_out_of_range` and `group_skip`, for share groups' start offsets.

Proves: a share group's start offset (rows of `group_offsets` with kind `share`) was written outside the destination's
log (form `range`), or a share group that moved to the destination never got a record before the position of its first
poll (form `skip`).

Cannot see: records in flight above the start offset (their delivery counts are not mirrored); what those checkers
cannot see.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.groups.group_out_of_range import TEXT
from checkers.views.group_sync import out_of_range, skipped
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="share_group",
    after_healing=True,
    severity=Severity.S2,
    violation="moved share groups out of range or past records",
    section=4,
    what="share groups' start offsets are within the destination's log, and no record is skipped after a move",
    limitations="records in flight above the start offset",
    sources=("KIP-932", "KIP-1279"),
    requires=("group_offsets", "log_ends"),
    forms=("range", "skip"),
)


def check(t: Tables) -> DataFrame | None:
    """One row per offset out of range, and per skipped record."""
    ranges = anomalies(
        out_of_range(t).where("kind = 'share'"),
        "share_group",
        form=F.lit("range"),
        value=None,
        rank=-F.abs(F.col("offset") - F.col("high")),
        explain=sentence("share " + TEXT, "group", "offset", "topic", "partition", "cluster", "low", "high"),
    )
    skips = anomalies(
        skipped(t).where("kind = 'share'"),
        "share_group",
        form=F.lit("skip"),
        ops=op_list("op_index"),
        rank="offset",
        explain=sentence(
            "share group %s resumed %s-%s on %s at %s and never got %s at offset %s",
            *("group", "topic", "partition", "cluster", "resumed", "value", "offset"),
        ),
    )
    return union([ranges, skips])


CHECKER = Checker(name="share_group", kinds=(KIND,), check=check)
