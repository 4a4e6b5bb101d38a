"""Group offsets on a destination, and the bounds of the log when each was written; groups that moved there.

Not a checker: shared by the checkers of groups. Offsets are *written* by a mirror (event sync, checkpoint) or only
*seen* (look). The bounds of the log at that time are proven ones:
- low: the greatest log start seen until then; a log start never goes back;
- high: an upper bound of the log end, from the next evidence: a leader's log end in a later snapshot, or the
  acknowledged offset of a send that began later; never less than an end seen before. A mirror may truncate the log
  while it is being stopped, so evidence from after the begin of a stop does not apply to earlier writes, nor evidence
  from after its end to writes during it. Without later evidence it is the last end seen before, in an imported history
  (which states what its writer knew) and in a run whose clients and mirror were idle by then; else it is null.
Clusters on which an unclean election was forced have no bounds: there a log end may go back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.compaction import keyed_records, keyed_sends
from checkers.views.incarnations import undecided, with_era_at
from checkers.views.keys import GROUP, PARTITION
from checkers.views.mirror_spans import stop_begins
from checkers.views.mirroring import unclean_clusters
from harness.history.ops import Phase

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_SOURCE_OF = {"B": "A", "C": "B"}
_NO_EVIDENCE = (1 << 63) - 1


def source_of(cluster: Column | str) -> Column:
    """The letter of the cluster that is mirrored to this one; null for A."""
    c = F.col(cluster) if isinstance(cluster, str) else cluster
    return F.create_map(*(F.lit(x) for pair in _SOURCE_OF.items() for x in pair))[c]


def written(t: Tables) -> DataFrame:
    """One row per offset written or seen on a destination: GROUP, origin_topic, kind, event, time_ns, offset,
    source_offset, low, high."""
    found = t.once("group_written", _written)
    assert found is not None
    return found


def _written(t: Tables) -> DataFrame:
    rows = t.table("group_offsets").where("offset >= 0 and topic is not null and partition is not null")
    by_mirror = F.col("event").isin("sync", "checkpoint")
    rows = rows.where(by_mirror | ((F.col("event") == "look") & F.col("cluster").isin(*_SOURCE_OF)))
    unclean = unclean_clusters(t)
    if unclean:
        rows = rows.where(~F.col("cluster").isin(*unclean))
    what = F.struct("group", "kind", "event", "offset", "source_offset").alias("w")
    empty = {"start": "bigint", "end": "bigint", "sure": "bigint", "sent": "bigint"}

    def shaped(frame: DataFrame, **given: Column) -> DataFrame:
        columns = [given.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in empty.items()]
        return frame.select(*PARTITION, "time_ns", given.get("w", F.lit(None)).alias("w"), *columns)

    here = F.broadcast(rows.select(*PARTITION).distinct())
    ends = t.table("log_ends").where("log_start is not null or log_end is not null").join(here, list(PARTITION))
    leads = (F.coalesce("broker", F.lit(-1)) == -1) | F.coalesce(F.col("broker") == F.col("leader"), F.lit(False))
    sent = t.sends.where("outcome in ('acked', 'committed') and offset is not null")
    sent = sent.groupBy(*PARTITION, F.col("invoke_ns").alias("time_ns")).agg(F.min("offset").alias("offset"))
    sent = sent.join(here, list(PARTITION))
    events = (
        rows.select(*PARTITION, "time_ns", what, *(F.lit(None).cast(kind).alias(n) for n, kind in empty.items()))
        .unionByName(shaped(ends, start=F.col("log_start"), end=F.col("log_end"), sure=F.when(leads, F.col("log_end"))))
        .unionByName(shaped(sent, sent=F.col("offset")))
    )
    events = _with_stops(t, with_era_at(t, events, F.col("time_ns")).where(~undecided()))
    places = Window.partitionBy(*PARTITION, "era")
    unwritten = F.col("w").isNull()
    earlier = places.orderBy("time_ns", unwritten).rowsBetween(Window.unboundedPreceding, -1)
    # Backwards: Spark takes quadratic time for a frame that ends at the end of the partition.
    between_stops = Window.partitionBy(*PARTITION, "era", "stops")
    later = between_stops.orderBy(F.desc("time_ns"), unwritten.desc()).rowsBetween(Window.unboundedPreceding, -1)
    before = F.max("end").over(earlier)
    following = F.last(F.coalesce("sure", "sent"), ignorenulls=True).over(later)
    bound = F.coalesce(following, F.max("end").over(later))
    found = events.withColumns({"low": F.max("start").over(earlier), "before": before, "after": bound}).where(
        "w is not null"
    )
    at_rest = F.col("time_ns") >= _at_rest(t)
    high = F.when(F.col("after").isNotNull() | at_rest, F.greatest("after", "before"))
    return found.select(*PARTITION, "time_ns", "w.*", "low", high.alias("high"), t.canonical().alias("origin_topic"))


def _with_stops(t: Tables, events: DataFrame) -> DataFrame:
    """Add `stops`: how often a stop of the cluster's mirror had begun or ended by then."""
    times = F.flatten(F.collect_list(F.array("begin", "end"))).alias("stop_times")
    stops = stop_begins(t).groupBy("cluster").agg(times)
    events = events.join(F.broadcast(stops), "cluster", "left")
    passed = F.size(F.filter("stop_times", lambda at: at <= F.col("time_ns")))
    return events.withColumn("stops", F.when(F.col("stop_times").isNull(), 0).otherwise(passed)).drop("stop_times")


