"""`duplicate`: one value at two or more offsets of a partition, on one cluster.

Proves: clients, or the log that counts, hold a value twice. Copies of aborted transactions do not count, because
nobody is meant to see them. Whether duplicates are a fault or a known price is the contract's business.

Cannot see: two copies of which one has expired before anybody read it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import Checker, Kind, Severity, anomalies, sentence
from checkers.tables import PARTITION, Tables

DUPLICATE = Kind(
    name="duplicate",
    severity=Severity.S1,
    section=1,
    what="each value is at one offset of a partition",
    blind="a second copy that expired before anybody read it",
    sources=("Jepsen: jepsen.tests.kafka duplicate", "KIP-98", "KIP-656"),
)


def find(t: Tables) -> DataFrame | None:
    """Values seen at two or more offsets of one partition."""
    by_value = t.seen.groupBy(*PARTITION, "value").agg(
        F.min("offset").alias("offset"),
        F.max("offset").alias("last"),
        F.countDistinct("offset").alias("copies"),
        F.array_sort(F.collect_set("op_index")).alias("ops"),
    )
    return anomalies(
        by_value.where("copies > 1"),
        "duplicate",
        ops=F.slice("ops", 1, 8),
        rank=-F.col("copies"),
        explain=sentence(
            "%s of %s-%s on %s is there %s times, from offset %s to offset %s",
            *("value", "topic", "partition", "cluster", "copies", "offset", "last"),
        ),
    )


CHECKER = Checker(name="duplicate", kinds=(DUPLICATE,), find=find)
