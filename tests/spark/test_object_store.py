"""Object stores: planted faults of each kind and their clean twins."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from stories import STRICT, Story, judged


def test_objects(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    second = 1_000_000_000
    here = {"cluster": "A"}

    def ref(event: str, at: int, **columns: object) -> None:
        h.row("object_refs", event=event, time_ns=at * second, **here, **columns)

    for name in ("named", "wanted", "vanished", "dropped", "cleaned", "just-dropped"):
        ref("commit", 1, object=name)
    ref("drop", 100, object="dropped")
    ref("drop", 100, object="cleaned")
    ref("drop", 1_900, object="just-dropped")
    ref("commit", 1, object="refused", accepted=False)
    for at, cycle, shown in (
        (200, 1, ("named", "wanted", "dropped", "cleaned", "never", "refused", "just-dropped")),
        (2_000, 4, ("named", "dropped", "never", "refused", "just-dropped", "young")),
    ):
        for name in shown:
            row = {"object": name, "size": 10, "created_ns": (1_990 if name == "young" else 1) * second}
            h.row("objects", event="look", time_ns=at * second, cycle=cycle, **here, **row)
    h.row("objects", event="delete", object="wanted", time_ns=300 * second, **here)
    h.row("objects", event="delete", object="cleaned", time_ns=300 * second, **here)
    # Broker epochs: 1 is old once 2 is registered.
    for at, epoch in ((1, 1), (5, 2)):
        ref("epoch", at, broker=7, broker_epoch=epoch)
    batch = {"topic": "t", "partition": 0, "broker": 7}
    ref("commit", 3, broker_epoch=1, base_offset=0, last_offset=4, **batch)
    ref("commit", 6, broker_epoch=1, base_offset=5, last_offset=6, **batch)
    ref("commit", 6, broker_epoch=1, base_offset=7, last_offset=7, accepted=False, **batch)
    ref("commit", 9, broker_epoch=2, base_offset=8, last_offset=9, **batch)
    for txn, offset in (("whole", 3), ("early", 8)):
        h.send(f"p {txn}", "A", "t", 0, txn, offset=offset, txn=txn)
        ref("txn", 8, txn=txn)
    assert judged(spark, h, tmp_path / "run") == [
        ("commit_barrier", None, "A", "t", 8, "early"),
        ("orphan_objects", None, "A", None, None, "dropped"),
        ("orphan_objects", None, "A", None, None, "never"),
        ("orphan_objects", None, "A", None, None, "refused"),
        ("referenced_deleted", "deleted", "A", None, None, "wanted"),
        ("referenced_deleted", "missing", "A", None, None, "vanished"),
        ("stale_commit", None, "A", "t", 5, None),
    ]
