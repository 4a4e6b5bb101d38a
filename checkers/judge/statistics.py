"""Figures that accompany a verdict: how much happened, and the mirror's lag. None of them is an anomaly."""

from __future__ import annotations

import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from checkers.views.decided import asked
from checkers.views.mirrored_values import bounds, mirrored_values
from checkers.views.mirroring import PAIR
from checkers.views.tables import Tables
from harness.history.store import StoredRun


def figures(t: Tables) -> dict[str, int]:
    """Counts over the whole run; keys read as labels.

    The greatest lag is the largest `lag` in any snapshot of the mirror (records, summed over its partitions).
    """
    events = sorted(t.facts.counts.items())
    found: dict[str, int] = {f"{f} {kind}": count for (f, kind), count in events if kind in ("ok", "fail", "info")}
    if t.has("mirror_states"):
        snapshots = (
            t.table("mirror_states").where("lag is not null").groupBy("mirror", "time_ns").agg(F.sum("lag").alias("n"))
        )
        most = snapshots.agg(F.max("n").alias("n")).collect()[0]["n"]
        if most is not None:
            found["greatest lag of the mirror, records"] = most
    found |= recovery_point(t)
    if t.has("faults"):
        steps = t.table("faults").where("action in ('inject', 'bit', 'skip')")
        counts = {row["action"]: row["n"] for row in steps.groupBy("action").agg(_proven().alias("n")).collect()}
        found["faults injected"] = counts.get("inject", 0)
        found["faults that bit"] = counts.get("bit", 0)
        if counts.get("skip"):
            found["faults skipped"] = counts["skip"]
    mirrored = t.carried_under_faults
    if mirrored.faults:
        found["carried under faults, records (least of any fault)"] = min(f.records for f in mirrored.faults)
        found["carried under faults, partitions"] = mirrored.partitions
    return found


def recovery_point(t: Tables) -> dict[str, int]:
    """The recovery point of stops (RPO): records, and transactions, that had been acknowledged on the source when the
    stop was requested and are not visible on the destination."""
    if not t.has("mirror_states") or t.table("mirror_states").where("state = 'STOPPED'").isEmpty():
        return {}
    values, stops = mirrored_values(t), bounds(t)
    if values is None or stops is None:
        return {}
    sent = t.sends.where("outcome in ('acked', 'committed') and partition is not null")
    sent = sent.join(t.txns.select("cluster", "txn", "decided_ns"), ["cluster", "txn"], "left")
    sent = sent.select(
        *(F.col("cluster").alias("source"), *PAIR[2:], "value"),
        F.coalesce("decided_ns", "done_ns").alias("at"),
        F.coalesce("txn", F.when(F.col("f") == "txn", F.concat(F.lit("op "), F.col("op").cast("string")))).alias("txn"),
    )
    rows = sent.join(F.broadcast(asked(t)), ["source", *PAIR[2:]]).where("at <= asked_ns")
    rows = rows.join(values.select(*PAIR, "value", "b_visible"), [*PAIR, "value"], "left")
    missing = F.coalesce("b_visible", F.lit(0)) == 0
    routes = rows.groupBy("source", "destination").agg(
        F.count(F.when(missing, 1)).alias("records"), F.countDistinct(F.when(missing, F.col("txn"))).alias("txns")
    )
    found = {}
    for row in routes.sort("source").collect():
        found[f"RPO {row['source']}-{row['destination']}, records"] = row["records"]
        found[f"RPO {row['source']}-{row['destination']}, transactions"] = row["txns"]
    return found


def _proven() -> Column:
    return F.countDistinct(F.when(F.coalesce(F.col("ok"), F.lit(True)), F.col("fault_id")))


def unfinished_reads(run: StoredRun) -> int:
    """Final reads that did not reach their target. An empty table of a run that had to have it counts as none."""
    if not run.has("final_reads"):
        return 0
    return int(pc.sum(pc.invert(run.read_table("final_reads", ["complete"])["complete"])).as_py() or 0)
