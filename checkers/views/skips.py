"""Which skips count: those that neither the log's start nor another member of the consumer's group explains.

Not a checker: a part of `poll_order`. A consumer whose position is below the log's start is moved by its own
`auto.offset.reset`, so only `earliest` guarantees that it gets the next records. The position of a group's member is
the group's last committed offset, which may be higher than this history shows as acknowledged: a skipped record counts
only at or after every offset that may have been committed until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import union
from checkers.views.group_sync import commits
from checkers.views.history import KEY
from checkers.views.keys import GROUP
from checkers.views.positions import offsets_of_groups
from checkers.views.topic_ids import with_era_of_log

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_ROW = ("op_index", *KEY, "offset")
_SINCE = "begun > before_index and begun < op_index"


def counted(t: Tables, rows: DataFrame) -> DataFrame:
    """The skips that count. rows: steps of `poll_order` with start (of the log, if known) and missed (the last skipped
    record); few."""
    return _of_groups(t, _in_the_log(t, rows))


def _in_the_log(t: Tables, rows: DataFrame) -> DataFrame:
    """Without those whose position may have been below the log's start: the consumer may then have gone anywhere."""
    resets = t.ops.where("f in ('assign', 'subscribe') and reset is not null")
    resets = resets.select("process", F.col("index").alias("at"), F.col("reset").alias("stated_reset"))
    last = rows.select(*_ROW, "process").join(resets, "process").where("at < op_index")
    last = last.groupBy(*_ROW).agg(F.max_by("stated_reset", "at").alias("stated_reset"))
    rows = rows.join(last, list(_ROW), "left")
    below = (F.col("before") + 1 < F.coalesce("start", F.lit(0))) & ~F.col("how").eqNullSafe("start")
    moves_itself = F.lit(t.stored.imported) | F.col("group").isNotNull()
    to_start = F.coalesce(F.coalesce("reset", "stated_reset") == "earliest", F.lit(False))
    doubtful = (below | F.col("lost")) & moves_itself & ~to_start & (F.col("form") != "internal")
    rows = t.cache(rows.withColumn("doubtful", doubtful).drop("stated_reset"))
    snapshots = (
        t.table("log_ends").where("log_start is not null").withColumn("cluster", F.coalesce("cluster", F.lit("A")))
    )
    snapshots = with_era_of_log(t, snapshots).select(*KEY, "log_start", F.col("time_ns").alias("look_ns"))
    # If a later snapshot shows the position in the log, it was there before.
    there = snapshots.join(rows.where("doubtful and not lost").select(*_ROW, "before", "time_ns"), list(KEY))
    there = there.where("look_ns >= time_ns and log_start <= before + 1").select(*_ROW).distinct()
    return rows.where("not doubtful").unionByName(rows.where("doubtful").join(there, list(_ROW), "left_semi"))


def _of_groups(t: Tables, rows: DataFrame) -> DataFrame:
    """Without those of members whose group may have advanced to where the member read."""
    rows = t.cache(rows)
    members = rows.where("group is not null and form != 'internal'")
    if members.isEmpty():
        return rows
    wanted = members.select(*_ROW, "group", "process", "op", "before_index", "time_ns", "how")
    asked = offsets_of_groups(t).withColumnRenamed("offset", "stood").withColumnRenamed("process", "who")
    asked = t.cache(wanted.join(asked, list(GROUP)).withColumn("mine", F.col("who") == F.col("process")))
    read = t.table("group_offsets").where("offset >= 0 and coalesce(kind, 'consumer') != 'share'")
    snapshots = read.select(*GROUP, F.col("offset").alias("stood"), F.col("time_ns").alias("look_ns"))
    snapshots = wanted.where("how = 'group'").join(snapshots, list(GROUP)).where("look_ns <= time_ns")
    later = f"what = 'commit' and not mine and {_SINCE}"
    floors = [
        asked.where(f"(how = 'group' and begun < op_index) or ({later})"),
        snapshots,
        _reads(t, wanted).where(f"(how = 'group' and mine and begun < op_index) or (not mine and {_SINCE})"),
    ]
    found = union([floor.select(*_ROW, "stood") for floor in floors])
    assert found is not None
    floor = found.groupBy(*_ROW).agg(F.max("stood").alias("floor"))
    acked = wanted.where("how = 'group'").join(
        commits(t).select(*GROUP, F.col("op_index").alias("ended"), F.col("time_ns").alias("bound_ns")), list(GROUP)
    )
    acked = acked.where("ended < op and bound_ns <= time_ns").select(*_ROW)
    nothing = "stood is null and coalesce(reset, '') = 'earliest'"
    answered = asked.where(
        f"what = 'fetch' and mine and ended > before_index and ended < op and (stood is not null or {nothing})"
    )
    sure = acked.unionAll(answered.select(*_ROW)).distinct().withColumn("sure", F.lit(True))
    rows = rows.join(floor, list(_ROW), "left").join(sure, list(_ROW), "left")
    known = ~F.col("how").eqNullSafe("group") | F.coalesce("sure", F.lit(False))
    lawful = F.coalesce(F.col("missed") < F.col("floor"), F.lit(False)) | ~known
    return rows.where((F.col("form") == "internal") | F.col("group").isNull() | ~lawful).drop("floor", "sure")


def _reads(t: Tables, wanted: DataFrame) -> DataFrame:
    """Reads of members of the same group there: the columns of wanted, stood (the offset after it), begun, mine."""
    ops = t.ops.where("f in ('poll', 'txn') and type != 'invoke' and group is not null")
    ops = ops.select(F.col("index").alias("begun"), F.col("process").alias("who"), "cluster", "group")
    places = F.broadcast(wanted.select("topic", "partition").distinct())
    rows = t.table("op_records").where("action = 'poll' and offset is not null").join(places, ["topic", "partition"])
    rows = rows.select(F.col("op_index").alias("begun"), "topic", "partition", (F.col("offset") + 1).alias("stood"))
    found = rows.join(ops, "begun").groupBy(*GROUP, "who", "begun").agg(F.max("stood").alias("stood"))
    return wanted.join(found, list(GROUP)).withColumn("mine", F.col("who") == F.col("process"))
