"""What an administrator asked of a mirror, how that ended, and what the mirror described meanwhile.

Not a checker. Shatterproof's own runs ask as process `scenario`, whose refused and unfinished requests are findings; in
an imported history an administrator may be refused rightly, so there only the function `failover` stands for a request
that had to be granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from checkers.views.tables import Tables

FUNCTIONS: Final = (
    *("mirror_start", "mirror_stop", "mirror_pause", "mirror_resume", "mirror_failback"),
    "failover",
)
"""What can be asked of a mirror."""
_SHOWN: Final = 6  # partitions whose states are quoted


def requests(t: Tables, *functions: str) -> DataFrame:
    """Requests with these functions (of `FUNCTIONS`), those of nemeses left out: op, f, cluster, begin, done, type
    (null while it lasts), error_text, done_index, own (whether a scenario asked), topic (that it was limited to; null:
    all)."""
    found = t.once("mirror_requests", _requests)
    assert found is not None
    return found.where(F.col("f").isin(*functions))


def _requests(t: Tables) -> DataFrame:
    ended = F.col("type") != "invoke"
    targets = t.table("op_records").where("topic is not null").groupBy("op_index").agg(F.min("topic").alias("topic"))
    rows = (
        t.ops.where(F.col("f").isin(*FUNCTIONS) & ~F.col("process").startswith("nemesis"))
        .groupBy("op", "f", "cluster")
        .agg(
            F.min("time_ns").alias("begin"),
            F.max(F.when(ended, F.col("time_ns"))).alias("done"),
            F.max_by(F.when(ended, F.col("type")), "index").alias("type"),
            F.max(F.when(ended, F.col("error_text"))).alias("error_text"),
            F.max(F.when(ended, F.col("index"))).alias("done_index"),
            F.max(F.col("process") == "scenario").alias("own"),
        )
    )
    return rows.join(targets.withColumnRenamed("op_index", "op"), "op", "left")


def with_states(t: Tables, rows: DataFrame, *, until: Column) -> DataFrame:
    """Add `states`: what the mirror to the cluster described last between `begin` and `until`, as one text."""
    if not t.has("mirror_states"):
        return rows.withColumn("states", F.lit("nothing"))
    seen = t.table("mirror_states").where("state is not null and partition is not null")
    seen = seen.select(
        F.col("cluster").alias("on"),
        F.col("topic").alias("of"),
        *("partition", "state", "error", F.col("time_ns").alias("seen_ns")),
    )
    mine = (F.col("on") == F.col("cluster")) & F.col("seen_ns").between(F.col("begin"), until)
    mine = mine & (F.col("topic").isNull() | (F.col("of") == F.col("topic")))
    said = F.max_by(F.struct("state", "error"), "seen_ns").alias("said")
    asked = rows.select("op", "cluster", "begin", "done", "topic")
    last = asked.join(seen, mine).groupBy("op", "of", "partition").agg(said)
    words = F.concat_ws(
        "", "of", F.lit("-"), "partition", F.lit(" "), "said.state", F.concat(F.lit(" ("), "said.error", F.lit(")"))
    )
    texts = last.groupBy("op").agg(F.array_sort(F.collect_list(words)).alias("texts"))
    shown = F.concat_ws(", ", F.slice("texts", 1, _SHOWN))
    return rows.join(texts.select("op", shown.alias("states")), "op", "left").withColumn(
        "states", F.coalesce("states", F.lit("nothing"))
    )
