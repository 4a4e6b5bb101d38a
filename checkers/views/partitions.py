"""The final state of each partition: how far it was read, and its authoritative log."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.views.history import KEY
from checkers.views.incarnations import with_era_at

if TYPE_CHECKING:
    from checkers.views.tables import Tables

_COLUMNS = (
    *((name, "bigint") for name in ("max_read", "max_committed", "final_start", "final_end", "final_ns")),
    *((name, "bigint") for name in ("rc_start", "rc_end", "log_start", "log_end", "look_ns")),
    ("incomplete", "boolean"),
)


def final_state(t: Tables) -> DataFrame:
    """One row per partition that was observed: cluster, topic, partition, era, and

    - from polls: max_read, max_committed (greatest offset read at all, and by read_committed polls);
    - from final reads that completed: final_start, final_end, final_ns, rc_start, rc_end (read_committed ones);
    - incomplete: a final read of it did not complete;
    - from the authoritative log: log_start, log_end, look_ns.
    """
    polled = t.prefilter.polled_ends if t.large else _polled_ends(t)
    parts = [polled]
    if t.has("final_reads"):
        parts.append(_final_reads(t))
    if t.has("log_ends"):
        parts.append(_logs(t))
        if t.stored.imported:
            parts.append(_expired(t))
    # A union rather than joins: then one exchange is enough.
    rows = reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), parts)
    found = set(rows.columns)
    return t.cache(
        rows.groupBy(*KEY).agg(
            *((F.max(name) if name in found else F.lit(None).cast(kind)).alias(name) for name, kind in _COLUMNS)
        )
    )


def _final_reads(t: Tables) -> DataFrame:
    done, rc = F.col("complete"), F.col("complete") & (F.col("isolation") == "read_committed")
    return (
        with_era_at(t, t.table("final_reads"), F.col("time_ns"))
        .groupBy(*KEY)
        .agg(
            F.min(F.when(done, F.greatest("start_offset", F.lit(0)))).alias("final_start"),
            F.max(F.when(done, F.col("position"))).alias("final_end"),
            F.max(F.when(done, F.col("time_ns"))).alias("final_ns"),
            F.min(F.when(rc, F.greatest("start_offset", F.lit(0)))).alias("rc_start"),
            F.max(F.when(rc, F.col("position"))).alias("rc_end"),
            F.max(~done).alias("incomplete"),
        )
    )


def _logs(t: Tables) -> DataFrame:
    logs = t.truth.where("log_start is not null")
    if not t.has("records"):
        # Log ends alone show no record below them.
        logs = logs.where("log_start = log_end")
    return logs.select(*KEY, "log_start", "log_end", F.col("time_ns").alias("look_ns"))


def _expired(t: Tables) -> DataFrame:
    """Retention in an imported history: a log start without a snapshot of the log."""
    starts = t.table("log_ends").where("broker is null and log_end is null and log_start is not null")
    return with_era_at(t, starts, F.col("time_ns")).select(*KEY, "log_start")


def _polled_ends(t: Tables) -> DataFrame:
    return t.polled.groupBy(*KEY).agg(
        F.max("offset").alias("max_read"),
        F.max(F.when(F.col("committed"), F.col("offset"))).alias("max_committed"),
    )
