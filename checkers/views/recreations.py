"""When topics were deleted and recreated: for each topic the windows between its incarnations.

Not a checker: the basis of `incarnations`. A window begins with the request of a deletion. It ends when the topic was
recreated: at the answer to the creation after it, or, if none is recorded, at the first evidence of the new
incarnation: an acknowledged offset, or a record sent after the deletion and seen, below the known former log end; a log
that ends, or was read to an end, below that; another topic id. Without evidence of a new incarnation it never ends.

A deletion of unknown outcome counts only with evidence that it happened: the topic could be recreated, did not exist
for another deletion, or shows a new incarnation. Deletions without a known recreation in between are one. An id that
changes where the history has no deletion is no evidence: it is unknown who deleted the topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.eras import FOREVER, Topic, Window

if TYPE_CHECKING:
    from checkers.views.tables import Tables

At = tuple[int, int]
"""Index and time."""
_GONE = r"(?i)unknown_?topic"
_DELETES = "cluster string, topic string, number int, begin bigint, begin_ns bigint, until bigint, until_ns bigint, since bigint, since_ns bigint"  # noqa: E501


@dataclass(frozen=True)
class Step:
    """One deletion or creation: index and time of its first event and of its completion (FOREVER: none); done: it was
    acknowledged, or is otherwise known to have happened."""

    delete: bool
    begin: int
    begin_ns: int
    end: int
    end_ns: int
    done: bool
    until: int = FOREVER
    until_ns: int = FOREVER
    since: int = -1
    since_ns: int = -1


def windows(t: Tables) -> dict[Topic, tuple[Window, ...]]:
    """Every topic that had more than one incarnation, or lost its only one, and its windows, ascending."""
    if not t.facts.deletes:
        return {}
    steps = _steps(t)
    frame = _as_frame(t, {topic: deletions(own) for topic, own in steps.items()})
    if frame is None:
        return {}
    ends = _known_ends(t, frame)
    known: dict[Topic, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in ends.collect():
        known[row["cluster"], row["topic"]][row["number"]][row["partition"]] = row["known"]
    wanting = [(*topic, n) for topic, own in steps.items() for n, made in enumerate(_creations(own)) if made is None]
    shown: dict[Topic, dict[int, At]] = defaultdict(dict)
    for (cluster, topic, number), at in (_first_evidence(t, frame, ends, wanting) if wanting else {}).items():
        shown[cluster, topic][number] = at
    found = {topic: windows_of(own, shown[topic], known[topic]) for topic, own in steps.items()}
    return {topic: each for topic, each in found.items() if each}


def windows_of(
    steps: Sequence[Step], shown: Mapping[int, At], known: Mapping[int, Mapping[int, int]]
) -> tuple[Window, ...]:
    """The windows of one topic. steps: its deletions and creations, ascending by `begin`; by the number of a deletion:
    shown: the first evidence of a new incarnation; known: partition → the known log end before."""
    deletes, made = deletions(steps), _creations(steps)
    found: list[Window] = []
    begun: tuple[int, Step] | None = None  # the first deletion of a window without an end so far
    for n, d in enumerate(deletes):
        at = made[n] or shown.get(n)
        if begun is None and (d.done or at is not None):
            begun = (n, d)
        if begun is None or (at is None and n + 1 < len(deletes)):
            continue
        number, first = begun
        begun = None
        end, end_ns = at or (FOREVER, FOREVER)
        window = Window(first.begin, end, first.begin_ns, end_ns, dict(known.get(number, {})))
        if found and found[-1].end > window.begin:
            window = replace(found.pop(), end=window.end, end_ns=window.end_ns)
        found.append(window)
    return tuple(found)


# -- requests -----------------------------------------------------------------------------------------------


def _steps(t: Tables) -> dict[Topic, list[Step]]:
    """Deletions and creations that did not fail, in the order of their requests."""
    events = t.ops.where("f in ('delete_topic', 'create_topic')")
    named = t.table("op_records").where("topic is not null").select(F.col("op_index").alias("index"), "topic")
    topics = named.join(events.select("index", "op"), "index").select("op", "topic").distinct()
    done = F.col("type") != "invoke"
    ops = events.groupBy("op", "f", "cluster").agg(
        F.min("index").alias("begin"),
        F.min("time_ns").alias("begin_ns"),
        F.max(F.when(done, F.col("index"))).alias("end"),
        F.max(F.when(done, F.col("time_ns"))).alias("end_ns"),
        *(F.max(F.col("type") == kind).alias(kind) for kind in ("ok", "fail")),
        F.max(F.col("type") == "invoke").alias("invoked"),
        F.max(F.coalesce(F.col("error").rlike(_GONE), F.lit(False))).alias("gone"),
    )
    found: dict[Topic, list[Step]] = defaultdict(list)
    gone: dict[Topic, list[int]] = defaultdict(list)
    for row in ops.join(topics, "op").orderBy("begin").collect():
        topic = (row["cluster"], row["topic"])
        if row["fail"] and not row["ok"]:
            if row["f"] == "delete_topic" and row["gone"]:
                gone[topic].append(row["begin"])
            continue
        ended = row["end"] is not None
        end, end_ns = (row["end"], row["end_ns"]) if ended else (FOREVER, FOREVER)
        # As everywhere: an info event without an invocation reports what was done.
        sure = not row["fail"] and (row["ok"] or not row["invoked"])
        found[topic].append(Step(row["f"] == "delete_topic", row["begin"], row["begin_ns"], end, end_ns, sure))
    # A deletion that failed because there is no such topic shows that the deletion before it was done.
    for topic, at in gone.items():
        for n, step in enumerate(found[topic]):
            following = min((s.begin for s in found[topic][n + 1 :]), default=FOREVER)
            if step.delete and any(step.begin < index < following for index in at):
                found[topic][n] = replace(step, done=True)
    return found


def deletions(steps: Sequence[Step]) -> list[Step]:
    """The deletions, each with the begin of the next, and from when on the log that it deletes is known to be one."""
    found = [s for s in steps if s.delete]
    for n, step in enumerate(found):
        following = found[n + 1] if n + 1 < len(found) else None
        until, until_ns = (following.begin, following.begin_ns) if following else (FOREVER, FOREVER)
        sure = [s for s in steps if s.done and s.end < step.begin]
        since, since_ns = max(((s.end, s.end_ns) for s in sure), default=(-1, -1))
        found[n] = replace(step, until=until, until_ns=until_ns, since=since, since_ns=since_ns)
    return found


def _creations(steps: Sequence[Step]) -> list[At | None]:
    """For each deletion: when the creation after it was answered."""
    made = [s for s in steps if not s.delete and s.done]
    found: list[At | None] = []
    for d in deletions(steps):
        after = [c for c in made if d.begin < c.begin < d.until]
        if d.done:  # a creation concurrent with the deletion may have come before it
            at_once = [c for c in made if c.begin < d.end and d.begin < c.end and c.begin < d.until]
            after = [c for c in after if c.begin > d.end] or at_once
        first = min(after, key=lambda c: c.end, default=None)
        ends = [(s.end, s.end_ns) for s in (first, d if d.done and d.end < FOREVER else None) if s is not None]
        found.append(max(ends) if first is not None else None)
    return found


# -- evidence of a new incarnation ------------------------------------------------------------------------------


def _as_frame(t: Tables, deletes: Mapping[Topic, list[Step]]) -> DataFrame | None:
    """The columns of _DELETES; number counts a topic's deletions from 0."""
    rows = [
        (*topic, n, d.begin, d.begin_ns, d.until, d.until_ns, d.since, d.since_ns)
        for topic, own in deletes.items()
        for n, d in enumerate(own)
    ]
    return F.broadcast(t.spark.createDataFrame(rows, _DELETES)) if rows else None


