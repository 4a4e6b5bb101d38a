"""What a history contains at all, learnt in one pass over `ops`: views and checkers leave out what cannot be there."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from checkers.stored import Stored


@dataclass(frozen=True)
class Facts:
    """events: number of rows in `ops`. The rest: whether at least one such event is there.

    unpaired: a completion without `invoke_index`. txn_ops: transactions as one operation (`f` = txn).
    txn_steps: events that name a transaction. moves: assign, subscribe or crash. deletes: a topic was deleted.
    groups: polls of a group. clusters: letters seen in `ops`.
    """

    events: int
    unpaired: bool
    txn_ops: bool
    txn_steps: bool
    moves: bool
    deletes: bool
    clusters: frozenset[str]

    @property
    def transactional(self) -> bool:
        """Whether there are transactions of either kind."""
        return self.txn_ops or self.txn_steps


def learn(stored: Stored) -> Facts:
    """One small Spark job."""

    def any_of(condition: Column) -> Column:
        return F.coalesce(F.max(condition.cast("int")), F.lit(0)) == 1

    f = F.col("f")
    row = (
        stored.table("ops")
        .agg(
            F.count("*"),
            any_of((F.col("type") != "invoke") & F.col("invoke_index").isNull()),
            any_of(f == "txn"),
            any_of(F.col("txn").isNotNull() & (f != "txn")),
            any_of(f.isin("assign", "subscribe", "crash")),
            any_of((f == "delete_topic") & (F.col("type") == "ok")),
            F.collect_set("cluster"),
        )
        .head()
    )
    assert row is not None
    events, unpaired, txn_ops, txn_steps, moves, deletes, clusters = row
    return Facts(
        events=int(events),
        unpaired=bool(unpaired),
        txn_ops=bool(txn_ops),
        txn_steps=bool(txn_steps),
        moves=bool(moves),
        deletes=bool(deletes),
        clusters=frozenset(clusters),
    )
