"""`state_key_skew`: the keys of the mirrors' state topic are concentrated on few of its partitions.

Proves: a log of `__mirror_state` holds 1,000 keys or more, and one partition has more than twice as many of them as
there are per partition on average (empty partitions count).

Cannot see: fewer than 1,000 keys; keys that compaction removed; how hot a key is.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence
from checkers.views.keys import REPLICA
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="state_key_skew",
    severity=Severity.S4,
    violation="crowded one partition of the mirror state topic",
    section=4,
    what="with 1,000 or more keys in the mirror state topic, no partition holds more than twice the mean",
    limitations="fewer than 1,000 keys; keys that compaction removed; how hot a key is",
    sources=("KIP-1279",),
    requires=("records", "log_ends"),
)
TOPIC = "__mirror_state"
LEAST_KEYS = 1_000
MOST = 2.0


def check(t: Tables) -> DataFrame | None:
    """One row per partition that holds too many; None where no log of the topic was stored."""
    records = t.own_topics("records").where((F.col("topic") == TOPIC) & F.col("key").isNotNull())
    if records.isEmpty():
        return None
    per_replica = records.groupBy(*REPLICA).agg(F.countDistinct("key").alias("keys"))
    here = per_replica.groupBy("cluster", "topic", "partition").agg(F.max("keys").alias("keys"))
    ends = t.own_topics("log_ends").where(F.col("topic") == TOPIC).select("cluster", "topic", "partition").distinct()
    every = ends.join(here, ["cluster", "topic", "partition"], "full").fillna(0, ["keys"])
    sums = every.groupBy("cluster").agg(F.sum("keys").alias("all_keys"), F.count("*").alias("partitions"))
    rows = every.join(F.broadcast(sums), "cluster").where(F.col("all_keys") >= LEAST_KEYS)
    rows = rows.withColumn("factor", F.round(F.col("keys") * F.col("partitions") / F.col("all_keys"), 1))
    rows = rows.where(F.col("keys") * F.col("partitions") > MOST * F.col("all_keys"))
    return anomalies(
        rows,
        "state_key_skew",
        offset=None,
        value=None,
        rank=-F.col("keys"),
        explain=sentence(
            "partition %s of %s on %s holds %s of %s keys, %s times the mean of %s partitions",
            *("partition", "topic", "cluster", "keys", "all_keys", "factor", "partitions"),
        ),
    )


CHECKER = Checker(name="state_key_skew", kinds=(KIND,), check=check)
