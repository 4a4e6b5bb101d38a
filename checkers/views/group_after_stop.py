"""Group offsets that a mirror wrote after it was stopped: the form `stopped` of `group_overwritten`.

Not a checker. After the stop of all partitions of a topic was acknowledged, and not started again, a group's offset on
the destination belongs to the destination's own consumers. What the mirror wrote is known from its own record of it
(event sync), or from two snapshots after the stop that show different offsets of a group that had no members, and that
no client ever used on that cluster. Groups that committed there after the stop are judged by form `behind`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import sentence
from checkers.views.group_sync import commits
from checkers.views.keys import GROUP
from checkers.views.mirror_spans import stop_acknowledged
from checkers.views.tables import Tables

_SLACK_NS = 1_000_000_000
"""In a run the mirror's clock and the recorder's are not the same."""


def written_when_stopped(t: Tables) -> DataFrame | None:
    """GROUP, offset, op_index (null), form, what. None where no mirror's states are known."""
    if not t.has("mirror_states"):
        return None
    stops = stop_acknowledged(t).select("cluster", "topic", "stopped_ns")
    rows = t.table("group_offsets").where("group is not null and offset >= 0 and topic is not null")
    rows = rows.where("coalesce(kind, 'consumer') = 'consumer'").join(F.broadcast(stops), ["cluster", "topic"])
    found = _synced(t, rows).unionByName(_changed(t, rows))
    own = commits(t).withColumnRenamed("time_ns", "own_ns").select(*GROUP, "own_ns")
    own = own.join(F.broadcast(stops), ["cluster", "topic"]).where("own_ns >= stopped_ns").select(*GROUP).distinct()
    found = found.join(F.broadcast(own), list(GROUP), "left_anti")
    return found.withColumns({"op_index": F.lit(None).cast("bigint"), "form": F.lit("stopped")})


def _synced(t: Tables, rows: DataFrame) -> DataFrame:
    """Offsets that the mirror recorded."""
    slack = 0 if t.stored.imported else _SLACK_NS
    late = rows.where((F.col("event") == "sync") & (F.col("time_ns") > F.col("stopped_ns") + slack))
    return late.select(*GROUP, "offset", F.lit("it was synced after the mirror was stopped").alias("what"))


def _changed(t: Tables, rows: DataFrame) -> DataFrame:
    """Offsets that changed between two snapshots, though nobody used the group there."""
    looks = rows.where("event = 'look' or event is null")
    used = t.ops.where("group is not null").select("cluster", "group").distinct()
    looks = looks.join(F.broadcast(used), ["cluster", "group"], "left_anti")
    order = Window.partitionBy(*GROUP).orderBy("time_ns")
    last = F.lag(F.struct("offset", F.coalesce("began_ns", "time_ns").alias("from_ns"), "members")).over(order)
    looks = looks.withColumn("last", last).where("last.from_ns > stopped_ns and last.offset != offset")
    idle = looks.where("coalesce(members, 0) = 0 and coalesce(last.members, 0) = 0")
    what = sentence("it was %s after the mirror was stopped, and nobody used the group there", F.col("last.offset"))
    return idle.select(*GROUP, "offset", what.alias("what"))
