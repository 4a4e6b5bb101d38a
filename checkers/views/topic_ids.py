"""Which incarnation of a topic a log belongs to, by the topic id that it was stored under.

A late snapshot may show the log of an earlier incarnation: a broker that was down while the topic was recreated still
has the old one. An id belongs to the first incarnation in which a snapshot outside the windows shows it. Where two ids
would belong to one incarnation, the one that a leader shows does, and the other to an earlier one; without a leader's
snapshot this is left undecided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.eras import UNDECIDED
from checkers.views.incarnations import undecided, with_era_at
from checkers.views.keys import REPLICA

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_SNAPSHOT = (*REPLICA, "look")
Seen = tuple[str, int, bool]
"""id, era of a snapshot by its time, whether a leader showed it"""


def with_era_of_log(t: Tables, snapshots: DataFrame) -> DataFrame:
    """Add `era` to rows of `log_ends`: by their time, and by the topic id of what their log holds."""
    rows = with_era_at(t, snapshots, F.col("time_ns"))
    decided = t.eras_by_id
    if decided is None:
        return rows
    rows = rows.withColumn("_look", F.coalesce("look", F.lit(0)))
    rows = rows.join(decided, [F.col(c) == F.col(f"_id_{c}") for c in (*REPLICA, "_look")], "left")
    return rows.withColumn("era", F.coalesce("by_id", "era")).drop(
        *(f"_id_{c}" for c in (*REPLICA, "_look")), "by_id", "_look"
    )


def of_the_newest_incarnation(t: Tables, snapshots: DataFrame) -> DataFrame:
    """Add `era` to rows of `log_ends`, and leave out those of incarnations before the newest that any of them shows.
    Where no
    snapshot has a known incarnation, each partition's last one is kept."""
    rows = with_era_of_log(t, snapshots)
    if t.incarnation_windows is None:
        return rows
    topic = Window.partitionBy("cluster", "topic")
    newest = F.max(F.when(~undecided(), F.col("era"))).over(topic)
    last = F.max("time_ns").over(Window.partitionBy("cluster", "topic", "partition"))
    rows = rows.withColumns({"_newest": newest, "_last": last})
    return rows.where("era = coalesce(_newest, era) and (_newest is not null or time_ns = _last)").drop(
        "_newest", "_last"
    )


def by_id(t: Tables) -> DataFrame | None:
    """The logs whose incarnation follows from their topic id: REPLICA (as _id_NAME, look as _id__look), by_id."""
    if t.incarnation_windows is None or not t.has("batches"):
        return None
    stored = t.table("batches").where("topic_id is not null")
    stored = stored.join(t.incarnation_windows.select("cluster", "topic"), ["cluster", "topic"], "left_semi")
    stored = stored.withColumn("look", F.coalesce("look", F.lit(0)))
    logs = t.cache(stored.groupBy(*_SNAPSHOT).agg(F.max("topic_id").alias("topic_id")))
    if t.is_empty(logs):
        return None
    times = t.table("log_ends").where("broker is not null").withColumn("look", F.coalesce("look", F.lit(0)))
    leads = F.coalesce(F.col("broker") == F.col("leader"), F.lit(False)).alias("leads")
    shown = with_era_at(t, times.join(logs, list(_SNAPSHOT)), F.col("time_ns"))
    found: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for row in shown.select("cluster", "topic", "topic_id", "era", leads).distinct().collect():
        found[row["cluster"], row["topic"]].append((row["topic_id"], row["era"], row["leads"]))
    rows = [(*topic, name, era) for topic, seen in found.items() for name, era in eras_of_ids(seen).items()]
    if not rows:
        return None
    eras = F.broadcast(t.spark.createDataFrame(rows, "cluster string, topic string, topic_id string, by_id int"))
    named = logs.join(eras, ["cluster", "topic", "topic_id"])
    names = [F.col(c).alias(f"_id_{c}") for c in REPLICA]
    return F.broadcast(named.select(*names, F.col("look").alias("_id__look"), "by_id"))


def eras_of_ids(seen: Iterable[Seen]) -> Mapping[str, int]:
    """The era of each id of one topic, where it is known."""
    sure: dict[str, int] = {}
    ranges: dict[str, int] = {}
    led: dict[int, set[str]] = defaultdict(set)
    for name, era, leads in seen:
        if era >= UNDECIDED:
            ranges.setdefault(name, era)
        else:
            sure[name] = min(era, sure.get(name, era))
            if leads:
                led[era].add(name)
    found = dict(sure)
    for incarnation in set(sure.values()):
        names = {name for name, era in sure.items() if era == incarnation}
        if len(names) == 1:
            continue
        leading = led[incarnation] & names
        for name in names - (leading if len(leading) == 1 else set()):
            if len(leading) == 1:
                found[name] = 0 if incarnation == 1 else UNDECIDED + max(incarnation - 1, 0)
            else:
                found[name] = UNDECIDED + incarnation
    taken = {era for era in found.values() if era < UNDECIDED}
    for name, era in ranges.items():
        first, last = era // UNDECIDED - 1, era % UNDECIDED
        if name not in found and last == first + 1 and (first in taken) != (last in taken):
            found[name] = last if first in taken else first
    return found
