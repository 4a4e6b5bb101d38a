"""Views over the history: events, sends, reads, and transactions as clients saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.eras import FOREVER
from checkers.views.failbacks import with_branch
from checkers.views.incarnations import decided_by_offset, undecided, with_era

if TYPE_CHECKING:
    from checkers.views.tables import Tables

KEY = ("cluster", "topic", "partition", "era")
"""Columns that identify a partition. era: which of its topic's incarnations, counted from 0 (see `incarnations`);
below 0: a branch that a failback discarded (see `failbacks`)."""
NEVER = 2**62
"""Index of a request that was never made."""


def paired_ops(t: Tables) -> DataFrame:
    """`ops` and `op`: the index of the invoke that an event belongs to (its own on an invoke, and on a completion
    without invoke). Where the writer did not record it, the last invoke of that process and function counts: one about
    the same thing (the value of a send, the offset of a commit), if there is one."""
    ops = t.table("ops").withColumn("cluster", F.coalesce("cluster", F.lit("A")))
    op = F.coalesce("invoke_index", "index")
    if t.facts.unpaired:
        about = t.table("op_records").where("position = 0 and action in ('send', 'commit')")
        place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
        about = about.select(F.col("op_index").alias("index"), F.coalesce("value", place).alias("_about"))
        ops = ops.join(about.dropDuplicates(["index"]), "index", "left")
        invoked = F.when(F.col("type") == "invoke", F.col("index"))
        found = []
        for lane in (("process", "f", "_about"), ("process", "f")):
            before = Window.partitionBy(*lane).orderBy("index").rowsBetween(Window.unboundedPreceding, 0)
            found.append(F.last(invoked, ignorenulls=True).over(before))
        same = F.when(F.col("_about").isNotNull(), found[0])
        ops = ops.withColumn("_op", F.coalesce("invoke_index", same, found[1], "index"))
        op = F.col("_op")
    ops = ops.withColumn("op", F.when(F.col("type") == "invoke", F.col("index")).otherwise(op))
    return ops.drop("_about", "_op")


def transactions(t: Tables) -> DataFrame:
    """Transactions made of separate steps: cluster, txn, txn_outcome (committed, aborted, unknown), decided_index,
    decided_ns, asked: the indices of its commit requests, ascending, or null where a commit was acknowledged without a
    request in this history. With an acknowledged commit and an acknowledged abort the outcome is unknown."""
    steps = t.ops.where("f in ('txn_begin', 'txn_commit', 'txn_abort') and txn is not null")
    commit, ok = F.col("f") == "txn_commit", F.col("type") == "ok"
    end = ok & F.col("f").isin("txn_commit", "txn_abort")
    commits = F.count(F.when(ok & commit, 1))
    aborts = F.count(F.when(end & ~commit, 1))
    outcome = (
        F.when((commits > 0) & (aborts == 0), "committed")
        .when((aborts > 0) & (commits == 0), "aborted")
        .otherwise("unknown")
    )
    asked = F.sort_array(F.collect_list(F.when(commit & (F.col("type") == "invoke"), F.col("index"))))
    unasked = F.max(commit & (F.col("type") != "invoke") & (F.col("op") == F.col("index")))
    return steps.groupBy("cluster", "txn").agg(
        outcome.alias("txn_outcome"),
        F.min(F.when(end, F.col("index"))).alias("decided_index"),
        F.min(F.when(end, F.col("time_ns"))).alias("decided_ns"),
        F.when(~unasked, asked).alias("asked"),
    )


def _restrict(rows: DataFrame, only: DataFrame | None) -> DataFrame:
    if only is None:
        return rows
    if "vh" in only.columns:
        return rows.withColumn("vh", F.xxhash64("value")).join(only, "vh", "left_semi").drop("vh")
    return rows.join(only, only.columns, "left_semi")


def sends(t: Tables, *, only: DataFrame | None = None) -> DataFrame:
    """See `Tables.sends`. `only`: hashes of values (column vh), or columns of op_records, to keep."""
    ops = t.ops.where("f in ('send', 'txn')").select(
        F.col("index").alias("op_index"),
        *("op", "time_ns", "process", "type", "f", "phase", "cluster", "client", "txn"),
    )
    rows = _restrict(t.table("op_records").where("action = 'send' and value is not null"), only).join(ops, "op_index")
    done = F.col("type") != "invoke"

    def of_type(kind: str) -> Column:
        return F.max(F.col("type") == kind)

    def kept(name: str) -> Column:
        return F.coalesce(F.max(F.when(done, F.col(name))), F.max(name)).alias(name)

    kind = F.when(of_type("ok") & ~of_type("fail"), "ok").when(of_type("fail") & ~of_type("ok"), "fail")
    sent = rows.groupBy("value", "op", "cluster").agg(
        kind.otherwise("info").alias("type"),
        F.min("position").alias("position"),
        F.max(F.when(F.col("offset") >= 0, F.col("offset"))).alias("offset"),
        *(kept(c) for c in ("topic", "partition", "key", "producer_id", "producer_epoch", "sequence")),
        *(F.max(c).alias(c) for c in ("process", "client", "txn", "phase", "f")),
        F.min("time_ns").alias("invoke_ns"),
        F.max(F.when(done, F.col("op_index"))).alias("done_index"),
        F.max(F.when(done, F.col("time_ns"))).alias("done_ns"),
    )
    if t.facts.txn_steps:
        sent = sent.join(t.txns.drop("decided_ns"), ["cluster", "txn"], "left")
    else:
        none = F.lit(None).cast("bigint")
        sent = sent.withColumns({"txn_outcome": F.lit(None), "decided_index": none, "asked": F.array(none)})
    sent = sent.withColumns({"outcome": _outcome(t), "commit_asked": _commit_asked()}).drop("txn_outcome", "asked")
    sent = sent.withColumn("origin_topic", t.canonical())
    # A send with unknown result and without an offset may take effect at any time.
    ended = F.when(F.col("type").isin("ok", "fail") | F.col("offset").isNotNull(), F.col("done_index"))
    sent = with_era(t, sent, F.col("op"), F.coalesce(ended, F.lit(FOREVER)))
    sent = decided_by_offset(t, sent.withColumn("straddles", undecided()))
    return with_branch(t, sent, F.coalesce("done_ns", "invoke_ns"), F.col("offset"))


def _commit_asked() -> Column:
    """See `Tables.sends`. A transaction as one operation may be committed from its invocation on."""
    op, whole = F.col("op"), F.col("f") == "txn"
    later = F.array_min(F.filter("asked", lambda at: at > op))
    stepped = F.when(F.size("asked") == 0, NEVER).otherwise(later)
    by_steps = F.when(F.col("txn").isNotNull() & F.col("asked").isNotNull(), stepped)
    return F.when(~whole, by_steps).when(F.col("done_index").isNull() | (F.col("done_index") > op), op)


def _outcome(t: Tables) -> Column:
    whole, in_txn = F.col("f") == "txn", F.col("txn").isNotNull()
    acked = F.col("type") == "ok"
    if not t.stored.imported:
        # The recorder notes an offset for each record that was acknowledged, also when the operation as a whole
        # is unknown because another of its records is.
        acked = acked | ((F.col("type") == "info") & F.col("offset").isNotNull())
    return (
        F.when(whole & (F.col("type") == "ok"), "committed")
        .when(whole & (F.col("type") == "fail"), "aborted")
        .when(whole, "unknown")
        .when(in_txn & (F.col("txn_outcome") == "aborted"), "aborted")
        .when(F.col("type") == "fail", "failed")
        .when(~acked, "unknown")
        .when(~in_txn, "acked")
        .otherwise(F.coalesce("txn_outcome", F.lit("unknown")))
    )


def reads(t: Tables, *, only: DataFrame | None = None) -> DataFrame:
    """See `Tables.reads`. `only`: as of `sends`."""
    ops = t.ops.where("f in ('poll', 'txn') and type != 'invoke'").select(
        F.col("index").alias("op_index"),
        *("op", "time_ns", "process", "type", "f", "phase", "cluster", "client", "txn", "group", "isolation", "reset"),
    )
    rows = _restrict(t.table("op_records").where("action = 'poll'"), only).select(
        *("op_index", "position", "value", "topic", "partition", "offset", "leader_epoch")
    )
    found = rows.join(ops, "op_index").withColumn("origin_topic", t.canonical())
    if t.meta.source == "edn":
        # Jepsen's clients of transactional workloads read committed data; its histories do not record this.
        found = found.withColumn("isolation", F.coalesce("isolation", F.lit("read_committed")))
    found = with_era(t, found, F.col("op"), F.col("op_index"))
    return with_branch(t, found, F.col("time_ns"), F.col("offset"))


def polled(reads: DataFrame) -> DataFrame:
    """See `Tables.polled`."""
    rows = reads.where("value is not null and offset is not null and partition is not null")
    return rows.groupBy(*KEY, "offset", "value").agg(
        F.min("op_index").alias("op_index"),
        F.count("*").alias("readers"),
        F.max(F.coalesce(F.col("phase") == "final", F.lit(False))).alias("final"),
        F.max(F.coalesce(F.col("isolation") == "read_committed", F.lit(False))).alias("committed"),
        F.min("time_ns").alias("first_ns"),
    )


def seen(polled: DataFrame, logged: DataFrame | None) -> DataFrame:
    """See `Tables.seen`. logged: `Tables.logged_values`, or those of some values; None without a log."""
    held = ("producer_id", "producer_epoch", "sequence", "txn_end")
    if logged is None:
        types = dict(zip(held, ("bigint", "int", "int", "string"), strict=True))
        nothing = {name: F.lit(None).cast(kind) for name, kind in types.items()}
        return polled.withColumns({"stored": F.lit(False), **nothing})
    none = F.lit(None).cast("bigint")
    shown = logged.withColumns(
        {
            "op_index": none,
            "readers": F.lit(0).cast("bigint"),
            "final": F.lit(False),
            "committed": F.lit(False),
            "first_ns": none,
            "stored": F.col("txn_end").isNull() | (F.col("txn_end") != "ABORT"),
        }
    )
    rows = polled.withColumn("stored", F.lit(False)).unionByName(shown, allowMissingColumns=True)
    both = rows.groupBy(*KEY, "offset", "value").agg(
        *(F.min(c).alias(c) for c in ("op_index", "first_ns")),
        F.sum("readers").alias("readers"),
        *(F.max(c).alias(c) for c in ("final", "committed", "stored")),
        *(F.max(c).alias(c) for c in held),
    )
    return both.where("readers > 0 or stored")
