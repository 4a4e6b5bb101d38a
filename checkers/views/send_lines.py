"""Each send with the earlier sends of its process to its partition whose order is guaranteed.

Not a checker: `value_outcomes` uses it to mark what `send_order` reports. Sends are ordered by their invocations, not
by their answers. The order of two sends is guaranteed where the second was invoked after the first had completed; for
concurrent sends, by an idempotent producer (the default of Kafka's clients). It is not guaranteed where the sends state
that the producer works without idempotence (producer id -1), nor where an imported history does not state it and shows
that something may have been retried: a fault, a send that failed or ended unknown, a `retry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.history import KEY

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_ANSWER = "_answer"  # whether a row stands for the completion of its send


def with_earlier(t: Tables, rows: DataFrame) -> DataFrame:
    """Add `before_ack` and `before_seen`, structs of the earlier send with the greatest acknowledged and seen offset:
    offset, value, op, done_index, and of before_seen client. rows: sends with outcome, and `first_seen` where that
    counts."""
    col = F.col
    # Values without a send have no process; by value they do not pile up in one window. Nor is there an order between
    # a send that may belong to two incarnations of a topic and any other.
    alone = col("op").isNull() | col("straddles")
    line: list[Column | str] = ["process", *KEY, F.when(alone, col("value"))]
    acknowledged = col("outcome").isin("acked", "committed") & col("offset").isNotNull()
    ack = F.when(acknowledged, F.struct("offset", "value", "op", "done_index"))
    seen = F.struct(col("first_seen").alias("offset"), "value", "op", "done_index", "client")
    seen = F.when(col("first_seen").isNotNull(), seen)
    loose = F.max(_loose(t)).over(Window.partitionBy(*line))
    # Sends of a line without guaranteed order count from their completions on, for which they get a second row.
    kinds = F.when(col("_loose"), F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
    rows = rows.withColumn("_loose", loose).withColumn(_ANSWER, F.explode(kinds))
    at = F.when(col(_ANSWER), col("done_index")).otherwise(col("op"))
    before = Window.partitionBy(*line).orderBy(at, _ANSWER, "position")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    counts = col(_ANSWER) == col("_loose")
    # Records of one operation were passed to the producer one after the other.
    within = Window.partitionBy(*line, "op", _ANSWER).orderBy("position")
    within = within.rowsBetween(Window.unboundedPreceding, -1)
    together = col("_loose") & ~_plain()

    def greatest(what: Column) -> Column:
        own = F.max(F.when(together, what)).over(within)
        return F.greatest(F.max(F.when(counts, what)).over(before), own)

    rows = rows.withColumns({"before_ack": greatest(ack), "before_seen": greatest(seen)})
    return rows.where(~col(_ANSWER)).drop("_loose", _ANSWER)


def _plain() -> Column:
    """Whether the send states that its producer works without idempotence."""
    return F.coalesce(F.col("producer_id") == -1, F.lit(False))


def _loose(t: Tables) -> Column:
    in_txn = (F.col("f") == "txn") | F.col("txn").isNotNull()  # transactional producers are idempotent
    unknown = F.lit(t.stored.imported and _troubled(t)) & F.col("producer_id").isNull() & ~in_txn
    return _plain() | F.coalesce(unknown, F.lit(False))


def _troubled(t: Tables) -> bool:
    """Whether the history shows that producers may have retried by themselves."""
    counts = t.facts.counts
    if t.has("faults") or any(counts.get((f, kind)) for f in ("send", "txn") for kind in ("fail", "info")):
        return True
    return not t.table("ops").where("retry").isEmpty()
