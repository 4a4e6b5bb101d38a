"""Known start positions of consumers, and the events after which their position is unknown.

Not a checker: shared by `poll_order` and the prefilter. A position that was *given* is known before the first read
after it, in one of three ways (column `how`):
- `offset`: an assignment that names an offset (a seek is one);
- `start`: one at the log start: `auto.offset.reset` earliest (or offset -2) outside groups, and, for Shatterproof's own
  consumers without a group, every assignment without an offset;
- `group`: a member was assigned a partition, or subscribed, without an offset, and its group had committed one, or the
  member itself fetched the committed one. That is a lower bound: `skips` considers all that the group may have done
  until the read. Not on a mirror's destination in a Shatterproof run, where the mirror writes offsets that no table
  has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.failbacks import with_branch
from checkers.views.history import KEY
from checkers.views.history_facts import OUT_OF_RANGE
from checkers.views.incarnations import undecided, with_era
from checkers.views.keys import GROUP

if TYPE_CHECKING:
    from checkers.views.tables import Tables

ASSIGN, KEEP, REBALANCE = "assign", "keep", "rebalance"
"""Actions of `op_records`."""
BEGINNING = -2
"""The logical offset of Kafka's clients for the log start; other negative offsets are not interpreted."""
_PLACE = ("topic", "partition")


def given(t: Tables) -> DataFrame | None:
    """One row per position that a consumer was given: KEY, process, index (of the event that ended the assignment),
    time_ns, offset (to be read next; for a log start a lower bound), how, group. None when there is none."""
    if not t.facts.moves:
        return None
    return t.once("positions_given", _given)


def _given(t: Tables) -> DataFrame | None:
    stated = _stated(t)
    groups = _of_groups(t)
    rows = stated if groups is None else stated.unionByName(groups)
    # A lower bound on the log start saves the prefilter from checking everything below it.
    ends = t.table("log_ends").where("log_start is not null").withColumn("cluster", F.coalesce("cluster", F.lit("A")))
    least = ends.groupBy("cluster", *_PLACE).agg(F.min("log_start").alias("least"))
    rows = rows.join(F.broadcast(least), ["cluster", *_PLACE], "left")
    rows = rows.withColumn("offset", F.coalesce("offset", F.greatest("least", F.lit(0)), F.lit(0))).drop("least")
    # While a topic is being recreated it is unknown which incarnation a position belongs to.
    rows = with_era(t, rows, F.col("index"), F.col("index")).where(~undecided())
    rows = with_branch(t, rows, F.col("time_ns"), F.col("offset"))
    return rows.dropDuplicates([*KEY, "process", "index"])


def _assignments(t: Tables, *functions: str) -> DataFrame:
    """Acknowledged ones: index, f, process, cluster, group, reset, time_ns. In an imported history, a missing group or
    reset is filled in if all polls of the consumer agree on it."""
    ops = t.ops.where(F.col("f").isin(*functions) & (F.col("type") == "ok"))
    ops = ops.select("index", "f", "process", "cluster", "group", "reset", "time_ns")
    if not t.stored.imported:
        return ops
    polls = t.ops.where("f in ('poll', 'txn') and type != 'invoke' and (group is not null or reset is not null)")
    same = {name: F.when(F.min(name) == F.max(name), F.min(name)).alias(f"own_{name}") for name in ("group", "reset")}
    ops = ops.join(polls.groupBy("process", "cluster").agg(*same.values()), ["process", "cluster"], "left")
    ops = ops.withColumns({name: F.coalesce(name, f"own_{name}") for name in same})
    return ops.select("index", "f", "process", "cluster", "group", "reset", "time_ns")


def _stated(t: Tables) -> DataFrame:
    """Positions that assignments name themselves; offset null: the log start."""
    named = t.table("op_records").where(f"action = '{ASSIGN}' and topic is not null and partition is not null")
    named = named.select(F.col("op_index").alias("index"), *_PLACE, "offset")
    rows = named.join(_assignments(t, "assign", "subscribe"), "index")
    none, outside = F.col("offset").isNull(), F.col("group").isNull() & (F.col("f") == "assign")
    by_default = F.coalesce(F.col("reset") == "earliest", F.lit(False)) | F.lit(not t.stored.imported)
    at_start = (F.col("offset") == BEGINNING) | (none & outside & by_default)
    how = F.when(F.col("offset") >= 0, "offset").when(at_start, "start")
    rows = rows.withColumn("how", how).where("how is not null")
    return rows.withColumn("offset", F.when(F.col("how") == "offset", F.col("offset"))).drop("f", "reset")


