"""When a mirror may truncate a log of its destination: windows of time, shared by the checkers of log ends.

Not a checker. A design truncates a log where a mirror is started over it (a failback, a restart), until it is MIRRORING
(`mirror_starts`); during a stop, where it cuts off open transactions, but not below the last stable offset
(`truncates_at_stop`). It follows an unclean election on the source, once per election. At any other time what was below
the high watermark stays, whatever states the partition passes through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.mirror_spans import requests
from checkers.views.mirror_starts import PLACE, starts
from checkers.views.mirroring import NEVER, designed

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_SPAN = "array<struct<from_ns: bigint, until_ns: bigint>>"


def truncates_at_stop(t: Tables) -> bool:
    """Whether a stop may truncate the destination's log to its last stable offset: the mirror's design does, or none is
    stated."""
    chosen = t.meta.test.mirror_options.get("on_stop")
    if chosen is not None:
        return str(chosen) == "truncate_to_last_stable"
    return not t.meta.test.design or designed(t, "truncating_stop")


def with_windows(t: Tables, rows: DataFrame) -> DataFrame:
    """Add to rows with PLACE when their log may be truncated: `windows` (starts), `stops` (down to the last stable
    offset); arrays of structs of from_ns and until_ns."""
    found = starts(t)
    span = F.struct("from_ns", "until_ns")
    none = F.array().cast(_SPAN)
    own = none
    if found is not None:
        spans = found.select(*PLACE, "from_ns", F.col("mirroring_ns").alias("until_ns"))
        spans = spans.groupBy(*PLACE).agg(F.collect_list(span).alias("own"))
        rows = rows.join(F.broadcast(spans), list(PLACE), "left")
        own = F.coalesce("own", none)
    rows = _with_requests(t, rows, "asked", "mirror_start", "mirror_failback")
    rows = rows.withColumn("windows", F.concat(own, "asked")).drop("own", "asked")
    if not truncates_at_stop(t):
        return rows.withColumn("stops", none)
    return _with_requests(t, rows, "stops", "mirror_stop", "failover")


def _with_requests(t: Tables, rows: DataFrame, name: str, *functions: str) -> DataFrame:
    """Add an array of the spans from a request until it was acknowledged."""
    none = F.array().cast(_SPAN)
    if not t.facts.any(*functions):
        return rows.withColumn(name, none)
    found = requests(t, *functions).withColumn("until_ns", F.coalesce("end", F.lit(NEVER)))
    span = F.struct(F.col("begin").alias("from_ns"), "until_ns")
    of_topics = found.where("origin_topic is not null").groupBy("cluster", "origin_topic")
    of_all = found.where("origin_topic is null").groupBy("cluster")
    rows = rows.join(
        F.broadcast(of_topics.agg(F.collect_list(span).alias("_own"))), ["cluster", "origin_topic"], "left"
    )
    rows = rows.join(F.broadcast(of_all.agg(F.collect_list(span).alias("_all"))), "cluster", "left")
    both = F.concat(F.coalesce("_own", none), F.coalesce("_all", none))
    return rows.withColumn(name, both).drop("_own", "_all")


def within(windows: Column, since: Column, until: Column) -> Column:
    """Whether a window touches a span of time."""
    return F.exists(windows, lambda w: (w["from_ns"] <= until) & (w["until_ns"] >= since))


def without_reconciled(t: Tables, drops: DataFrame, *keys: str) -> DataFrame:
    """Leave out, of drops of log ends (time_ns; one series per `keys`), the first after each event of an unclean
    election, where mirrors follow it."""
    if not t.has("faults") or not t.has("mirror_states"):
        return drops
    times = t.table("faults").where("lower(name) like '%unclean%'").agg(F.collect_list("time_ns").alias("elections"))
    rows = drops.crossJoin(F.broadcast(times))
    rows = rows.withColumn("after", F.size(F.filter("elections", lambda at: at <= F.col("time_ns"))))
    first = F.row_number().over(Window.partitionBy(*keys, "after").orderBy("time_ns"))
    return rows.withColumn("nth", first).where("after = 0 or nth > 1").drop("elections", "after", "nth")
