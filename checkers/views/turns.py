"""Failbacks ("turns") in a partition's log: records above the cut from before one are another branch of that log.

Not a checker: shared by the views of the history. A failback discards the records that only the old source has, and
reuses their offsets for the other cluster's records. So a read, or an acknowledgement, from before the failback at or
above the cut refers to a log that is gone; it is judged within its own branch (`era` below 0) and not against the
current log. `failback` checks whether the discarding was reported, and what it left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from checkers.views.tables import Tables

Turns = Mapping[tuple[str, str, int], tuple[tuple[int, int], ...]]
"""(cluster, topic there, partition) → (time of a failback to this cluster, the cut), ascending."""

_SCHEMA = "cluster string, topic string, partition int, turns array<struct<at bigint, cut bigint>>"


def turns(t: Tables) -> Turns:
    """Every failback, and each partition's cut for it: the one of the other direction's stop before it."""
    if not t.facts.any("mirror_failback") or not t.has("mirror_states"):
        return {}
    begun = t.ops.where("f = 'mirror_failback' and type = 'invoke'").select("cluster", "time_ns").collect()
    named = t.table("mirror_states").withColumn("origin", t.canonical())
    stops = named.where("state = 'STOPPED' and source_offset is not null")
    rows = stops.select("cluster", "origin", "partition", "time_ns", "source_offset").collect()
    seen = named.groupBy("cluster", "origin", "partition").agg(F.max("time_ns").alias("last")).collect()
    mirrored_at = {(row["cluster"], row["origin"], row["partition"]): row["last"] for row in seen}
    partners = {d: s for s, d in reversed(t.mirror_pairs)} | dict(t.mirror_pairs)
    names = {"B": t.meta.topic_map, **t.meta.topic_maps}
    found: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for cluster, at in sorted(begun, key=lambda row: row["time_ns"]):
        cuts: dict[tuple[str, int], tuple[int, int]] = {}
        for row in rows:
            if row["cluster"] == partners.get(cluster) and row["time_ns"] <= at:
                place = (row["origin"], row["partition"])
                cuts[place] = max(cuts.get(place, (-1, -1)), (row["time_ns"], row["source_offset"]))
        for (origin, partition), (_, cut) in cuts.items():
            if mirrored_at.get((cluster, origin, partition), -1) < at:
                continue  # this partition was not mirrored back
            here = names.get(cluster, {}).get(origin, origin)
            found.setdefault((cluster, here, partition), []).append((at, cut))
    return {place: tuple(each) for place, each in found.items()}


def with_branch(t: Tables, frame: DataFrame, time: Column, offset: Column) -> DataFrame:
    """Make `era` negative, -1 for the first failback, where a row refers to what a later failback discarded."""
    if not t.turns:
        return frame
    rows = [(*place, list(each)) for place, each in t.turns.items()]
    turned = F.broadcast(t.spark.createDataFrame(rows, _SCHEMA))
    joined = frame.join(turned, ["cluster", "topic", "partition"], "left")
    gone = F.transform("turns", lambda turn: (time < turn["at"]) & (offset >= turn["cut"]))
    first = F.array_position(gone, F.lit(True))
    return joined.withColumn("era", F.when(first > 0, -first.cast("int")).otherwise(F.col("era"))).drop("turns")