def _of_groups(t: Tables) -> DataFrame | None:
    """Positions that follow from groups' committed offsets; offset null: none, so the log start."""
    if not t.facts.any("commit_offset", "fetch_offset", "txn"):
        return None
    joined = _assignments(t, "assign", "subscribe").where("group is not null").drop("f")
    if not t.stored.imported:  # mirrors write offsets of groups there
        written = {destination for _, destination in t.mirror_pairs}
        if t.facts.any("mirror_failback"):
            return None
        joined = joined.where(~F.col("cluster").isin(*written)) if written else joined
    named = t.table("op_records").where(F.col("action").isin(ASSIGN, KEEP, REBALANCE))
    named = named.select(F.col("op_index").alias("index"), F.struct(*_PLACE, "offset", "action").alias("n"))
    moves = joined.join(named, "index", "left")
    kept = F.col("n.offset").isNotNull() | (F.col("n.action") == KEEP)
    moves = moves.where(F.col("n").isNull() | ~kept).withColumns({name: F.col(f"n.{name}") for name in _PLACE})
    moves = moves.drop("n")
    asked = offsets_of_groups(t)
    places = asked.select(*GROUP).distinct().withColumnRenamed("topic", "own_topic")
    places = places.withColumnRenamed("partition", "own_partition")
    whole = moves.where("partition is null").join(places, ["cluster", "group"])
    whole = whole.where("topic is null or topic = own_topic")
    whole = whole.withColumns({name: F.col(f"own_{name}") for name in _PLACE})
    columns = ("index", "process", *GROUP, "reset", "time_ns")
    moves = moves.where("partition is not null").select(*columns).unionByName(whole.select(*columns))
    return _standing(moves, asked)


def _standing(moves: DataFrame, asked: DataFrame) -> DataFrame:
    """Add to each move a lower bound of the group's position. Moves without any are left out."""
    events = moves.withColumn("moved", F.lit(True)).unionByName(
        asked.select(*GROUP, "process", "what", F.col("begun").alias("index"), "offset", "reset"),
        allowMissingColumns=True,
    )
    before = Window.partitionBy(*GROUP).orderBy("index").rowsBetween(Window.unboundedPreceding, -1)
    mine = Window.partitionBy(*GROUP, "process").orderBy("index").rowsBetween(Window.unboundedPreceding, 0)
    last = F.struct("index", "reset")
    events = events.withColumns(
        {
            "stood": F.max("offset").over(before),
            "last": F.last(F.when(F.col("moved"), last), ignorenulls=True).over(mine),
        }
    )
    answers = events.where("what = 'fetch' and last is not null").withColumns(
        {"move": F.col("last.index"), "reset": F.coalesce("reset", "last.reset")}
    )
    answers = answers.groupBy(*GROUP, "process", F.col("move").alias("index")).agg(
        F.max("offset").alias("answer"),
        F.max(F.col("offset").isNull() & (F.col("reset") == "earliest")).alias("nothing"),
    )
    rows = events.where("moved").drop("offset").join(answers, [*GROUP, "process", "index"], "left")
    rows = rows.withColumns({"offset": F.greatest("stood", "answer"), "how": F.lit("group")})
    rows = rows.where("offset is not null or nothing")
    return rows.select("index", *_PLACE, "offset", "process", "cluster", "group", "time_ns", "how")


def offsets_of_groups(t: Tables) -> DataFrame:
    """Clients' requests about groups' offsets that were not definitely refused: GROUP, process, what (commit, fetch),
    begun (index of the invocation), ended (of the completion; null of invocations), type, offset (null where a fetch
    found nothing), reset. Invocations of commits are rows of their own; of fetches only answers count."""
    ops = t.ops.where("group is not null and type != 'fail'").select(
        F.col("index").alias("op_index"), "op", "type", "process", "cluster", "group", "reset"
    )
    rows = t.table("op_records").where("action in ('commit', 'fetch') and topic is not null and partition is not null")
    rows = rows.select("op_index", F.col("action").alias("what"), *_PLACE, "offset").join(ops, "op_index")
    rows = rows.where("(what = 'commit' and offset is not null) or (what = 'fetch' and type = 'ok')")
    failed = t.ops.where("f = 'commit_offset' and type = 'fail'").select("op").distinct()
    rows = rows.join(failed, "op", "left_anti")
    ended = F.when(F.col("type") != "invoke", F.col("op_index"))
    offset = F.when(F.col("offset") >= 0, F.col("offset"))
    return rows.select(
        *GROUP,
        "process",
        "what",
        F.col("op").alias("begun"),
        ended.alias("ended"),
        "type",
        "reset",
        offset.alias("offset"),
    )


