"""Stories of copies that were truncated below their high watermark, whatever their mirror said, and of what was no
such thing: a real start over the log, a deleted topic, retention."""

from __future__ import annotations

from typing import Any

from jsonl_story import Lines
from told_mirrors import RESET, STRICT

__all__ = ["STRICT"]  # with the stories of all files

ENDS = tuple(f"end_offset_regressed/{form}" for form in ("log_end", "high_watermark", "last_stable"))
WHOLE = tuple((i, f"v{i}") for i in range(5))
LED = {"leader_epoch": 5}
"""Of snapshots: another story of the run has faults, so that ends are compared only under one leader epoch."""


def mirrored(h: Lines, *states: str, before: dict[str, Any] | None = None, **after: Any) -> None:
    """Five records on both clusters; B's copy is looked at before and after these states."""
    h.send("A", *(f"v{i}" for i in range(5)), at=0)
    h.mirror("mirror_state", state="MIRRORING")
    h.dump("B", *WHOLE, **{**LED, **(before or {})})
    for state in states:
        h.mirror("mirror_state", state=state)
    h.dump("B", *WHOLE[: after.pop("kept", 5)], **{**LED, **after})


def caught_up(h: Lines) -> None:
    """In the end both logs are equal again."""
    for cluster in "AB":
        h.dump(cluster, *WHOLE)


@STRICT.story(*ENDS, "copy_gone/seen")
def cut_to_zero_while_its_states_flicker(h: Lines, fault: bool) -> None:
    """M1: the copy is truncated to 0 and mirrored again, while the partition passes through FAILED, UNKNOWN and the
    states of a start without any start."""
    mirrored(h, "FAILED", "LOG_TRUNCATION", "UNKNOWN", "MIRRORING", kept=0 if fault else 5)
    caught_up(h)


@STRICT.story("end_offset_regressed/high_watermark", "copy_gone/seen")
def cut_under_a_new_leader_epoch(h: Lines, fault: bool) -> None:
    """The truncation comes with a new leader epoch, as an epoch fencing that fails and is tried again brings it."""
    new = {"leader_epoch": 7}
    mirrored(h, "FAILED", "EPOCH_FENCING", "MIRRORING", before={"leader_epoch": 5}, kept=2 if fault else 5, **new)
    caught_up(h)


@STRICT.story(*ENDS, "copy_gone/seen")
def cut_by_a_stop(h: Lines, fault: bool) -> None:
    """A design that aborts open transactions at the stop truncates nothing there."""
    mirrored(h, kept=5)
    h.mirror("mirror_stop")
    kept = 3 if fault else 5
    h.dump("B", *WHOLE[:kept], (kept, None, RESET), hw=4 if fault else 6, lso=4 if fault else 6, **LED)
    h.dump("A", *WHOLE)


@STRICT.story(*ENDS, "copy_gone/seen")
def cut_after_the_failback_was_over(h: Lines, fault: bool) -> None:
    """A failback truncates A to the cut; when it is MIRRORING, nothing does any more."""
    h.send("A", "a", "b", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("A", "old", "older", at=2)
    h.dump("A", (0, "a"), (1, "b"), (2, "old"), (3, "older"))
    h.send("B", "w", at=2, by="p2")
    both = ((0, "a"), (1, None, RESET), (2, "w", {"lepoch": 11}))
    h.mirror("mirror_state", cluster="A", state="PREPARING", error="offsets 1 to 3 of this log are discarded")
    h.dump("A", (0, "a"))
    h.mirror("mirror_state", cluster="A", state="MIRRORING", error="offsets 1 to 3 of this log are discarded")
    h.dump("A", *both, **LED)
    if fault:
        h.dump("A", (0, "a"), (1, None, RESET), **LED)
    for cluster in "AB":
        h.dump(cluster, *both)


@STRICT.story("copy_gone/described")
def less_than_the_mirror_described(h: Lines, fault: bool) -> None:
    """The mirror says that B's copy ends at 5; the next look at it, under the same leader, ends at 3."""
    h.send("A", *(f"v{i}" for i in range(5)), at=0)
    h.mirror("mirror_state", state="MIRRORING", destination_offset=0)
    h.dump("B", *WHOLE[:2], **LED)
    h.mirror("mirror_state", state="MIRRORING", destination_offset=5)
    h.dump("B", *WHOLE[: 3 if fault else 5], **LED)
    caught_up(h)


@STRICT.story("copy_gone/seen")
def less_than_was_read(h: Lines, fault: bool) -> None:
    """A consumer has read up to 4 on B: that was below the high watermark."""
    h.send("A", *(f"v{i}" for i in range(5)), at=0)
    h.mirror("mirror_state", state="MIRRORING")
    h.dump("B", *WHOLE[:2])
    h.poll("B", *((i, f"v{i}") for i in range(5)))
    h.dump("B", *WHOLE[: 3 if fault else 5])
    caught_up(h)


@STRICT.story("end_offset_regressed/out_of_range")
def position_gone_from_the_copy(h: Lines, fault: bool) -> None:
    """Consumers that had read to the end are told that their position is out of range; so is one whose records have
    expired."""
    h.send("A", *(f"v{i}" for i in range(5)), at=0)
    h.mirror("mirror_state", state="MIRRORING")
    start = 0 if fault else 5
    h.poll("B", *((i, f"v{i}") for i in range(5)))
    place = {"cluster": "B", "topic": h.topic("t"), "partition": 0, "value": []}
    h.line("c1", "fail", "poll", **place, error="OFFSET_OUT_OF_RANGE", position=3)
    for cluster in "AB":
        h.dump(cluster, *WHOLE[start:], log_start=start, leo=5)


@STRICT.story("end_offset_regressed/out_of_range")
def position_lost_between_two_assignments(h: Lines, fault: bool) -> None:
    """Without a group a consumer finds a new place itself: it is not a new assignment that explains the old one's
    end."""
    h.send("A", *(f"v{i}" for i in range(5)), at=0)
    h.mirror("mirror_state", state="MIRRORING")
    place = {"cluster": "B", "topic": h.topic("t"), "partition": 0}
    h.both("c1", "assign", **place, offset=0)
    h.poll("B", *((i, f"v{i}") for i in range(4)))
    h.both("c1", "assign", **place, offset=0, done={"error": "OFFSET_OUT_OF_RANGE"} if fault else {})
    h.poll("B", *((i, f"v{i}") for i in range(5)))
    caught_up(h)


@STRICT.story("end_offset_regressed/out_of_range")
def position_above_the_cut_of_a_failback(h: Lines, fault: bool) -> None:
    """A failback takes A's records above the cut from a consumer that had read them. It takes none after it."""
    h.send("A", "a", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("A", "old", at=1)
    h.send("B", "w", at=2, by="p2")
    h.poll("A", (0, "a"), (1, "old"))
    said = "offsets 1 to 1 of this log are discarded"
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "value": []}
    h.mirror("mirror_failback", cluster="A", error=said)
    if not fault:
        h.line("c1", "fail", "poll", **place, error="OFFSET_OUT_OF_RANGE", position=2)
    h.mirror("mirror_state", cluster="A", state="MIRRORING", error=said)
    h.poll("A", (0, "a"), (2, "w"), by="c2")
    if fault:
        h.line("c2", "fail", "poll", **place, error="OFFSET_OUT_OF_RANGE", position=3)
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, None, RESET), (2, "w", {"lepoch": 11}))