def _at_rest(t: Tables) -> int:
    """From when on an end that was seen before is still valid."""
    if t.stored.imported:
        return 0
    begins = [p.start_ns for p in t.meta.phases if p.name == Phase.EVIDENCE]
    return min(begins, default=_NO_EVIDENCE)


def out_of_range(t: Tables) -> DataFrame:
    """Offsets outside the log, the first write of each: GROUP, kind, offset, time_ns, low, high, event."""

    def build(t: Tables) -> DataFrame:
        bad = written(t).where("event != 'checkpoint' and (offset > high or (event = 'sync' and offset < low))")
        first = F.min_by(F.struct("time_ns", "low", "high", "event"), "time_ns")
        return bad.groupBy(*GROUP, "kind", "offset").agg(first.alias("f")).select(*GROUP, "kind", "offset", "f.*")

    found = t.once("group_out_of_range", build)
    assert found is not None
    return found


def moves(t: Tables) -> DataFrame:
    """Groups that resumed on a destination after a mirror had written their offset there, or after it was stopped
    without having done so: GROUP, origin_topic, kind, resumed (position of their first poll), op_index, time_ns
    (of that poll), synced (the last offset written before; null: none), synced_ns (since when it is there), processed
    (offset on the source from which on the group had processed nothing; null: unknown), owed (the same, of what the
    mirror had to know: `_with_processed`)."""
    found = t.once("group_moves", _moves)
    assert found is not None
    return found


def _moves(t: Tables) -> DataFrame:
    synced = written(t).where("event != 'checkpoint'")
    until = synced.select(*GROUP, "kind", "origin_topic", "offset", "source_offset", F.col("time_ns").alias("at_ns"))
    left_out = _left_out(t, synced)
    until = until if left_out is None else t.cache(until.unionByName(left_out))
    polls = t.ops.where("f = 'poll' and type = 'ok' and group is not null").select(
        F.col("index").alias("op_index"), "cluster", "group", "time_ns"
    )
    polls = polls.join(F.broadcast(until.select("cluster", "group").distinct()), ["cluster", "group"], "left_semi")
    at = t.table("op_records").where("action in ('poll', 'position') and offset is not null and partition is not null")
    read, stood = F.col("action") == "poll", F.col("action") == "position"
    at = at.join(polls, "op_index")
    first = at.groupBy(*GROUP, "op_index", "time_ns").agg(
        F.coalesce(F.min(F.when(read, F.col("offset"))), F.max(F.when(stood, F.col("offset")))).alias("resumed")
    )
    first = first.groupBy(*GROUP).agg(F.min_by(F.struct("resumed", "op_index", "time_ns"), "op_index").alias("f"))
    first = first.select(*GROUP, "f.*")
    rows = until.join(F.broadcast(first), list(GROUP)).where("at_ns <= time_ns")
    seen = F.struct("at_ns", F.col("offset").alias("synced"), "source_offset")
    rows = rows.groupBy(*GROUP, "origin_topic", "kind", "resumed", "op_index", "time_ns").agg(
        F.array_sort(F.collect_list(seen)).alias("seen")
    )
    last = F.element_at("seen", -1)
    rows = rows.withColumns({"synced": last["synced"], "source_offset": last["source_offset"]})
    there = F.filter("seen", lambda one: one["synced"].eqNullSafe(F.col("synced")))
    rows = rows.withColumns({"synced_ns": there[0]["at_ns"], "source": source_of("cluster")}).drop("seen")
    return _with_processed(t, rows).drop("source_offset")