def moves(t: Tables) -> tuple[DataFrame, DataFrame] | None:
    """Events that may reposition a consumer, or None when there are none. For the consumer as a whole (an assignment or
    subscription that names no partition, a change of its group's assignment, a crash, a poll of unknown outcome):
    process, whole, assigns (indices of all assignments). For one partition (an assignment that names it; one that it
    keeps does not count): process, cluster, topic, partition, named. whole, named: arrays of at (index), poll (the
    event is a poll itself), lost (a poll found its position outside the log)."""
    if not (t.facts.moves or REBALANCE in t.facts.actions or t.facts.out_of_range or _unknown_polls(t)):
        return None
    found = t.once("positions_moved", _moved)
    assert found is not None
    event = F.struct("at", "poll", "lost")
    assigns = F.collect_list(F.when(F.col("f") == "assign", F.col("at")))
    whole = F.collect_list(F.when(F.col("partition").isNull(), event))
    return (
        found.groupBy("process").agg(whole.alias("whole"), assigns.alias("assigns")),
        found.where("partition is not null")
        .groupBy("process", "cluster", *_PLACE)
        .agg(F.collect_list(event).alias("named")),
    )


def _unknown_polls(t: Tables) -> bool:
    return ("poll", "info") in t.facts.counts


def _moved(t: Tables) -> DataFrame:
    """process, f, at, poll, lost; cluster, topic and partition where only one partition is concerned."""
    named = t.table("op_records").where(F.col("action").isin(ASSIGN, KEEP, REBALANCE, "position"))
    named = named.groupBy(F.col("op_index").alias("index")).agg(
        F.collect_set(F.when(F.col("action") == ASSIGN, F.struct(*_PLACE))).alias("assigned"),
        F.max(F.col("action") == KEEP).alias("keeps"),
        F.max(F.col("action") == REBALANCE).alias("rebalanced"),
        F.collect_set(F.when(F.col("action") == "position", F.struct(*_PLACE))).alias("stood"),
    )
    poll = F.col("f").isin("poll", "txn")
    lost = poll & F.coalesce(F.col("error").rlike(OUT_OF_RANGE), F.lit(False)) & _by_others(t)
    ops = t.ops.where("f in ('assign', 'subscribe', 'crash', 'poll', 'txn') and type != 'invoke'")
    if REBALANCE not in t.facts.actions:
        ops = ops.where(~poll | lost | (F.col("type") == "info"))
    ops = ops.join(named, "index", "left").withColumns({"poll": poll, "lost": lost})
    happened = (F.col("type") != "fail") | (F.col("f") == "crash")
    moving = F.when(poll, F.col("rebalanced") | lost | ((F.col("f") == "poll") & (F.col("type") == "info")))
    ops = ops.where(F.coalesce(moving.otherwise(happened), F.lit(False)))
    places = F.when((F.col("f") == "assign") & ~F.coalesce("rebalanced", F.lit(False)), F.col("assigned"))
    places = F.when(lost & ~F.coalesce("rebalanced", F.lit(False)), F.col("stood")).otherwise(places)
    whole = F.array(F.lit(None).cast("struct<topic: string, partition: int>"))
    keeps = (F.col("f") == "assign") & F.coalesce("keeps", F.lit(False))
    places = F.when(F.size(F.coalesce(places, F.array())) > 0, places).when(~keeps, whole)
    rows = ops.withColumn("place", F.explode(places))
    return rows.select(
        "process", "f", F.col("index").alias("at"), "poll", "lost", "cluster", "place.topic", "place.partition"
    )


def _by_others(t: Tables) -> Column:
    """Whether a consumer may move without an assignment: Shatterproof's own ones without a group never do."""
    return F.lit(t.stored.imported) | F.col("group").isNotNull()
