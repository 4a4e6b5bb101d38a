"""The incarnations of topics that were deleted and recreated: which one an operation, or a snapshot, refers to.

Not a checker: shared by the views of the history. `era` counts a topic's incarnations from 0. An event entirely before
a window (see `incarnation_windows`) refers to the incarnation before it, one entirely after it to the next; an
operation, or a snapshot, that overlaps one may refer to either, and then `era` stands for a range of incarnations
(`UNDECIDED` and more). No kind may conclude anything from the place of such a row; it may still explain what others
show. A snapshot whose log has a topic id belongs to the incarnation of that id (see `topic_ids`). Below 0: a branch
that a failback discarded (see `failbacks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.eras import FOREVER, MOST_INCARNATIONS, UNDECIDED, Incarnations

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_WINDOW = "struct<begin: bigint, end: bigint, begin_ns: bigint, end_ns: bigint, ends: map<int, bigint>>"
_SCHEMA = f"cluster string, topic string, windows array<{_WINDOW}>"


def undecided(era: Column | str = "era") -> Column:
    """Whether an era stands for several incarnations."""
    return F.coalesce((F.col(era) if isinstance(era, str) else era) >= UNDECIDED, F.lit(False))


def may_be_same(one: Column, other: Column) -> Column:
    """Whether two eras may be the same incarnation."""

    def first(era: Column) -> Column:
        return F.when(era >= UNDECIDED, F.floor(era / UNDECIDED).cast("int") - 1).otherwise(era)

    def last(era: Column) -> Column:
        return F.when(era >= UNDECIDED, era % UNDECIDED).otherwise(era)

    return (one == other) | (F.greatest(first(one), first(other)) <= F.least(last(one), last(other)))


def as_frame(t: Tables, incarnations: Incarnations) -> DataFrame | None:
    """cluster, topic, windows: array of structs as `Window`; None when there are none."""
    if not incarnations:
        return None
    rows = [
        (*topic, [(w.begin, w.end, w.begin_ns, w.end_ns, dict(w.ends)) for w in own])
        for topic, own in incarnations.items()
    ]
    return F.broadcast(t.spark.createDataFrame(rows, _SCHEMA))


def with_era(t: Tables, frame: DataFrame, begin: Column, end: Column) -> DataFrame:
    """Add `era` to operations: begin and end are the indices of their first and last event (FOREVER: it never ends)."""
    return _with_era(t, frame, lambda w: w["end"] < begin, lambda w: w["begin"] < end)


def with_era_at(t: Tables, frame: DataFrame, begin: Column, end: Column | None = None) -> DataFrame:
    """Add `era` to rows that have only times (in ns); end: by default the same as begin."""
    until = begin if end is None else F.coalesce(end, F.lit(FOREVER))
    return _with_era(t, frame, lambda w: w["end_ns"] <= begin, lambda w: w["begin_ns"] < until)


def _with_era(
    t: Tables, frame: DataFrame, past: Callable[[Column], Column], begun: Callable[[Column], Column]
) -> DataFrame:
    """past, begun: of a window, whether it ended before the row's first event, and began before its last."""
    if t.incarnation_windows is None:
        return frame.withColumn("era", F.lit(0))
    rows = frame.join(t.incarnation_windows, ["cluster", "topic"], "left")
    first = F.size(F.filter("windows", past))
    last = F.greatest(F.size(F.filter("windows", begun)), first)
    either = (F.least(first, F.lit(MOST_INCARNATIONS)) + 1) * UNDECIDED + last
    era = F.when(F.col("windows").isNull(), 0).when(first == last, first).otherwise(either)
    return rows.withColumn("era", era.cast("int")).drop("windows")


def decided_by_offset(t: Tables, sent: DataFrame) -> DataFrame:
    """Decide `era` of sends (op, offset) that were invoked within one window and acknowledged at an offset which the
    log before it had passed already: they went into the recreated topic."""
    if t.incarnation_windows is None:
        return sent
    rows = sent.join(t.incarnation_windows, ["cluster", "topic"], "left")
    first, last = F.floor(F.col("era") / UNDECIDED).cast("int") - 1, F.col("era") % UNDECIDED
    window = F.when(undecided() & (last == first + 1), F.get("windows", first))
    passed = (F.col("op") > window["begin"]) & (F.col("offset") < F.try_element_at(window["ends"], F.col("partition")))
    era = F.when(F.coalesce(passed, F.lit(False)), last).otherwise(F.col("era"))
    return rows.withColumn("era", era.cast("int")).drop("windows")


def with_ended(t: Tables, rows: DataFrame) -> DataFrame:
    """Add `ended`: whether the incarnation that a row refers to is over, or may be, or its branch was discarded."""
    gone = F.coalesce(F.col("era") < 0, F.lit(False))
    if t.incarnation_windows is None:
        return rows.withColumn("ended", gone)
    counted = F.broadcast(t.incarnation_windows.select("cluster", "topic", F.size("windows").alias("windows")))
    rows = rows.join(counted, ["cluster", "topic"], "left")
    over = F.coalesce(F.col("windows") > F.col("era"), F.lit(False))
    return rows.withColumn("ended", gone | over | undecided()).drop("windows")
