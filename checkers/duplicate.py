"""`duplicate`: one value at two or more offsets of a partition, on one cluster.

Proves: clients, or the log that counts, hold a value twice. Copies of aborted transactions do not count where a log
shows that they were aborted, because nobody is meant to see them. Whether duplicates are a fault or a known price is
the contract's business.

Cannot see: two copies of which one has expired before anybody read it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import Checker, Kind, Severity, anomalies, op_list, sentence
from checkers.history import KEY
from checkers.tables import Tables

DUPLICATE = Kind(
    name="duplicate",
    severity=Severity.S1,
    section=1,
    what="each value is at one offset of a partition",
    blind="a second copy that expired before anybody read it",
    sources=("Jepsen: jepsen.tests.kafka duplicate", "KIP-98", "KIP-656"),
)


def find(t: Tables) -> DataFrame | None:
    """Values seen at two or more offsets of one partition. `offset` is the second copy's."""
    places = t.suspects.where("is_duplicate").select("value", "op", "done_index", F.explode("places").alias("p"))
    copies = (
        places.groupBy("value", *(F.col(f"p.{c}").alias(c) for c in KEY))
        .agg(
            F.sort_array(F.collect_set("p.offset")).alias("offsets"),
            *(F.min(c).alias(c) for c in ("op", "done_index")),
            F.min("p.op_index").alias("first_read"),
            F.max("p.op_index").alias("last_read"),
        )
        .where("size(offsets) > 1")
    )
    return anomalies(
        copies,
        "duplicate",
        offset=F.col("offsets")[1],
        ops=op_list("op", "done_index", "first_read", "last_read"),
        rank=-F.size("offsets"),
        explain=sentence(
            "%s is %s times in %s-%s on %s: at offsets %s",
            *("value", F.size("offsets"), "topic", "partition", "cluster"),
            F.concat_ws(", ", F.slice("offsets", 1, 8).cast("array<string>")),
        ),
    )


CHECKER = Checker(name="duplicate", kinds=(DUPLICATE,), find=find)
