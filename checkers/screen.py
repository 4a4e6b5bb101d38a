"""The sieve for large histories: one pass over numbers alone finds the few values that are worth a close look.

The close look (`fates`) joins strings and arrays, which is dear for a million records of which none is wrong. The sieve
sees hashes of values and places, offsets, and flags; it lets through every value that could show an anomaly, and
many that turn out clean. Whatever it keeps back is provably clean: acknowledged, and seen at that very offset by who
had to see it; or never acknowledged, and seen nowhere or where it was sent; in the order of its sends.

Keys are 64-bit hashes. Two of them may collide, with a chance of about 1 in 10^7 for 10^6 values that any pair does;
what is let through is compared by the values themselves, so a collision can hide an anomaly, never make one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.history import KEY

if TYPE_CHECKING:
    from checkers.tables import Tables

MUST, ABORTED, FAILED, UNKNOWN = 3, 2, 1, 0
"""How a send ended, as a number: `acked` or `committed`, `aborted`, `failed`, `unknown`."""


def hashed(*names: str) -> Column:
    """The key of some columns."""
    return F.xxhash64(*(F.col(n) for n in names))


def applies(t: Tables) -> bool:
    """Whether the sieve pays and holds: a large history, no topic made twice, none compacted."""
    return t.large and t.deletions is None and t.compacted is None


def narrow_reads(t: Tables) -> DataFrame:
    """Polled records as numbers: op_index, position, place, target, offset, vh, line (process and place), txn (null
    outside), committed, final. One row each."""
    ops = t.ops.where("f in ('poll', 'txn') and type != 'invoke'")
    isolation = F.col("isolation")
    if t.meta.source == "edn":
        isolation = F.coalesce(isolation, F.lit("read_committed"))
    ops = ops.select(
        F.col("index").alias("op_index"),
        *("cluster", "process"),
        _transaction().alias("txn"),
        F.coalesce(isolation == "read_committed", F.lit(False)).alias("committed"),
        F.coalesce(F.col("phase") == "final", F.lit(False)).alias("final"),
    )
    rows = t.table("op_records").where("action = 'poll' and value is not null and offset is not null")
    rows = rows.where("partition is not null").select("op_index", "position", "topic", "partition", "offset", "value")
    rows = rows.join(ops, "op_index").withColumn("era", F.lit(0)).withColumn("origin_topic", t.canonical())
    return t.cache(
        rows.select(
            *("op_index", "position", "offset", "txn", "committed", "final"),
            hashed("value").alias("vh"),
            hashed(*KEY).alias("place"),
            hashed("origin_topic", "partition").alias("target"),
            hashed("process", *KEY).alias("line"),
        )
    )


def _transaction() -> Column:
    """The key of the transaction to which an event belongs; null outside."""
    named = F.when(F.col("txn").isNotNull(), hashed("cluster", "txn"))
    return F.coalesce(named, F.when(F.col("f") == "txn", F.col("op")))


def places(t: Tables) -> DataFrame:
    """place → cluster, topic, partition, era; for every partition of the history on every cluster of it."""
    found = t.table("op_records").select("topic", "partition").distinct().where("partition is not null")
    letters = sorted({c or "A" for c in t.facts.clusters} | {"A"})
    clusters = F.explode(F.array(*(F.lit(c) for c in letters)))
    rows = found.withColumn("cluster", clusters).withColumn("era", F.lit(0))
    return rows.select(*KEY, hashed(*KEY).alias("place"))


def narrow_seen(t: Tables) -> DataFrame:
    """What was seen at each offset: place, target, offset, low and high (the least and greatest vh there), readers,
    committed, final, stored."""
    flags = ("committed", "final")
    rows = t.narrow_reads.select(
        *("place", "target", "offset", "vh", *flags), F.lit(1).alias("readers"), F.lit(False).alias("stored")
    )
    if t.has("records"):
        stored = t.stored_values.withColumn("origin_topic", t.canonical()).select(
            hashed(*KEY).alias("place"),
            hashed("origin_topic", "partition").alias("target"),
            *("offset", hashed("value").alias("vh")),
            *(F.lit(False).alias(f) for f in flags),
            *(F.lit(0).alias("readers"), F.lit(True).alias("stored")),
        )
        rows = rows.unionByName(stored)
    return t.cache(
        rows.groupBy("place", "offset").agg(
            F.min("vh").alias("low"),
            F.max("vh").alias("high"),
            F.max("target").alias("target"),
            F.sum("readers").alias("readers"),
            *(F.max(f).alias(f) for f in (*flags, "stored")),
        )
    )


def narrow_sends(t: Tables) -> DataFrame:
    """Sent values as numbers: op, position, vh, cluster, place, target (null: partition unknown), offset, line, txn
    (null outside), outcome, at (time of the end), one row per value and operation."""
    ops = t.ops.where("f in ('send', 'txn')").select(
        F.col("index").alias("op_index"),
        *("op", "time_ns", "cluster", "process"),
        _transaction().alias("txn"),
        F.col("txn").isNotNull().alias("stepped"),
        (F.col("type") != "invoke").alias("done"),
        (F.col("type") == "ok").alias("ok"),
        (F.col("type") == "fail").alias("fail"),
        (F.col("f") == "txn").alias("whole"),
    )
    rows = t.table("op_records").where("action = 'send' and value is not null")
    rows = rows.select("op_index", "position", "topic", "partition", "offset", "value").join(ops, "op_index")
    rows = rows.withColumn("era", F.lit(0)).withColumn("origin_topic", t.canonical())
    known = F.col("partition").isNotNull()
    sent = (
        rows.select(
            *("op", "position", "done", "ok", "fail", "whole", "time_ns", "txn", "stepped"),
            F.when(F.col("offset") >= 0, F.col("offset")).alias("offset"),
            hashed("value").alias("vh"),
            F.xxhash64("cluster").alias("cluster"),
            F.when(known, hashed(*KEY)).alias("place"),
            F.when(known, hashed("origin_topic", "partition")).alias("target"),
            F.when(known, hashed("process", *KEY)).alias("line"),
        )
        .groupBy("op", "vh", "cluster")
        .agg(
            F.min("position").alias("position"),
            *(
                F.max(c).alias(c)
                for c in ("offset", "place", "target", "line", "txn", "ok", "fail", "whole", "stepped")
            ),
            F.min("time_ns").alias("invoked"),
            F.max(F.when(F.col("done"), F.col("time_ns"))).alias("ended"),
        )
    )
    if t.facts.txn_steps:
        ends = t.txns.select(
            hashed("cluster", "txn").alias("txn"),
            F.when(F.col("txn_outcome") == "committed", MUST)
            .when(F.col("txn_outcome") == "aborted", ABORTED)
            .otherwise(UNKNOWN)
            .alias("decided"),
        )
        sent = sent.join(ends, "txn", "left")
    else:
        sent = sent.withColumn("decided", F.lit(None).cast("int"))
    return t.cache(
        sent.select(
            *("op", "position", "vh", "cluster", "place", "target", "offset", "line", "txn"),
            _outcome(t).alias("outcome"),
            F.coalesce("ended", "invoked").alias("at"),
        )
    )


def _outcome(t: Tables) -> Column:
    """As `history._outcome`, in numbers."""
    ok, fail = F.col("ok") & ~F.col("fail"), F.col("fail") & ~F.col("ok")
    acked = ok
    if not t.stored.imported:
        acked = acked | (~fail & F.col("offset").isNotNull())
    return (
        F.when(F.col("whole") & ok, MUST)
        .when(F.col("whole") & fail, ABORTED)
        .when(F.col("whole"), UNKNOWN)
        .when(F.col("stepped") & (F.col("decided") == ABORTED), ABORTED)
        .when(fail, FAILED)
        .when(~acked, UNKNOWN)
        .when(~F.col("stepped"), MUST)
        .otherwise(F.coalesce("decided", F.lit(UNKNOWN)))
    )


def suspicious(t: Tables) -> DataFrame:
    """The hashes of the values that need a close look: vh, each once."""
    joined = t.cache(_joined(t))
    bad = [_by_place(t, joined), _by_value(t, joined), _by_order(joined)]
    if t.facts.transactional:
        own = t.narrow_reads.where("txn is not null").select("vh", "txn")
        bad += [_by_transaction(t, joined), joined.join(own, ["vh", "txn"], "left_semi").select("vh")]
    found = bad[0]
    for more in bad[1:]:
        found = found.unionAll(more)
    return t.cache(found.where("vh is not null").distinct())


def _joined(t: Tables) -> DataFrame:
    """Sends with an offset full-joined with what was seen there (`seen_place` null: nothing was; `vh` null: nobody was
    told this offset), and sends without an offset as they are; with the final state of their partition."""
    state = t.final_state.select(
        hashed(*KEY).alias("place"),
        *("look_ns", "log_start", "final_ns", "final_start", "max_final", "max_committed", "rc_start", "rc_end"),
    )
    seen = t.narrow_seen.withColumnsRenamed({"place": "seen_place", "offset": "seen_offset", "target": "seen_target"})
    sends = t.narrow_sends
    same = (F.col("place") == F.col("seen_place")) & (F.col("offset") == F.col("seen_offset"))
    return sends.join(seen, same, "full").join(F.broadcast(state), "place", "left")


def _by_place(t: Tables, joined: DataFrame) -> DataFrame:
    """Acknowledged values that are not where they must be, undone values that are, and two values at one place."""
    col, false = F.col, F.lit(False)
    must = col("outcome") == MUST
    by_log = F.coalesce(col("look_ns") >= col("at"), false)
    by_final = F.coalesce(col("final_ns") >= col("at"), false)
    final = F.when(col("max_final").isNull(), col("readers") > 0).otherwise(col("final"))
    here = col("seen_place").isNotNull() & (col("low") == col("vh")) & (col("high") == col("vh"))
    gone = (by_log & ~col("stored") & (col("offset") >= col("log_start"))) | (by_final & ~final)
    undone = ((col("outcome") == ABORTED) & col("committed")) | ((col("outcome") == FAILED) & (col("readers") > 0))
    told = col("vh").isNotNull()
    mismatch = col("seen_place").isNotNull() & told & ~here
    bad = told & ((must & ~here) | (here & must & gone) | (here & undone) | mismatch)
    mixed = col("low") != col("high")
    there = F.when(mixed | mismatch, F.array("vh", "low", "high")).otherwise(F.array("vh"))
    rows = joined.where(F.coalesce(bad, false) | F.coalesce(mixed, false)).select(F.explode(there).alias("vh"))
    # A third value at a place of two lies between the least and the greatest.
    crowded = t.narrow_seen.where("low != high").select("place", "offset")
    crowd = t.narrow_reads.select("place", "offset", "vh").join(crowded, ["place", "offset"], "left_semi").select("vh")
    return rows.unionAll(crowd)


def _by_value(t: Tables, joined: DataFrame) -> DataFrame:
    """Values seen at offsets that nobody was told: without a sender, out of place, twice, or undone."""
    col, false = F.col, F.lit(False)
    stray = joined.where("vh is null").select(
        *("seen_place", "seen_target", "seen_offset", "readers", "committed"),
        F.explode(F.array("low", "high")).alias("vh"),
    )
    stray = stray.groupBy("vh", "seen_place").agg(
        F.countDistinct("seen_offset").alias("copies"),
        F.max("seen_target").alias("seen_target"),
        F.max("committed").alias("committed"),
        F.sum("readers").alias("readers"),
    )
    sends = joined.where("vh is not null").select("vh", "place", "target", "offset", "outcome")
    rows = stray.join(sends, "vh", "left")
    told = (col("place") == col("seen_place")) & col("offset").isNotNull()
    undone = ((col("outcome") == ABORTED) & col("committed")) | ((col("outcome") == FAILED) & (col("readers") > 0))
    clean = col("outcome").isNotNull() & (col("copies") == 1) & (col("target") == col("seen_target")) & ~told & ~undone
    return rows.where(~F.coalesce(clean, false)).select("vh")


def _by_order(joined: DataFrame) -> DataFrame:
    """All acknowledged values of a process and partition in which an offset goes back or is not where it was told."""
    lines = joined.where((F.col("outcome") == MUST) & F.col("line").isNotNull())
    earlier = Window.partitionBy("line").orderBy("op", "position").rowsBetween(Window.unboundedPreceding, -1)
    # Without an offset the order can only be seen by where the value was found: that is the close look's work.
    back = F.coalesce(F.col("offset") < F.max("offset").over(earlier), F.col("offset").isNull())
    bad = lines.select("line", back.alias("back")).where("back").select("line").distinct()
    strayed = lines.where("seen_place is null or low != vh or high != vh").select("line").distinct()
    return lines.join(bad.unionAll(strayed).distinct(), "line", "left_semi").select("vh")


def _by_transaction(t: Tables, joined: DataFrame) -> DataFrame:
    """All values of transactions of which read_committed readers may have seen some and passed others over."""
    col, false = F.col, F.lit(False)
    passed = (col("rc_end") > col("offset")) & (col("rc_start") <= col("offset"))
    if not t.has("final_reads"):
        passed = col("max_committed") > col("offset")
    shown = F.coalesce(col("committed"), false)
    # Where the offset is unknown the value may have been seen: the close look finds out.
    hidden = ~shown & col("outcome").isin(MUST, UNKNOWN) & (F.coalesce(passed, false) | col("offset").isNull())
    rows = joined.where("vh is not null and txn is not null")
    torn = rows.groupBy("txn").agg(F.max(shown).alias("shown"), F.max(hidden).alias("hidden"))
    torn = torn.where("hidden and shown").select("txn")
    return rows.join(torn, "txn", "left_semi").select("vh")


def polled_ends(t: Tables) -> DataFrame:
    """The polled part of `partitions.final_state`, from numbers."""
    read = F.when(F.col("readers") > 0, F.col("offset"))
    ends = t.narrow_seen.groupBy("place").agg(
        F.max(read).alias("max_read"),
        F.max(F.when(F.col("committed"), read)).alias("max_committed"),
        F.max(F.when(F.col("final"), read)).alias("max_final"),
    )
    return ends.where("max_read is not null").join(F.broadcast(t.places), "place").drop("place")