def _with_processed(t: Tables, rows: DataFrame) -> DataFrame:
    """Add processed and owed. owed leaves out what the group committed on the source after the mirror had written the
    offset from which it resumes, if it moved before the mirror was stopped: a mirror syncs offsets from time to time,
    and only its stop syncs them a last time."""
    place = ["source", "group", "origin_topic", "partition"]
    done = commits(t).withColumnRenamed("cluster", "source").withColumnRenamed("time_ns", "done_ns")
    done = done.select(*place, "done_ns", F.coalesce(F.col("processed") + 1, "offset").alias("done"))
    stops = stop_begins(t).select("cluster", F.col("begin").alias("stopped_ns"))
    if t.stored.imported and t.has("mirror_states"):
        stops = stops.unionByName(_stopped(t).select("cluster", F.col("at_ns").alias("stopped_ns")))
    stops = F.broadcast(stops.groupBy("cluster").agg(F.min("stopped_ns").alias("stopped_ns")))
    rows = rows.join(stops, "cluster", "left").join(done, place, "left")
    before = F.coalesce(F.col("time_ns") < F.col("stopped_ns"), F.lit(True))
    due = ~before | F.col("synced_ns").isNull() | (F.col("done_ns") <= F.col("synced_ns"))
    kept = [name for name in rows.columns if name not in ("done", "done_ns")]
    rows = rows.groupBy(*kept).agg(F.max("done").alias("done"), F.max(F.when(due, F.col("done"))).alias("due"))
    rows = rows.withColumn("processed", F.coalesce("done", "source_offset"))
    owed = F.when(F.col("done").isNull(), F.col("source_offset")).otherwise(F.coalesce("due", F.lit(0)))
    return rows.withColumn("owed", owed).drop("done", "due", "stopped_ns")


def _left_out(t: Tables, synced: DataFrame) -> DataFrame | None:
    """Groups of an imported history that had committed on the source of a mirror that was then stopped without having
    written their offset: as `synced`, with the time of the stop. In a Shatterproof run `group_overwritten` reports
    `missing` groups."""
    if not t.stored.imported or not t.has("mirror_states"):
        return None
    stops = _stopped(t).withColumns({"source": source_of("cluster"), "origin_topic": t.canonical()})
    own = commits(t).select(F.col("cluster").alias("source"), "group", "origin_topic", "partition").distinct()
    rows = own.join(F.broadcast(stops), ["source", "origin_topic", "partition"])
    rows = rows.join(synced.select(*GROUP).distinct(), list(GROUP), "left_anti")
    none = F.lit(None).cast("bigint")
    given = {"kind": F.lit("consumer"), "offset": none, "source_offset": none}
    return rows.withColumns(given).select(*GROUP, "kind", "origin_topic", "offset", "source_offset", "at_ns")


def _stopped(t: Tables) -> DataFrame:
    """When each partition was first seen without a mirror that goes on: PARTITION, at_ns."""
    rows = t.table("mirror_states").where("state in ('STOPPED', 'PAUSED') and topic is not null")
    return rows.groupBy(*PARTITION).agg(F.min("time_ns").alias("at_ns"))


def commits(t: Tables) -> DataFrame:
    """Acknowledged offset commits, including those within committed transactions: GROUP, origin_topic, offset,
    processed, time_ns (from when on it is binding), op_index."""
    ops = t.ops.where("f in ('commit_offset', 'txn') and type = 'ok' and group is not null").select(
        F.col("index").alias("op_index"), "f", "cluster", "group", "txn", "time_ns"
    )
    if t.facts.txn_steps:
        ends = t.txns.select("cluster", "txn", "txn_outcome", "decided_ns")
        ops = ops.join(ends, ["cluster", "txn"], "left").where("txn is null or f = 'txn' or txn_outcome = 'committed'")
        ops = ops.withColumn("time_ns", F.greatest("time_ns", "decided_ns")).drop("txn_outcome", "decided_ns")
    else:
        ops = ops.where("txn is null or f = 'txn'")
    rows = t.table("op_records").where("action = 'commit' and offset is not null and partition is not null")
    rows = rows.select("op_index", "topic", "partition", "offset", "processed").join(ops.drop("f", "txn"), "op_index")
    return rows.withColumn("origin_topic", t.canonical())


