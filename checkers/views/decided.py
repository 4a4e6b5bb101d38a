"""Which transactions the mirror had to end as the source did, though their markers are beyond the cut of a stop.

Not a checker. A mirror is asynchronous: what the source commits beyond the cut is lag (counted in
`checkers.judge.statistics`), and the ABORT that a stop writes for it is no contradiction, as long as the mirror could
not know better. It could while the source was reachable: it must wait for a transaction that had begun when the stop
was requested, and was committed soon after. It need not wait for one that begins later: with several producers there
may never be a moment without an open transaction. A marker below the cut, or no stop at all, leaves no excuse.

A transaction with its marker beyond the cut counts as lag unless all of this is shown:
- it had begun: one of its records was acknowledged, or read, before the stop was requested, or is below a log end that
  was seen before; or it is one operation of Shatterproof's own clients, which write at once, and began 1 s before;
- it was committed, according to its client, at most 4 s after;
- the source was reachable: no fault was active on it, or on a link, from the request until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.views.mirror_spans import stop_targets
from checkers.views.mirrored_values import bounds
from checkers.views.mirroring import PAIR
from checkers.views.txn_batches import outcomes

if TYPE_CHECKING:
    from checkers.views.tables import Tables

WAIT_NS: Final = 4_000_000_000
"""How long a stop has to wait for a transaction that had begun before it was requested."""
_HARMLESS: Final = ("retention", "compaction", "failover", "mirror_stop")
"""Entries of the faults table under which a cluster answers normally, or which are the stop itself."""
_WRITTEN_NS: Final = 1_000_000_000
_TXN = ("source", "destination", "txn")


def asked(t: Tables) -> DataFrame:
    """When the stop of each stopped partition was asked for: PAIR, asked_ns. Where no operation says it, the partition
    was seen stopped then."""
    found = t.once("stop_asked", _asked)
    assert found is not None
    return found


def _asked(t: Tables) -> DataFrame | None:
    where = bounds(t)
    if where is None:
        return None
    where = where.where("stopped").select(*PAIR, "cut_ns")
    stops = stop_targets(t).withColumnsRenamed({"cluster": "destination", "origin_topic": "of"})
    rows = where.join(F.broadcast(stops), "destination", "left")
    mine = F.col("begin").isNotNull() & (F.col("of").isNull() | (F.col("of") == F.col("origin_topic")))
    begin = F.max(F.when(mine, F.col("begin")))
    return rows.groupBy(*PAIR).agg(F.coalesce(begin, F.max("cut_ns")).alias("asked_ns"))


def decided_in_time(t: Tables, hidden: DataFrame) -> DataFrame:
    """Those of these records (of `mirrored_values`, with `bounds`, txn and txn_end_at) whose transaction the mirror had
    to end as the source did."""
    beyond = F.col("stopped") & (F.col("txn_end_at").isNull() | (F.col("txn_end_at") >= F.col("bound")))
    rows = hidden.withColumn("beyond", beyond)
    rows = t.cache(rows.join(F.broadcast(asked(t)), list(PAIR), "left"))
    late = rows.where("beyond")
    if late.isEmpty():
        return rows
    if not t.stored.imported and not t.has("faults"):
        return rows.where("not beyond")
    due = _begun(t, late).join(_in_time(t, late), list(_TXN)).join(_reachable(t, late), list(_TXN))
    rows = rows.join(F.broadcast(due.withColumn("due", F.lit(True))), list(_TXN), "left")
    return rows.where("not beyond or due")


def _begun(t: Tables, rows: DataFrame) -> DataFrame:
    """Transactions that had begun when the stop was requested."""
    known = rows.select(*_TXN, "asked_ns", "value").distinct()
    by_name = known.groupBy(*_TXN).agg(F.min("asked_ns").alias("asked_ns"))
    name = F.coalesce("txn", F.concat(F.lit("op "), F.col("op").cast("string")))
    sent = t.sends.where("txn is not null or f = 'txn'").withColumn("txn", name)
    own = F.lit(not t.stored.imported)
    at = F.when(F.col("f") != "txn", F.col("done_ns")).when(own, F.col("invoke_ns") + _WRITTEN_NS)
    sent = sent.where("type != 'fail'").groupBy(F.col("cluster").alias("source"), "txn").agg(F.min(at).alias("at"))
    found = by_name.join(sent, ["source", "txn"]).where("at <= asked_ns").select(*_TXN)
    if not t.is_empty(t.polled):
        read = t.polled.groupBy("value").agg(F.min("first_ns").alias("at"))
        found = found.unionByName(known.join(read, "value").where("at <= asked_ns").select(*_TXN))
    ends = t.table("log_ends").where("log_end is not null").withColumn("origin_topic", t.canonical())
    ends = ends.select(F.col("cluster").alias("source"), *PAIR[2:], "time_ns", F.col("log_end").alias("end"))
    below = rows.join(ends, ["source", *PAIR[2:]]).where("time_ns <= asked_ns and a_first < end")
    return found.unionByName(below.select(*_TXN)).distinct()


def _in_time(t: Tables, rows: DataFrame) -> DataFrame:
    """Transactions whose commit was acknowledged in time."""
    known = rows.groupBy(*_TXN).agg(F.min("asked_ns").alias("asked_ns"))
    ended = outcomes(t).where("outcome = 'committed'").withColumnRenamed("cluster", "source")
    return known.join(ended, ["source", "txn"]).where(F.col("decided_ns") <= F.col("asked_ns") + WAIT_NS).select(*_TXN)


def _reachable(t: Tables, rows: DataFrame) -> DataFrame:
    """Transactions of sources on which, and on whose links, no fault was active."""
    known = rows.groupBy(*_TXN).agg(F.min("asked_ns").alias("asked_ns"))
    faults = (
        t.table("faults")
        .where(~F.lower("name").isin(*_HARMLESS))
        .groupBy("fault_id")
        .agg(
            F.first("cluster", ignorenulls=True).alias("hit"),
            F.min(F.when(F.col("action").isin("inject", "bit"), F.col("time_ns"))).alias("since"),
            F.max(F.when(F.col("action") == "heal", F.col("time_ns"))).alias("healed"),
        )
    )
    touches = (F.col("hit") == F.col("source")) | (F.lower("hit") == "link") | F.col("hit").isNull()
    held = F.col("healed").isNull() | (F.col("healed") >= F.col("asked_ns"))
    at_work = touches & (F.col("since") <= F.col("asked_ns") + WAIT_NS) & held
    return known.join(F.broadcast(faults), at_work, "left_anti").select(*_TXN)
