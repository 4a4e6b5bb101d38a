"""Stories of round trips and restarts, after runs of the authors' own build of KIP-1279: cuts are a list per partition
and direction, a mirror reports by numbers what it discards, and a log that is being truncated proves nothing."""

from __future__ import annotations

from jsonl_story import Lines
from told_mirrors import COMMIT, RESET, STRICT, T1

__all__ = ["STRICT"]  # with the stories of all files

DISCARDED = "offsets 1 to 1 of this log are discarded, to mirror over them"
LATER = {**RESET, "lepoch": 21}


def failed_over(h: Lines) -> None:
    """`a` is mirrored, `old` is written to A above the cut, `w` to B."""
    h.send("A", "a", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("A", "old", at=1)
    h.send("B", "w", at=2, by="p2")


def started(h: Lines, cluster: str, error: str | None = None) -> None:
    """A mirror to this cluster, over the log that it has."""
    said = {} if error is None else {"error": error}
    for state in ("PREPARING", "MIRRORING"):
        h.mirror("mirror_state", cluster=cluster, state=state, **said)


@STRICT.story("lost_write/gone")
def lost_in_the_middle_of_a_round_trip(h: Lines, fault: bool) -> None:
    """A→B, B→A, A→B: what A acknowledges between the second turn and the third is above the first cut, and is no lag
    of the first turn. `old` is: the failback discarded it, and said so."""
    failed_over(h)
    started(h, "A", DISCARDED)
    h.mirror("mirror_stop", cluster="A", source_offset=3, destination_offset=3)
    h.send("A", "m", at=4, by="p3")
    started(h, "B")
    h.send("A", "n", at=4 if fault else 5, by="p4")
    rest = [(0, "a"), (1, None, RESET), (2, "w", {"lepoch": 11}), (3, None, LATER)]
    middle = ["n"] if fault else ["m", "n"]
    for cluster in "AB":
        h.dump(cluster, *rest, *((4 + i, v, {"lepoch": 21}) for i, v in enumerate(middle)))


@STRICT.story("failback/unreported")
def discarded_by_the_third_turn(h: Lines, fault: bool) -> None:
    """The mirror from A to B, started again, discards what B wrote after its mirror to A was stopped."""
    failed_over(h)
    started(h, "A", DISCARDED)
    h.mirror("mirror_stop", cluster="A", source_offset=3, destination_offset=3)
    h.send("B", "late", at=3, by="p2")
    started(h, "B", "log truncated" if fault else "offsets 3 to 3 of this log are discarded, to mirror over them")
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, None, RESET), (2, "w", {"lepoch": 11}), (3, None, LATER))


@STRICT.story("lost_write/gone", "ack_mismatch/overlaid", "failback/unreported")
def restarted_in_the_same_direction(h: Lines, fault: bool) -> None:
    """A stop, writes on B, and the same mirror again: writes on B below the cut are lost, those above it discarded."""
    h.send("A", "a", "b", at=0)
    h.dump("B", (0, "a"), (1, "b"))
    h.mirror("mirror_stop", source_offset=2, destination_offset=2)
    h.send("B", "below" if fault else "at", at=1 if fault else 2, by="p2")
    h.send("B", "above", at=3, by="p2")
    started(h, "B", "2 records were discarded" if not fault else "truncating from offset 4")
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, "b"))


@STRICT.story("failback/unreported")
def a_failure_is_no_report(h: Lines, fault: bool) -> None:
    """A text that says `truncat` names no writes: the number in it is an epoch."""
    failed_over(h)
    started(h, "A", "log truncation failed: no end offset for epoch 1" if fault else "truncated to offset 1")
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, None, RESET), (2, "w", {"lepoch": 11}))


@STRICT.story("failback/unreported")
def fewer_reported_than_discarded(h: Lines, fault: bool) -> None:
    """Two acknowledged writes are gone; the mirror speaks of one."""
    h.send("A", "a", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("A", "old", "older", at=1)
    started(h, "A", f"{1 if fault else 2} records above the cut at 1 were discarded")
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, None, RESET))


