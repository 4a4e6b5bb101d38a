"""Stories of MirrorMaker 2: retention, restarts, translated offsets, groups."""

from __future__ import annotations

from jsonl_story import Lines, Pack

MM2 = Pack("mm2-at-least-once")
EXACTLY = Pack("mm2-exactly-once")


@MM2.story("group_out_of_range/sync")
def source_offset_written_untranslated(h: Lines, fault: bool) -> None:
    """KAFKA-12468, apache/kafka#13178: on one of two partitions A's offset is synced untranslated."""
    for p in (0, 1):
        h.send("A", *(f"v{p}{i}" for i in range(3)), at=500, p=p)
        h.dump("B", *((i, f"v{p}{i}") for i in range(3)), p=p)
        h.offsets("commit_offset", "A", 503, p=p)
        h.offsets("sync_group_offset", "B", 503 if fault and p else 3, p=p, source_offset=503, by="mm2")
        h.dump("B", *((i, f"v{p}{i}") for i in range(3)), p=p)


@MM2.story("group_skip")
def group_that_was_never_synced(h: Lines, fault: bool) -> None:
    """KAFKA-10048: a group at offset 0 is left out; with auto.offset.reset=latest it begins at the end."""
    h.send("A", "v0", "v1", "v2", at=0)
    h.dump("B", (0, "v0"), (1, "v1"), (2, "v2"))
    h.offsets("commit_offset", "A", 0)
    h.mirror("failover", "nemesis", to="B")
    if fault:
        h.poll("B", group="g", reset="latest", position=3)
    else:
        h.poll("B", (0, "v0"), (1, "v1"), (2, "v2"), group="g", reset="earliest")


@MM2.story("retention_gap")
def expired_while_mm2_was_down(h: Lines, fault: bool) -> None:
    """apache/kafka#22248: the connector's auto.offset.reset=earliest hides the gap; in the twin it is reported."""
    h.send("A", *(f"r{i}" for i in range(9)), at=1000, p=2)
    h.line("nemesis", "info", "kill_mm2", topic=h.topic("t"))
    h.line("nemesis", "info", "retention", cluster="A", topic=h.topic("t"), partition=2, log_start=1006)
    h.line("nemesis", "info", "start_mm2", topic=h.topic("t"))
    if not fault:
        h.mirror("mirror_state", "mm2", state="FAILED", error="offset 1003 is out of range")
    h.dump("A", *((1000 + i, f"r{i}") for i in range(6, 9)), p=2, log_start=1006)
    h.dump("B", *((i, f"r{v}") for i, v in enumerate((0, 1, 2, 6, 7, 8))), p=2)


@MM2.story("retention_gap")
def gap_in_a_log_that_begins_high(h: Lines, fault: bool) -> None:
    """The destination's own log start is not 0; what it still holds is older than the gap."""
    h.send("A", *(f"r{i}" for i in range(6)), at=10)
    h.dump("A", (14, "r4"), (15, "r5"), log_start=14)
    held = (1, 4, 5) if fault else (2, 3, 4, 5)  # in the twin everything that is missing may have expired on B too
    h.dump("B", *((700 + i, f"r{v}") for i, v in enumerate(held)), log_start=700)


@MM2.story("checkpoint_rewind/ahead")
def checkpoint_past_the_truth(h: Lines, fault: bool) -> None:
    """KAFKA-12468: a translated offset may be too low, never too high."""
    h.send("A", *(f"v{i}" for i in range(6)), at=10)
    h.dump("B", *((i, f"v{i}") for i in range(6)))
    h.offsets("checkpoint", "B", 5 if fault else 2, source_offset=13, by="mm2")


@MM2.story("checkpoint_rewind/back")
def checkpoint_goes_back(h: Lines, fault: bool) -> None:
    """KAFKA-14666: translations go back while the source goes forward."""
    h.send("A", *(f"v{i}" for i in range(6)), at=0)
    h.dump("B", *((i, f"v{i}") for i in range(6)))
    for source, there in ((3, 3), (4, 1 if fault else 4)):
        h.offsets("checkpoint", "B", there, source_offset=source, by="mm2")


@MM2.story("mirror_loss")
def topic_made_again_is_not_copied_from_its_start(h: Lines, fault: bool) -> None:
    """A connector that keeps its old position skips the beginning of the new topic."""
    h.send("A", *(f"n{i}" for i in range(5)), at=0)
    h.dump("A", *((i, f"n{i}") for i in range(5)))
    kept = [2, 4] if fault else range(5)
    h.dump("B", *((i, f"n{v}") for i, v in enumerate(kept)))


@EXACTLY.story("mirror_duplicate", "duplicate")
def restart_copies_everything_again(h: Lines, fault: bool) -> None:
    """strimzi#5366: after a restart the connector begins at the start."""
    h.send("A", "v0", "v1", at=0)
    h.dump("A", (0, "v0"), (1, "v1"))
    again = [(2, "v0"), (3, "v1")] if fault else []
    h.dump("B", (0, "v0"), (1, "v1"), *again)


@EXACTLY.story("mirror_reorder")
def tasks_overtake_each_other(h: Lines, fault: bool) -> None:
    """Two tasks own one partition for a moment."""
    order = ("v0", "v2", "v1") if fault else ("v0", "v1", "v2")
    h.send("A", "v0", "v1", "v2", at=0)
    h.dump("A", *((i, f"v{i}") for i in range(3)))
    h.dump("B", *enumerate(order))


@EXACTLY.story("aborted_set")
def aborted_records_become_plain_ones(h: Lines, fault: bool) -> None:
    """A read_uncommitted source consumer under a contract that promises only committed data."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.txn("A", "abort", "T1")
    h.send("A", "y", at=2, by="p2")
    of = {"txn": "T1", "pid": 7, "pepoch": 0, "lepoch": 0}
    h.dump("A", (0, "x", of), (1, None, {**of, "ctl": "ABORT"}), (2, "y"))
    h.dump("B", *([(0, "x"), (1, "y")] if fault else [(0, "y")]))