def places(t: Tables) -> DataFrame:
    """Where each value was sent: value, sent_on (cluster), and of its acknowledged offsets there sent_at (the last),
    sent_first and sent_times (how many)."""
    rows = t.sends.where("offset is not null").groupBy("value", F.col("cluster").alias("sent_on"))
    return rows.agg(
        F.max("offset").alias("sent_at"),
        F.min("offset").alias("sent_first"),
        F.count_distinct("offset").alias("sent_times"),
    )


def skipped(t: Tables) -> DataFrame:
    """Records of a destination before the position where a moved group resumed that it had neither processed on the
    source nor read anywhere, and that no cleaner may have removed: GROUP, kind, offset, value, resumed, op_index,
    synced."""
    found = t.once("group_skipped", _skipped)
    assert found is not None
    return found


def _skipped(t: Tables) -> DataFrame:
    sent = t.sends.where("outcome in ('acked', 'committed') and offset is not null")
    sent = sent.select(*PARTITION, "offset", "value")
    stored = sent
    if t.has("records"):
        unseen = sent.join(F.broadcast(t.truth.select(*PARTITION)), list(PARTITION), "left_anti")
        stored = t.stored_values.select(*PARTITION, "offset", "value").unionByName(unseen)
    moved = F.broadcast(moves(t).select(*GROUP, "kind", "resumed", "op_index", "time_ns", "synced", "processed"))
    rows = stored.join(moved, list(PARTITION)).where("offset < resumed")
    # Of a value that was sent several times, an earlier copy may be of the first time.
    last = F.col("offset") == F.max("offset").over(Window.partitionBy(*GROUP, "value"))
    rows = rows.withColumn("last", last).join(places(t), "value")
    local = F.col("sent_on") == F.col("cluster")
    sent_at = F.when(F.col("last"), F.col("sent_at")).otherwise(F.col("sent_first"))
    rows = rows.where(local | (sent_at >= F.col("processed")))
    rows = rows.drop("last", "sent_on", "sent_at", "sent_first", "sent_times", "processed")
    read = t.reads.where("group is not null and value is not null").select("group", "value")
    rows = rows.distinct().join(read, ["group", "value"], "left_anti")
    return _still_there(t, rows).drop("time_ns")


def _still_there(t: Tables, rows: DataFrame) -> DataFrame:
    """Leave out records that a cleaner may have removed before the group came: those of a compacted topic that have no
    key, or a later record of their key, and are in no log that was read afterwards."""
    if t.compacted is None:
        return rows
    topics = F.broadcast(t.compacted.withColumn("compacted", F.lit(True)))
    rows = t.cache(rows.join(topics, ["cluster", "topic"], "left"))
    cleaned = rows.where("compacted")
    if cleaned.isEmpty():
        return rows.drop("compacted")
    keyed = keyed_records(t).unionByName(keyed_sends(t)).where("offset is not null")
    keyed = keyed.select(*PARTITION, "offset", "key").distinct()
    keyed = keyed.join(F.broadcast(cleaned.select(*PARTITION).distinct()), list(PARTITION), "left_semi")
    newest = F.max("offset").over(Window.partitionBy(*PARTITION, "key")) == F.col("offset")
    kept = keyed.withColumn("newest", newest).where("newest").select(*PARTITION, "offset").distinct()
    newest_ones = cleaned.join(kept, [*PARTITION, "offset"], "left_semi")
    looked = t.truth.select(*PARTITION, F.col("time_ns").alias("look_ns"))
    held = t.logged_values.select(*PARTITION, "offset", "value").join(F.broadcast(looked), list(PARTITION))
    after = cleaned.join(held, [*PARTITION, "offset", "value"]).where("look_ns >= time_ns").select(*cleaned.columns)
    found = rows.where("compacted is null").unionByName(newest_ones.select(*rows.columns))
    return found.unionByName(after.select(*rows.columns)).drop("compacted").distinct()