@STRICT.story("retention_gap")
def a_truncation_is_no_report_of_a_gap(h: Lines, fault: bool) -> None:
    """The mirror says something about a truncation, and nothing about what expired."""
    h.send("A", *(f"v{i}" for i in range(6)), at=0)
    h.dump("B", (0, "v0"), (1, "v1"))
    h.line("nemesis", "info", "retention", cluster="A", topic=h.topic("t"), partition=0, log_start=4)
    said = "log truncated to offset 2" if fault else "log start 4 is above the offset 2 to be fetched next"
    h.mirror("mirror_state", state="MIRRORING", error=said)
    h.dump("A", (4, "v4"), (5, "v5"), log_start=4)
    h.dump("B", (4, "v4"), (5, "v5"), log_start=4)


@STRICT.story("retention_gap")
def failed_for_a_moment_is_no_report(h: Lines, fault: bool) -> None:
    """A partition that was FAILED for another reason, and mirrors again, has skipped the gap silently."""
    h.send("A", *(f"v{i}" for i in range(6)), at=0)
    h.dump("B", (0, "v0"), (1, "v1"))
    h.line("nemesis", "info", "retention", cluster="A", topic=h.topic("t"), partition=0, log_start=4)
    h.mirror("mirror_state", state="MIRRORING")
    h.mirror("mirror_state", state="FAILED", error="Failed to get source metadata")
    if fault:
        h.mirror("mirror_state", state="MIRRORING")
    h.dump("A", (4, "v4"), (5, "v5"), log_start=4)
    after = [(4, "v4"), (5, "v5")] if fault else []
    h.dump("B", *after, log_start=4 if fault else 2, leo=6 if fault else 2)


@STRICT.story("lso_wrong")
def looked_at_between_the_takeover_and_mirroring(h: Lines, fault: bool) -> None:
    """A's old log is looked at under the epoch of the takeover, before it is truncated; what is mirrored over it keeps
    older epochs, and a transaction of B is then where A had plain records. The same look after MIRRORING is wrong."""
    h.send("A", "a", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("A", "o1", "o2", "o3", at=1)
    h.txn("B", "begin", "T1", by="p2")
    local = {**T1, "lepoch": 11}
    h.send("B", "x", at=2, by="p2", txn="T1", pid=7, epoch=0)
    h.send("B", "v", at=3, by="p3")
    h.txn("B", "commit", "T1", by="p2")
    said = "offsets 1 to 3 of this log are discarded, to mirror over them"
    h.mirror("mirror_state", cluster="A", state="PREPARING", error=said)
    look = {"leo": 4, "hw": 4, "lso": 4, "leader_epoch": 20}
    if fault:
        h.mirror("mirror_state", cluster="A", state="MIRRORING", error=said)
    h.dump("A", (0, "a"), (1, None, RESET), (2, "x", local), (3, "v", {"lepoch": 11}), **look) if fault else h.dump(
        "A", (0, "a"), (1, "o1"), (2, "o2"), (3, "o3"), **look
    )
    if not fault:
        h.mirror("mirror_state", cluster="A", state="MIRRORING", error=said)
    end = (4, None, {**COMMIT, "lepoch": 11})
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, None, RESET), (2, "x", local), (3, "v", {"lepoch": 11}), end)


@STRICT.story("unseen")
def restarted_without_a_recorded_cut(h: Lines, fault: bool) -> None:
    """What B wrote before the same mirror was started again is gone: without a recorded cut nobody knows whether it was
    lost or discarded."""
    h.send("A", "a", "b", at=0)
    h.dump("B", (0, "a"), (1, "b"))
    cut = {} if fault else {"source_offset": 2, "destination_offset": 2}
    h.mirror("mirror_stop", **cut)
    h.send("B", "w", at=2, by="p2")
    started(h, "B", "offsets 2 to 2 of this log are discarded")
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, "b"))