def _marks(t: Tables, deletes: DataFrame) -> DataFrame:
    """Offsets that clients got for these topics, once per deletion: the columns of _DELETES, partition, offset,
    value, action (send, poll), op, op_index, time_ns."""
    ops = t.ops.where("f in ('send', 'poll', 'txn') and type != 'invoke'")
    ops = ops.select(F.col("index").alias("op_index"), "op", "cluster", "time_ns")
    rows = t.table("op_records").where("action in ('send', 'poll') and offset >= 0 and partition is not null")
    rows = rows.select("op_index", "action", "topic", "partition", "offset", "value")
    rows = rows.join(F.broadcast(deletes.select("topic").distinct()), "topic", "left_semi")
    return rows.join(ops, "op_index").join(deletes, ["cluster", "topic"])


def _snapshots(t: Tables, deletes: DataFrame) -> DataFrame:
    """Log ends from leaders' snapshots, once per deletion: the columns of _DELETES, partition, log_end, time_ns."""
    snapshots = t.table("log_ends").where("log_end is not null and partition is not null")
    snapshots = snapshots.where("coalesce(broker, -1) = -1 or broker = leader")
    return snapshots.select("cluster", "topic", "partition", "log_end", "time_ns").join(deletes, ["cluster", "topic"])


def _known_ends(t: Tables, deletes: DataFrame) -> DataFrame:
    """Known log ends before a deletion was requested: cluster, topic, number, partition, known."""
    place = ("cluster", "topic", "number", "partition")
    marks = _marks(t, deletes).where("op_index < begin and op > since")
    ends = [marks.select(*place, (F.col("offset") + 1).alias("known"))]
    if t.has("log_ends"):
        snapshots = _snapshots(t, deletes).where("time_ns < begin_ns and time_ns > since_ns")
        ends.append(snapshots.select(*place, F.col("log_end").alias("known")))
    return t.cache(reduce(DataFrame.unionByName, ends).groupBy(*place).agg(F.max("known").alias("known")))


