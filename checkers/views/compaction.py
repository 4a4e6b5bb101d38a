"""Compacted topics: which ones they are, and what a log cleaner may have removed from them.

Each broker cleans at its own time. Its cleaner removes a record when a later record of the same key supersedes it,
a tombstone some time after it has removed what it supersedes, and records without a key. Records of aborted
transactions supersede nothing, and are removed themselves. So on a compacted destination a record of the source may be
missing, unless it is the newest of its key among those that were copied; and the source may have had more copies of a
value than it holds.

Not a checker: shared by the checkers of mirrors, groups and clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.views import topic_names
from checkers.views.mirroring import NEVER, PAIR
from checkers.views.replica_logs import in_transaction

if TYPE_CHECKING:
    from checkers.views.tables import Tables


def compacted(t: Tables) -> DataFrame | None:
    """Topics that are compacted, at times or always: cluster, topic; None when there are none.

    A mirror gives its topics the source's configuration. So in an imported history, which states what its writer knew,
    a topic of whose policy nothing is known on one cluster of a pair has the policy that it has on the other.
    """
    if not t.has("configs"):
        return None
    configs = t.table("configs").where("topic is not null")
    found = configs.where("name = 'cleanup.policy' and value like '%compact%'").select("cluster", "topic").distinct()
    if found.isEmpty():
        return None
    if not t.stored.imported:
        return t.cache(found)
    stated = configs.where("name = 'cleanup.policy' or event in ('look', 'create')").select("cluster", "topic")
    for one, other in (p for s, d in t.mirror_pairs for p in ((s, d), (d, s))):
        named = topic_names.on_cluster(t.meta, F.lit(other), t.canonical())
        same = found.where(F.col("cluster") == one).select(F.lit(other).alias("cluster"), named.alias("topic"))
        found = found.unionByName(same.join(stated, ["cluster", "topic"], "left_anti")).distinct()
    return t.cache(found)


def compacted_pairs(t: Tables) -> DataFrame | None:
    """Topics that are compacted on at least one cluster of a pair: source, destination, origin_topic, on_source,
    on_destination. None when there are none."""
    return None if t.compacted is None else t.once("compacted_pairs", _pairs)


def _pairs(t: Tables) -> DataFrame | None:
    assert t.compacted is not None
    topics = t.compacted.select("cluster", t.canonical().alias("origin_topic")).distinct()
    if not t.mirror_pairs:
        return None
    pairs = t.spark.createDataFrame(list(t.mirror_pairs), "source string, destination string")
    at = F.col("cluster")
    rows = topics.join(F.broadcast(pairs), (at == F.col("source")) | (at == F.col("destination")))
    return rows.groupBy(*PAIR[:3]).agg(
        F.max(at == F.col("source")).alias("on_source"), F.max(at == F.col("destination")).alias("on_destination")
    )


def keyed_sends(t: Tables) -> DataFrame:
    """Acknowledged sends with a key, tombstones included: cluster, topic, origin_topic, partition, offset, key,
    value."""
    columns = ("cluster", "topic", "origin_topic", "partition", "offset", "key", "value")
    sent = t.sends.where("outcome in ('acked', 'committed') and key is not null").select(*columns)
    ops = t.ops.where("type = 'ok' and (f = 'txn' or (f = 'send' and txn is null))")
    bare = t.table("op_records").where("action = 'send' and value is null and key is not null")
    bare = bare.join(ops.select(F.col("index").alias("op_index"), "cluster"), "op_index")
    return sent.unionByName(bare.withColumn("origin_topic", t.canonical()).select(*columns))


def _undecided_tombstones(t: Tables) -> DataFrame:
    """Tombstones of sends of unknown outcome, or within transactions of several steps: cluster, topic, partition,
    key."""
    decided = t.ops.where("(type = 'ok' and (f = 'txn' or txn is null)) or type = 'fail'").select("op").distinct()
    ops = t.ops.where("f in ('send', 'txn')").join(decided, "op", "left_anti")
    bare = t.table("op_records").where("action = 'send' and value is null and key is not null")
    return bare.join(ops.select(F.col("index").alias("op_index"), "cluster"), "op_index")


def keyed_records(t: Tables) -> DataFrame:
    """Records with a key in the authoritative logs, tombstones included, that supersede earlier ones of their key:
    neither aborted nor undecided, and below the high watermark. Columns as `keyed_sends`."""
    log = t.truth_log.where("control_type is null and key is not null and not aborted")
    log = log.where("offset < coalesce(high_watermark, log_end)").where(~(in_transaction() & F.col("txn_end").isNull()))
    return log.select("cluster", "topic", "origin_topic", "partition", "offset", "key", "value")


def with_removable(t: Tables, sends: DataFrame, *, anywhere: bool = False) -> DataFrame:
    """Add removable: whether a cleaner of the cluster may have removed the record of a send. It may if the topic is
    compacted there, unless the record is known to be the newest of its key. sends: columns of `Tables.sends`. anywhere:
    also if the topic is compacted on another cluster."""
    if t.compacted is None:
        return sends.withColumn("removable", F.lit(False))
    topic = ["origin_topic"] if anywhere else ["cluster", "topic"]
    topics = t.compacted.withColumn("origin_topic", t.canonical()).select(*topic).distinct()
    topics = F.broadcast(topics.withColumn("compacted", F.lit(True)))
    place = ["cluster", "topic", "partition", "key"]
    keyed = keyed_records(t).unionByName(keyed_sends(t)).where("offset is not null")
    latest = keyed.groupBy(*place).agg(F.max("offset").alias("latest"))
    maybe = t.sends.where("outcome = 'unknown' and key is not null").select(*place)
    maybe = maybe.unionByName(_undecided_tombstones(t).select(*place)).distinct()
    latest = latest.join(maybe.withColumn("maybe", F.lit(True)), place, "left")
    rows = sends.join(topics, topic, "left").join(latest, place, "left")
    newest = (F.col("offset") >= F.col("latest")) & F.col("maybe").isNull()
    removable = F.col("compacted") & ~F.coalesce(newest, F.lit(False))
    return rows.withColumn("removable", F.coalesce(removable, F.lit(False))).drop("compacted", "latest", "maybe")


def newest_copied(t: Tables, values: DataFrame, where: DataFrame) -> DataFrame:
    """The newest record of each key that was copied to a compacted destination, or may have been: PAIR, key,
    newest_value (null: a tombstone).

    values, where: `mirrored_values` and `bounds`. A record below the bound had to be copied, one whose value the
    destination holds was. Where only the copies show how far the mirror got, it may have copied tombstones next to
    them, too.
    """
    reach = F.greatest("bound", F.coalesce("lag0_source", F.lit(0)))
    known = (F.col("stopped") & F.col("cut_source").isNotNull()) | F.col("all_due")
    scope = where.select(*PAIR, "from_log", reach.alias("reach"), known.alias("reach_known"))
    scope = F.broadcast(scope.join(F.broadcast(_on_destination(t)), list(PAIR[:3]), "left_semi"))
    log = keyed_records(t).withColumn("logged", F.lit(True))
    sent = keyed_sends(t).where("offset is not null").withColumn("logged", F.lit(False))
    rows = log.unionByName(sent).withColumnRenamed("cluster", "source").join(scope, ["source", *PAIR[2:]])
    rows = rows.where("logged = from_log")
    there = values.where("b_alive > 0 and a_all = 1").select(*PAIR, "value", F.lit(True).alias("there"))
    rows = rows.join(there, [*PAIR, "value"], "left")
    newest = F.max("offset").over(Window.partitionBy(*PAIR, "key")) == F.col("offset")
    copied = (F.col("offset") < F.col("reach")) | F.coalesce("there", F.lit(False))
    rows = rows.withColumns({"copied": copied, "newest": newest})
    stays = F.when(F.col("newest") & F.col("value").isNotNull() & ~F.col("copied"), F.col("offset"))
    rows = rows.withColumn("not_copied", F.min(stays).over(Window.partitionBy(*PAIR)))
    maybe = ~F.col("reach_known") & F.col("value").isNull() & (F.col("offset") < F.coalesce("not_copied", F.lit(NEVER)))
    rows = rows.where(F.col("copied") | maybe)
    return (
        rows.groupBy(*PAIR, "key")
        .agg(F.max(F.struct("offset", "value")).alias("n"))
        .select(*PAIR, "key", F.col("n.value").alias("newest_value"))
    )


def without_removed(t: Tables, lost: DataFrame, values: DataFrame, where: DataFrame) -> DataFrame:
    """Leave out values that a cleaner of the destination may have removed. lost: rows of `mirrored_values` that lack
    copies there, with `bounds`."""
    topics = compacted_pairs(t)
    if topics is None:
        return lost
    lost = lost.join(F.broadcast(topics.drop("on_source")), list(PAIR[:3]), "left")
    lost = lost.join(newest_copied(t, values, where).withColumn("known", F.lit(True)), [*PAIR, "key"], "left")
    to = {"cluster": "destination"}
    own = keyed_sends(t).withColumnsRenamed(to).select(*PAIR[1:], "key").distinct().withColumn("own", F.lit(True))
    by_key = keyed_records(t).withColumnsRenamed(to).groupBy(*PAIR[1:], "key")
    held = by_key.agg(F.max_by("value", "offset").alias("held_value"))
    lost = lost.join(own, [*PAIR[1:], "key"], "left").join(held, [*PAIR[1:], "key"], "left")
    superseded = F.col("known") & ~F.col("newest_value").eqNullSafe(F.col("value"))
    earlier = (F.col("b_alive") > 0) & (F.col("held_value") == F.col("value"))
    aborted = F.col("a_aborted") & (F.col("a_visible") == 0)
    reasons = [superseded, F.col("own"), earlier, aborted]
    removed = F.col("key").isNull()
    for reason in reasons:
        removed = removed | F.coalesce(reason, F.lit(False))
    kept = lost.where(~(F.coalesce("on_destination", F.lit(False)) & removed))
    return kept.drop("on_destination", "newest_value", "known", "own", "held_value")


def _on_destination(t: Tables) -> DataFrame:
    topics = compacted_pairs(t)
    assert topics is not None
    return topics.where("on_destination").select(*PAIR[:3])


def removed_copies(t: Tables, several: DataFrame, where: DataFrame) -> DataFrame | None:
    """Values of which a compacted source may have had more copies than it holds: PAIR, value, copies (at most so many
    more). several: rows of `mirrored_values`."""
    topics = compacted_pairs(t)
    if topics is None:
        return None
    points = several.join(F.broadcast(topics.where("on_source").select(*PAIR[:3])), list(PAIR[:3]), "left_semi")
    points = points.select(*PAIR, "value", F.col("a_last").alias("at"))
    return free_offsets(t, points, where).where("free > 0").select(*PAIR, "value", F.col("free").alias("copies"))


def free_offsets(t: Tables, points: DataFrame, where: DataFrame) -> DataFrame:
    """Where a cleaner of the source may have removed a copy of a value. points: PAIR, value, at (the offset of a record
    there). Adds free: how many offsets of its log below `at` hold nothing and were acknowledged for no other value."""
    place = ["source", *PAIR[2:]]
    starts = F.broadcast(where.select(*PAIR, F.coalesce("a_start", F.lit(0)).alias("start")))
    log = t.truth_log.withColumnRenamed("cluster", "source").where("offset >= coalesce(log_start, 0)")
    log = log.select(*place, "offset").distinct()
    sent = t.sends.where("offset is not null").withColumnRenamed("cluster", "source").select(*place, "offset", "value")
    gone = sent.join(log, [*place, "offset"], "left_anti")
    here = F.broadcast(points.select(*place).distinct())
    taken = log.unionByName(gone.select(*place, "offset").distinct()).join(here, place, "left_semi")
    order = Window.partitionBy(*place).orderBy("offset")
    taken = taken.join(F.broadcast(starts.select(*place, "start").distinct()), place).where("offset >= start")
    ranks = taken.select(*place, F.col("offset").alias("at"), (F.row_number().over(order) - 1).alias("taken"))
    own = points.select(*PAIR, "value", "at").distinct().join(gone, [*place, "value"])
    own = own.where("offset < at").groupBy(*PAIR, "value", "at").agg(F.count_distinct("offset").alias("own"))
    rows = points.join(starts, list(PAIR)).join(ranks, [*place, "at"], "left")
    rows = rows.join(own, [*PAIR, "value", "at"], "left")
    free = F.col("at") - F.col("start") - F.coalesce("taken", F.lit(0)) + F.coalesce("own", F.lit(0))
    return rows.withColumn("free", free).drop("start", "taken", "own")


def gaps_below(t: Tables, points: DataFrame) -> DataFrame:
    """How many offsets of the destination's log below a record hold nothing. points: PAIR, at (the offset of a record
    there). Adds gaps."""
    place = list(PAIR[1:])
    log = t.truth_log.withColumnRenamed("cluster", "destination").where("offset >= coalesce(log_start, 0)")
    log = log.join(F.broadcast(points.select(*place).distinct()), place, "left_semi")
    log = log.select(*place, F.col("offset").alias("at"), F.coalesce("log_start", F.lit(0)).alias("start")).distinct()
    ranks = log.withColumn("held", F.row_number().over(Window.partitionBy(*place).orderBy("at")) - 1)
    rows = points.join(ranks, [*place, "at"], "left")
    return rows.withColumn("gaps", F.col("at") - F.col("start") - F.col("held")).drop("start", "held")


def in_order(t: Tables, both: DataFrame) -> DataFrame:
    """Of values that both sides hold, those whose first copy on either side is known to be that: where a cleaner may
    have removed copies, it may be another. both: rows of `mirrored_values`; adds on_source, on_destination."""
    topics = compacted_pairs(t)
    if topics is None:
        return both.withColumns({"on_source": F.lit(False), "on_destination": F.lit(False)})
    both = both.join(F.broadcast(topics), list(PAIR[:3]), "left").fillna(False, ["on_source", "on_destination"])
    alone = "a_all = 1 and b_all = 1"
    return both.where(f"not (on_source or on_destination) or ({alone})")


def out_of_order(t: Tables, wrong: DataFrame, where: DataFrame, *, once: bool) -> DataFrame:
    """Pairs of records that are in the other order on the destination, whatever a cleaner removed. wrong: value (the
    one that comes later on the source) and b_at, before_from (the source's offset of the earlier one), on_source,
    on_destination. once: whether the mirror makes one copy of each record."""
    if compacted_pairs(t) is None:
        return wrong
    doubted = t.cache(wrong.where("on_source or on_destination"))
    plain = wrong.where("not (on_source or on_destination)")
    if t.is_empty(doubted):
        return plain
    points = doubted.select(*PAIR, "value", F.col("before_from").alias("at"))
    free = free_offsets(t, points, where).select(*PAIR, "value", "free")
    doubted = doubted.join(free, [*PAIR, "value"], "left")
    sure = ~F.col("on_source") | F.coalesce(F.col("free") == 0, F.lit(False))
    if not once:
        gaps = gaps_below(t, doubted.select(*PAIR, F.col("b_at").alias("at")).distinct())
        doubted = doubted.join(gaps.withColumnRenamed("at", "b_at"), [*PAIR, "b_at"], "left")
        sure = sure & (~F.col("on_destination") | F.coalesce(F.col("gaps") == 0, F.lit(False)))
    return plain.unionByName(doubted.where(sure).select(*plain.columns))
