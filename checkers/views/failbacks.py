"""Failbacks: which partitions were mirrored back, and the offset (the cut) above which their old source's log was
discarded.

Not a checker: shared by the views of the history, `failback` and `lost_write`. A failback discards the records that
only the old source has, and reuses their offsets for the other cluster's records:
- A read, or an acknowledgement, from before a failback at or above its cut refers to a log that is gone. It is judged
  within its own branch (`era` below 0) and not against the current log (`with_branch`). That takes the failback's
  time, so it takes an operation that began one (`failbacks`).
- Records above the cut that were written before the failback are no loss of the cluster: `failback` checks whether they
  were reported, and what is left (`discards`). A mirror's states are enough to tell; only an offset-preserving mirror
  has such a cut. In a round trip each direction's start has its own cut, and discards nothing that came after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.eras import Failbacks
from checkers.views.mirror_spans import MIRRORED
from checkers.views.mirror_starts import PLACE, with_cuts
from checkers.views.mirroring import PAIR, keeps_offsets, scopes, states

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_SCHEMA = "cluster string, topic string, partition int, failbacks array<struct<at bigint, cut bigint>>"


def failbacks(t: Tables) -> Failbacks:
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
    if not t.failbacks:
        return frame
    rows = [(*place, list(each)) for place, each in t.failbacks.items()]
    known = F.broadcast(t.spark.createDataFrame(rows, _SCHEMA))
    joined = frame.join(known, ["cluster", "topic", "partition"], "left")
    gone = F.transform("failbacks", lambda failback: (time < failback["at"]) & (offset >= failback["cut"]))
    first = F.array_position(gone, F.lit(True))
    return joined.withColumn("era", F.when(first > 0, -first.cast("int")).otherwise(F.col("era"))).drop("failbacks")


def mirrored_back(t: Tables) -> DataFrame | None:
    """The rows of `scopes` whose source became a destination later, with back_state (the last state of the mirror
    there), back_cut (where it was stopped, if it is) and cut: the recorded one, else the end of the source's records on
    the destination.

    None when nothing was mirrored back, or the mirror does not preserve offsets.
    """
    if not t.has("mirror_states") or not t.has("records") or not keeps_offsets(t):
        return None
    return t.once("mirrored_back", _mirrored_back)


def _mirrored_back(t: Tables) -> DataFrame | None:
    where = scopes(t)
    if where is None:
        return None
    # In a chain the cluster in the middle is a destination all along.
    sources = sorted({source for source, _ in t.mirror_pairs} - {destination for _, destination in t.mirror_pairs})
    began = t.table("mirror_states").where(F.col("cluster").isin(*sources) & F.col("state").isin(*MIRRORED))
    if began.isEmpty():
        return None
    began = began.select("cluster", t.canonical().alias("origin_topic"), "partition").distinct()
    back = states(t).join(F.broadcast(began), ["cluster", *PAIR[2:]], "left_semi")
    own = {"last_state": "back_state", "cut_destination": "back_cut"}
    back = back.select(F.col("cluster").alias("source"), *PAIR[2:], *(F.col(c).alias(name) for c, name in own.items()))
    rows = where.where("from_log and b_end is not null").join(F.broadcast(back), ["source", *PAIR[2:]])
    if rows.isEmpty():
        return None
    ends = _mirrored_ends(t, rows)
    cut = F.coalesce("cut_source", "mirrored_end", F.lit(0).cast("bigint"))
    return rows.join(ends, list(PAIR), "left").withColumn("cut", cut).drop("mirrored_end")


def discards(t: Tables) -> DataFrame | None:
    """What each start of a mirror over a log discarded of it: cluster, origin_topic, partition, from_ns, begin_ns,
    mirroring_ns (see `mirror_starts.starts`), cut: records of the log's own from this offset on, written before;
    known: whether the cut is.

    Without a recorded cut it is, for a source, the end of its records on the destination; elsewhere, or without logs,
    it is not known, and 0. None where nothing was discarded, or the mirror does not preserve offsets.
    """
    if not t.has("mirror_states") or not keeps_offsets(t):
        return None
    return t.once("discards", _discards)


def _discards(t: Tables) -> DataFrame | None:
    found, back = with_cuts(t), mirrored_back(t)
    if found is None:
        return None
    cut = F.col("cut")
    if back is not None:
        ends = back.select(F.col("source").alias("cluster"), *PLACE[1:], F.col("cut").alias("end"))
        found = found.join(F.broadcast(ends), list(PLACE), "left")
        cut = F.coalesce("cut", "end")
    zero = F.lit(0).cast("bigint")
    return found.withColumns({"known": cut.isNotNull(), "cut": F.coalesce(cut, zero)}).drop("end")


def discarded_by(t: Tables, written: DataFrame) -> DataFrame | None:
    """The starts (columns of `discards`) that discarded each of these sends, which have an offset; None: none did."""
    found = discards(t)
    if found is None:
        return None
    rows = written.join(F.broadcast(found), list(PLACE))
    return rows.where("offset >= cut and coalesce(done_ns, invoke_ns) <= mirroring_ns")


def _mirrored_ends(t: Tables, rows: DataFrame) -> DataFrame:
    """The end of each source's acknowledged records that are on its destination: PAIR, carried_end."""
    sent = t.sends.where("offset is not null and outcome in ('acked', 'committed')")
    sent = sent.select(F.col("cluster").alias("source"), *PAIR[2:], "value", F.col("offset").alias("sent_at"))
    held = t.truth_log.where("control_type is null and value is not null")
    held = held.select(F.col("cluster").alias("destination"), *PAIR[2:], "value")
    mirrored = rows.select(*PAIR).join(held, ["destination", *PAIR[2:]]).join(sent, ["source", *PAIR[2:], "value"])
    return mirrored.groupBy(*PAIR).agg((F.max("sent_at") + 1).alias("mirrored_end"))
