"""Partitions that were mirrored back, and where their old source's log was truncated.

Not a checker: shared by `failback` and `lost_write`. Records above the cut that a failback discards are no loss of the
cluster: `failback` checks whether they were reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.views.mirror_spans import MIRRORED as _MIRRORED
from checkers.views.mirroring import PAIR, keeps_offsets, scopes, states

if TYPE_CHECKING:
    from checkers.views.tables import Tables


def turned(t: Tables) -> DataFrame | None:
    """The rows of `scopes` whose source became a destination later, with back_state (the last state of the mirror
    there) and cut: the recorded one, else the end of the source's records on the destination.

    None when nothing was mirrored back, or the mirror does not preserve offsets.
    """
    if not t.has("mirror_states") or not t.has("records") or not keeps_offsets(t):
        return None
    return t.once("turned", _turned)


def _turned(t: Tables) -> DataFrame | None:
    where = scopes(t)
    if where is None:
        return None
    # In a chain the cluster in the middle is a destination all along.
    sources = sorted({source for source, _ in t.mirror_pairs} - {destination for _, destination in t.mirror_pairs})
    began = t.table("mirror_states").where(F.col("cluster").isin(*sources) & F.col("state").isin(*_MIRRORED))
    if began.isEmpty():
        return None
    began = began.select("cluster", t.canonical().alias("origin_topic"), "partition").distinct()
    back = states(t).join(F.broadcast(began), ["cluster", *PAIR[2:]], "left_semi")
    back = back.select(F.col("cluster").alias("source"), *PAIR[2:], F.col("last_state").alias("back_state"))
    rows = where.where("from_log and b_end is not null").join(F.broadcast(back), ["source", *PAIR[2:]])
    if rows.isEmpty():
        return None
    sent = t.sends.where("offset is not null and outcome in ('acked', 'committed')")
    sent = sent.select(F.col("cluster").alias("source"), *PAIR[2:], "value", F.col("offset").alias("sent_at"))
    held = t.truth_log.where("control_type is null and value is not null")
    held = held.select(F.col("cluster").alias("destination"), *PAIR[2:], "value")
    carried = rows.select(*PAIR).join(held, ["destination", *PAIR[2:]]).join(sent, ["source", *PAIR[2:], "value"])
    ends = carried.groupBy(*PAIR).agg((F.max("sent_at") + 1).alias("carried_end"))
    rows = rows.join(ends, list(PAIR), "left")
    cut = F.coalesce("cut_source", "carried_end", F.lit(0).cast("bigint"))
    return rows.withColumn("cut", cut).drop("carried_end")