def _first_evidence(
    t: Tables, deletes: DataFrame, ends: DataFrame, wanting: Iterable[tuple[str, str, int]]
) -> dict[tuple[str, str, int], At]:
    """(cluster, topic, number) → from when on a new incarnation is known."""
    place = ["cluster", "topic", "number"]
    wanted = F.broadcast(t.spark.createDataFrame(sorted(wanting), "cluster string, topic string, number int"))
    deletes = F.broadcast(deletes.join(wanted, place, "left_semi"))
    known = F.broadcast(ends)
    of_log = [*place, "partition"]
    began = t.ops.where("f in ('send', 'txn') and type = 'invoke'").select(F.col("index").alias("op_index"))
    sent = t.table("op_records").where("action = 'send' and value is not null")
    sent = sent.join(began, "op_index").groupBy("value").agg(F.min("op_index").alias("sent"))
    marks = _marks(t, deletes).join(known, of_log).where("offset < known and op_index > begin and op_index < until")
    read = marks.where("action = 'poll'").join(sent, "value").where("sent > begin")
    marks = marks.where("action = 'send' and op > begin")
    by_op = marks.select(*place, "op_index", "time_ns").unionByName(read.select(*place, "op_index", "time_ns"))
    by_time = []
    until = "time_ns > begin_ns and time_ns < until_ns"
    if t.has("log_ends"):
        snapshots = _snapshots(t, deletes).join(known, of_log).where("log_end < known").where(until)
        by_time.append(snapshots.select(*place, "time_ns"))
    if t.has("final_reads"):
        final = t.table("final_reads").where("complete").join(deletes, ["cluster", "topic"]).where(until)
        by_time.append(final.join(known, of_log).where("position < known").select(*place, "time_ns"))
    if t.has("records") and t.has("log_ends"):
        held = _at_snapshot(t, "records", ["partition", "offset", "value"]).where("value is not null")
        held = held.join(deletes, ["cluster", "topic"]).where(until).join(known, of_log).where("offset < known")
        by_time.append(held.join(sent, "value").where("sent > begin").select(*place, "time_ns"))
    if t.has("batches") and t.has("log_ends"):
        ids = _at_snapshot(t, "batches", ["topic_id"]).where("topic_id is not null")
        ids = ids.join(deletes, ["cluster", "topic"]).where("time_ns < until_ns")
        old = F.collect_set(F.when(F.col("time_ns") < F.col("begin_ns"), F.col("topic_id")))
        before = ids.where("time_ns > since_ns").groupBy(*place).agg(old.alias("old"))
        new = ids.where("time_ns > begin_ns").join(F.broadcast(before), place)
        by_time.append(new.where("size(old) > 0 and not array_contains(old, topic_id)").select(*place, "time_ns"))
    first = by_op.groupBy(*place).agg(F.min(F.struct("op_index", "time_ns")).alias("first"))
    found = {(r["cluster"], r["topic"], r["number"]): (r["first"][0], r["first"][1]) for r in first.collect()}
    if by_time:
        rows = reduce(DataFrame.unionByName, by_time).groupBy(*place).agg(F.min("time_ns").alias("at")).collect()
        after = _first_after(t, sorted({r["at"] for r in rows}))
        for row in rows:
            key, at = (row["cluster"], row["topic"], row["number"]), (after[row["at"]] - 1, row["at"])
            found[key] = min(found.get(key, at), at)
    return found


def _at_snapshot(t: Tables, table: str, columns: list[str]) -> DataFrame:
    """Rows of a table of logs with the time of their snapshot: cluster, topic, time_ns and the columns."""
    replica = ["cluster", "topic", "partition", "broker", "look"]
    snapshot = F.coalesce("look", F.lit(0))
    times = t.table("log_ends").where("broker is not null").withColumn("look", snapshot)
    times = times.groupBy(*replica).agg(F.min("time_ns").alias("time_ns"))
    rows = t.table(table).withColumn("look", snapshot).join(times, replica)
    return rows.select("cluster", "topic", "time_ns", *columns)


def _first_after(t: Tables, times: list[int]) -> dict[int, int]:
    """Time → index of the first event after it; where there is none, beyond the last."""
    if not times:
        return {}

    def first(at: int) -> Column:
        return F.min(F.when(F.col("time_ns") > at, F.col("index")))

    row = t.ops.agg(F.max("index").alias("last"), *(first(at).alias(f"t{n}") for n, at in enumerate(times))).head()
    assert row is not None
    return {at: row["last"] + 1 if row[f"t{n}"] is None else row[f"t{n}"] for n, at in enumerate(times)}
