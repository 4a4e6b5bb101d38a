"""Stories of transactions that depend on each other, recorded step by step."""

from __future__ import annotations

from jsonl_story import Lines
from told_logs import KAFKA


@KAFKA.story("cycle_G0")
def written_in_two_orders(h: Lines, fault: bool) -> None:
    """Adya's G0, allowed in Kafka (Redpanda 21.10.1, Jepsen's report): two partitions, two orders."""
    h.txn("A", "begin", "T1", by="p1")
    h.txn("A", "begin", "T2", by="p2")
    h.send("A", "a0", at=0, p=0, txn="T1", by="p1")
    h.send("A", "b0", at=1, p=0, txn="T2", by="p2")
    h.send("A", "b1", at=0 if fault else 1, p=1, txn="T2", by="p2")
    h.send("A", "a1", at=1 if fault else 0, p=1, txn="T1", by="p1")
    h.txn("A", "commit", "T2", by="p2")
    h.txn("A", "commit", "T1", by="p1")
    h.poll("A", (0, "a0"), (1, "b0"), p=0, by="c0")
    h.poll("A", *([(0, "b1"), (1, "a1")] if fault else [(0, "a1"), (1, "b1")]), p=1, by="c1")


@KAFKA.story("cycle_G1c/wr", "precommitted_read")
def each_reads_what_the_other_has_not_committed(h: Lines, fault: bool) -> None:
    """Jepsen's early_read (Bufstream 0.1.0): both read_committed, both read the other's open transaction."""
    h.txn("A", "begin", "T1", by="p1")
    h.txn("A", "begin", "T2", by="p2")
    h.send("A", "a", at=0, p=0, txn="T1", by="p1")
    h.send("A", "b", at=0, p=1, txn="T2", by="p2")
    if fault:
        h.poll("A", (0, "b"), p=1, by="p1", isolation="read_committed", txn=h.named("T1"))
    h.txn("A", "commit", "T1", by="p1")
    h.poll("A", (0, "a"), p=0, by="p2", isolation="read_committed", txn=h.named("T2"))
    h.txn("A", "commit", "T2", by="p2")
    h.poll("A", (0, "b"), p=1, by="c1")


@KAFKA.story("cycle_G1c/mixed")
def overtaken_and_then_read(h: Lines, fault: bool) -> None:
    """Allowed in Kafka: T2 writes after T1 and commits, and T1, still open, reads a record of T2."""
    h.txn("A", "begin", "T1", by="p1")
    h.txn("A", "begin", "T2", by="p2")
    h.send("A", "a", at=0, p=0, txn="T1", by="p1")
    h.send("A", "b0", at=1, p=0, txn="T2", by="p2")
    h.send("A", "b1", at=0, p=1, txn="T2", by="p2")
    h.txn("A", "commit", "T2", by="p2")
    h.poll("A", (0, "b1"), p=1, by="p1", isolation="read_committed", **({"txn": h.named("T1")} if fault else {}))
    h.txn("A", "commit", "T1", by="p1")
    h.poll("A", (0, "a"), (1, "b0"), p=0, by="c0")
