"""`copy_gone`: a destination held less than the mirror had brought there.

What had been mirrored is known from three sources: the high watermark of a snapshot, a record that a consumer read
(both: form `seen`), and the destination's offset that the mirror itself described (form `described`: the cut of a stop,
or a log end under the leader epoch under which it is looked at, which a leader never gives up). From then on, outside
a start of the mirror over that log, every snapshot of the leader ends at or above it, whatever state the mirror says.
A log start that goes forward (retention) is none of it: ends stay. A deleted topic's copy is another log.

Cannot see: what was gone and mirrored again between two snapshots; in large histories, what readers had seen; records
that are missing below the log end (`mirror_loss`, `offset_identity`); anything where unclean elections were forced,
which copies follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.completeness import is_listed
from checkers.views.incarnations import undecided, with_era_at
from checkers.views.keys import PARTITION
from checkers.views.mirror_starts import PLACE, starts
from checkers.views.mirroring import keeps_offsets, unclean_clusters
from checkers.views.tables import Tables
from checkers.views.topic_ids import with_era_of_log
from checkers.views.truncations import with_windows, within

KIND = AnomalyKind(
    name="copy_gone",
    severity=Severity.S1,
    violation="lost records that had been mirrored to it",
    section=2,
    what="outside a start, the destination holds at least what was mirrored to it",
    limitations="what was mirrored again before the next snapshot; runs with unclean elections",
    sources=("KIP-1279",),
    requires=("log_ends", "mirror_states"),
    forms=("seen", "described"),
)
_TURN = (*PARTITION, "origin_topic", "era", "turn")
_KEY = (*_TURN, "stopped")


def check(t: Tables) -> DataFrame | None:
    """One row per form, partition and end that had been reached, at the first snapshot below it."""
    found = starts(t)
    if found is None or unclean_clusters(t):
        return None
    begun = t.cache(with_windows(t, found.groupBy(*PLACE).agg(F.min("from_ns").alias("first_ns"))))
    looks = t.cache(_looks(t, begun))
    if t.is_empty(looks):
        return None
    parts = [_below(looks, _marks(looks, "high_watermark"), _KEY), _below(looks, _marks(looks, "last_stable"), _TURN)]
    described = None
    if keeps_offsets(t):
        parts.append(_below(looks, _cuts(t, begun), _TURN))
        described = _below(looks, _described(t, looks, begun), (*_KEY, "epoch"))
    if not t.large:
        parts.append(_below(looks, _read(t, begun), _KEY))
    seen = reduce(DataFrame.unionByName, parts)
    # One row for a snapshot, whatever shows what had been reached.
    most = F.max(F.struct("reached", "how")).alias("had")
    seen = seen.groupBy(*PARTITION, "offset", "time_ns").agg(most).select(*PARTITION, "offset", "had.*")
    return union([_row(seen, "seen"), None if described is None else _row(described, "described")])


def _marks(looks: DataFrame, end: str) -> DataFrame:
    """Ends that snapshots show: _KEY, time_ns, reached, how. A stop may cut off what is above the last stable one."""
    rows = looks.select(*_KEY, "time_ns", F.col(end).alias("reached")).where("reached is not null")
    return rows.withColumn("how", F.lit(f"its {end.replace('_', ' ')}" + (" offset" if end == "last_stable" else "")))


def _row(rows: DataFrame, form: str) -> DataFrame:
    return anomalies(
        rows,
        "copy_gone",
        form=F.lit(form),
        value=None,
        rank=F.col("offset") - F.col("reached"),
        explain=sentence(
            "the copy of %s-%s on %s had reached offset %s (%s), and ended at %s later",
            *("topic", "partition", "cluster", "reached", "how", "offset"),
        ),
    )


def _in_turns(rows: DataFrame, begun: DataFrame) -> DataFrame:
    """Rows of copies, outside truncations, with `turn` and `stopped`: how many starts and stops had begun."""
    rows = rows.join(F.broadcast(begun), list(PLACE)).where("time_ns >= first_ns")
    at = F.col("time_ns")
    rows = rows.where(~within(F.concat("windows", "stops"), at, at))

    def begun_of(name: str) -> Column:
        return F.size(F.filter(name, lambda w: w["from_ns"] <= at))

    turns = {"turn": begun_of("windows"), "stopped": begun_of("stops")}
    return rows.withColumns(turns).drop("windows", "stops", "first_ns")


def _looks(t: Tables, begun: DataFrame) -> DataFrame:
    """Snapshots of leaders: _KEY, time_ns, log_end, high_watermark, epoch (a struct; null: unknown)."""
    rows = t.table("log_ends").where("log_end is not null and (broker is null or broker = -1 or broker = leader)")
    rows = with_era_of_log(t, rows.withColumn("origin_topic", t.canonical())).where(~undecided())
    epoch = F.struct("leader", "leader_epoch")
    known = (F.col("leader_epoch").isNotNull() | F.lit(not t.has("faults"))) & _led_by_describer(t)
    columns = ("time_ns", "log_end", "high_watermark", "last_stable")
    return _in_turns(rows, begun).select(*_KEY, *columns, F.when(known, epoch).alias("epoch"))


def _led_by_describer(t: Tables) -> Column:
    """Whether what a mirror describes can be about this leader's log: not where a mirror's own process leads partitions
    and a broker has taken over from it, which a process that was cut off does not know yet."""
    listed = is_listed(t, "leader")
    led = t.table("log_ends").where("leader is not null").where(~listed).select("cluster").distinct().collect()
    return ~listed | ~F.col("cluster").isin(*(row["cluster"] for row in led)) if led else F.lit(True)


def _states(t: Tables, where: str) -> DataFrame:
    rows = t.table("mirror_states").where(where).where("destination_offset >= 0 and topic is not null")
    rows = rows.withColumn("origin_topic", t.canonical())
    return with_era_at(t, rows, F.col("time_ns")).where(~undecided())


def _cuts(t: Tables, begun: DataFrame) -> DataFrame:
    """Cuts of stops: _KEY, time_ns, reached, how."""
    rows = _in_turns(_states(t, "state = 'STOPPED'"), begun)
    return rows.select(*_KEY, "time_ns", F.col("destination_offset").alias("reached"), F.lit("its cut").alias("how"))


def _read(t: Tables, begun: DataFrame) -> DataFrame:
    """What readers had read, for the first time: as `_cuts`."""
    rows = t.polled.where("era >= 0").where(~undecided()).withColumn("origin_topic", t.canonical())
    rows = rows.groupBy(*PARTITION, "origin_topic", "era", F.col("first_ns").alias("time_ns")).agg(
        (F.max("offset") + 1).alias("reached")
    )
    return _in_turns(rows, begun).select(*_KEY, "time_ns", "reached", F.lit("as it was read").alias("how"))


def _described(t: Tables, looks: DataFrame, begun: DataFrame) -> DataFrame:
    """Ends that a running mirror described, under the epoch of the snapshot before: as `_cuts`, and epoch.

    A run takes the time of a description before it asks: it is over when the next one begins."""
    rows = _states(t, "state in ('MIRRORING', 'PAUSING', 'PAUSED', 'STOPPING')")
    rows = rows.withColumn("next_ns", F.lead("time_ns").over(Window.partitionBy(*PARTITION).orderBy("time_ns")))
    rows = _in_turns(rows, begun)
    since = F.col("time_ns") if t.stored.imported else F.col("next_ns")
    said = rows.select(*_KEY, "time_ns", F.col("destination_offset").alias("reached"), since.alias("since_ns"))
    order = Window.partitionBy(*_KEY).orderBy("time_ns").rowsBetween(Window.unboundedPreceding, 0)
    both = said.unionByName(looks.select(*_KEY, "time_ns", "epoch"), allowMissingColumns=True)
    both = both.withColumn("epoch", F.last("epoch", ignorenulls=True).over(order))
    both = both.where("reached is not null and epoch is not null and since_ns is not null")
    how = F.lit("as the mirror described it")
    return both.select(*_KEY, F.col("since_ns").alias("time_ns"), "reached", "epoch", how.alias("how"))


def _below(looks: DataFrame, claims: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The first snapshot below each end that had been reached before it: PARTITION, time_ns, reached, how, offset.
    keys: what a snapshot and an end must have in common."""
    columns = (*keys, "time_ns")
    ends = looks.where("epoch is not null") if "epoch" in keys else looks
    rows = claims.select(*columns, "reached", "how")
    rows = rows.unionByName(ends.select(*columns, "log_end"), allowMissingColumns=True)
    before = Window.partitionBy(*keys).orderBy("time_ns").rangeBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("had", F.max(F.struct("reached", "how")).over(before)).where("log_end < had.reached")
    first = F.min(F.struct("time_ns", "log_end")).alias("first")
    found = rows.groupBy(*keys, "had").agg(first)
    return found.select(*PARTITION, "first.time_ns", "had.*", F.col("first.log_end").alias("offset"))


CHECKER = Checker(name="copy_gone", kinds=(KIND,), check=check)
