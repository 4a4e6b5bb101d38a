"""More stories of a mirror that keeps offsets: chains of clusters, compaction, events in the middle of a stop."""

from __future__ import annotations

from jsonl_story import Lines
from told_mirrors import COMMIT, RESET, STRICT, T1

__all__ = ["STRICT"]  # with the stories of all files


@STRICT.story("mirror_loss")
def lost_on_the_second_leg(h: Lines, fault: bool) -> None:
    """A to B to C: B holds everything, C lacks a record."""
    h.send("A", "a", "b", "c", at=0, p=2)
    whole = [(0, "a"), (1, "b"), (2, "c")]
    for cluster in "AB":
        h.dump(cluster, *whole, p=2)
    h.dump("C", *([whole[0], whole[2]] if fault else whole), p=2, mirror_of="B")


@STRICT.story("pid_negative", "offset_identity")
def rewritten_on_the_second_leg(h: Lines, fault: bool) -> None:
    """dev@kafka msg155161: -(id + 2), on C only."""
    h.send("A", "a", at=0, pid=5, epoch=0)
    for cluster in "ABC":
        pid = -7 if fault and cluster == "C" else 5
        h.dump(cluster, (0, "a", {"pid": pid, "pepoch": 0, "lepoch": 0}))


@STRICT.story("mirror_loss")
def gone_from_a_compacted_topic(h: Lines, fault: bool) -> None:
    """Compaction may remove a record when a later one has its key, and only then."""
    for cluster in "AB":
        config = {"cleanup.policy": "compact"}
        h.both("admin", "create_topic", cluster=cluster, topic=h.topic("t"), config=config)
    records = [(0, "a", {"key": "k"}), (1, "b", {"key": "m" if fault else "l"}), (2, "c", {"key": "l"})]
    h.send("A", "a", at=0, key="k")
    h.send("A", "b", at=1, key="m" if fault else "l")
    h.send("A", "c", at=2, key="l")
    h.dump("A", *records)
    h.dump("B", records[0], records[2])


@STRICT.story("written_while_mirrored/accepted")
def acknowledged_before_the_stop_began(h: Lines, fault: bool) -> None:
    """A write that is acknowledged during the stop may have been appended after it."""
    h.mirror("mirror_state", state="MIRRORING", topic="t", partition=0)
    place = {"cluster": "B", "topic": h.topic("t"), "partition": 0, "value": h.named("w")}
    stop = {"cluster": "B", "topic": h.topic("t"), "partition": 0}
    h.line("p", "invoke", "send", **place)
    if fault:
        h.line("p", "ok", "send", **place, offset=0)
    h.line("admin", "invoke", "mirror_stop", **stop)
    if not fault:
        h.line("p", "ok", "send", **place, offset=0)
    h.line("admin", "ok", "mirror_stop", **stop)
    h.dump("B", (0, "w"))


@STRICT.story("stop_cut")
def two_resets_at_the_stop(h: Lines, fault: bool) -> None:
    """One reset separates mirrored producers from local ones; a committed transaction before it stays committed."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.txn("A", "commit", "T1")
    h.dump("A", (0, "x", T1), (1, None, COMMIT))
    h.mirror("mirror_stop")
    resets = [(2, None, RESET), (3, None, RESET)] if fault else [(2, None, RESET)]
    h.send("B", "w", at=2 + len(resets), by="p2")
    h.dump("B", (0, "x", T1), (1, None, COMMIT), *resets, (2 + len(resets), "w", {"lepoch": 11}))


@STRICT.story("cross_partition", "transaction_outcome")
def half_of_it_aborted_by_the_stop(h: Lines, fault: bool) -> None:
    """One partition's marker was mirrored before the stop; the other partition's data had to be aborted."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, p=0, txn="T1", pid=7, epoch=0)
    h.send("A", "y", at=0, p=1, txn="T1", pid=7, epoch=0)
    h.txn("A", "commit", "T1")
    for p, value in enumerate("xy"):
        h.dump("A", (0, value, T1), (1, None, COMMIT), p=p)
    h.mirror("mirror_stop")
    h.dump("B", (0, "x", T1), (1, None, COMMIT), (2, None, RESET), p=0)
    h.dump("B", (0, "y", T1), (1, None, {**COMMIT, "ctl": "ABORT"} if fault else COMMIT), (2, None, RESET), p=1)


@STRICT.story("state_graph/edge")
def stop_taken_back(h: Lines, fault: bool) -> None:
    """STOPPING must end in STOPPED."""
    h.topic("t")
    for state in ("MIRRORING", "STOPPING", "MIRRORING" if fault else "STOPPED"):
        h.mirror("mirror_state", state=state)
