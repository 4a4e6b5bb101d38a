"""`state_graph`: a mirror partition moved between states along an edge that the design does not have.

Proves, for mirrors that keep offsets, by form:
- `edge`: of two consecutive snapshots (or acknowledged operations), the later state cannot be reached from the earlier.
  Transient states (PREPARING, LOG_TRUNCATION, EPOCH_FENCING, PAUSING, STOPPING) may be missed between snapshots, stable
  ones (MIRRORING, PAUSED, STOPPED, FAILED) may not: a stopped mirror restarts only through PREPARING, a stop is not
  revoked, and a mirror in PAUSING does not resume before it is PAUSED.
  In the mirror's own state topic no state is missed.
- `refused`: an operation on the mirror failed, and yet the next state is the one that it would have led to.

Where only snapshots show a restart (Shatterproof runs), STOPPED followed by MIRRORING proves nothing, and is left out.
Cannot see: states between two snapshots; changes that a killed process's replacement made before the next one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, op_list, sentence, union
from checkers.views.mirroring import keeps_offsets
from checkers.views.tables import Tables
from harness.history.jsonl.events import MIRROR_FAULTS

KIND = AnomalyKind(
    name="state_graph",
    severity=Severity.S2,
    violation="had mirror states that its design does not allow",
    section=4,
    what="mirror states move along the design's edges; a refused operation changes nothing",
    limitations="states between two snapshots",
    sources=("KIP-1279",),
    requires=("mirror_states",),
    forms=("edge", "refused"),
)
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "STOPPED": ("MIRRORING", "PAUSING", "PAUSED", "STOPPING"),
    "STOPPING": ("PREPARING", "LOG_TRUNCATION", "EPOCH_FENCING", "MIRRORING", "PAUSING", "PAUSED"),
    "PAUSING": ("PREPARING", "LOG_TRUNCATION", "EPOCH_FENCING", "MIRRORING"),
    "PAUSED": ("PAUSING",),
    "PREPARING": (),
    "MIRRORING": (),
    "FAILED": (),
}
"""State → states that must not be seen next."""
RESULTS: dict[str, tuple[str, ...]] = {
    "mirror_stop": ("STOPPING", "STOPPED"),
    "failover": ("STOPPING", "STOPPED"),
    "mirror_pause": ("PAUSING", "PAUSED"),
    "mirror_resume": ("MIRRORING",),
    "mirror_start": ("PREPARING", "MIRRORING"),
    "mirror_failback": ("PREPARING", "MIRRORING"),
}
"""Operation → states that show that it was carried out."""
_KEY = ("mirror", "cluster", "topic", "partition")


def check(t: Tables) -> DataFrame | None:
    """One row per wrong move; None where the mirror has no states of its own."""
    if not keeps_offsets(t):
        return None
    rows = t.table("mirror_states")
    if t.has("faults"):
        # A nemesis that pauses or resumes the mirror's process does not change the mirror's state.
        faults = t.table("faults").where(F.col("name").isin(*MIRROR_FAULTS)).select("time_ns").distinct()
        moved = rows.where("event in ('pause', 'resume')").join(F.broadcast(faults), "time_ns", "left_semi")
        rows = rows.join(F.broadcast(moved.select("time_ns", "event").distinct()), ["time_ns", "event"], "left_anti")
    rows = _with_before(rows)
    found = [_edges(rows, whole=t.stored.imported), _refused(t, rows)]
    logged = t.found(t.state_log())
    return union(found if logged is None else [*found, _edges(_with_before(logged), whole=True)])


def _with_before(rows: DataFrame) -> DataFrame:
    """The known states, each with the one before it."""
    rows = rows.where("state is not null and state != 'UNKNOWN'")
    # A history may name the mirror in some events only.
    order = Window.partitionBy("cluster", "topic", "partition").orderBy("time_ns", "event")
    return rows.withColumns({"before": F.lag("state").over(order), "before_ns": F.lag("time_ns").over(order)})


def _edges(rows: DataFrame, *, whole: bool) -> DataFrame:
    """whole: no stable state is missing between two rows."""
    bad = F.lit(False)
    for state, others in FORBIDDEN.items():
        others = tuple(o for o in others if whole or (state, o) != ("STOPPED", "MIRRORING"))
        if others:
            bad = bad | ((F.col("before") == state) & F.col("state").isin(*others))
    return anomalies(
        rows.where(bad),
        "state_graph",
        form=F.lit("edge"),
        offset=None,
        value=None,
        rank="time_ns",
        explain=sentence(
            "the mirror of %s-%s to %s went from %s to %s, an edge that the design does not have",
            *("topic", "partition", "cluster", "before", "state"),
        ),
    )


def _refused(t: Tables, rows: DataFrame) -> DataFrame:
    ops = _operations(t)
    failed = F.broadcast(ops.where("failed"))
    done = F.broadcast(
        ops.where("not failed").select(
            "cluster", "leads_to", F.col("begin").alias("ok_begin"), F.col("end").alias("ok_end")
        )
    )
    changed = rows.where("before is not null and before != state")
    hit = changed.join(failed, "cluster").where("time_ns >= begin and before_ns <= end")
    hit = hit.where("on_topic is null or on_topic = topic").where("on_partition is null or on_partition = partition")
    hit = hit.where("find_in_set(state, leads_to) > 0 and find_in_set(before, leads_to) = 0")
    # Not where the same request also succeeded, nor where the change would have come by itself.
    hit = hit.where("before not in ('PREPARING', 'PAUSING', 'STOPPING')")
    excused = (done.cluster == hit.cluster) & (done.leads_to == hit.leads_to)
    excused = excused & (done.ok_begin <= hit.time_ns) & (done.ok_end >= hit.before_ns)
    hit = hit.join(done, excused, "left_anti")
    return anomalies(
        hit,
        "state_graph",
        form=F.lit("refused"),
        offset=None,
        value=None,
        ops=op_list("op", "done_index"),
        rank="time_ns",
        explain=sentence(
            "%s of %s-%s on %s was refused, and yet its mirror went from %s to %s",
            *("f", "topic", "partition", "cluster", "before", "state"),
        ),
    )


def _operations(t: Tables) -> DataFrame:
    """Operations on mirrors: op, f, cluster, failed, begin, end, done_index, leads_to (states, by commas), on_topic,
    on_partition (null: all)."""
    entries = [F.lit(x) for f, states in RESULTS.items() for x in (f, ",".join(states))]
    ops = (
        t.ops.where(F.col("f").isin(*RESULTS))
        .groupBy("op", "f", "cluster")
        .agg(
            F.max(F.col("type") == "fail").alias("failed"),
            F.min("time_ns").alias("begin"),
            F.max("time_ns").alias("end"),
            F.max("index").alias("done_index"),
        )
    )
    targets = (
        t.table("op_records")
        .where("action = 'target'")
        .select(
            F.col("op_index").alias("done_index"),
            F.col("topic").alias("on_topic"),
            F.col("partition").alias("on_partition"),
        )
    )
    return ops.withColumn("leads_to", F.create_map(*entries)[F.col("f")]).join(targets, "done_index", "left")


CHECKER = Checker(name="state_graph", kinds=(KIND,), check=check)
