"""Section 3: producer ids, epochs, sequences and transactions in the log."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from model.logs import MARKERS, Batch, Partition
from model.mutations.base import Stage, mutation
from model.mutations.mirrored import SHORT
from model.mutations.victim import Victim

STANDS = "the last stable offset does not advance after healing"


@mutation(
    "pid_collision",
    stage=Stage.LOGS,
    scenario="failover",
    producers=("idempotent", "idempotent"),
    reset_ids=False,
)
def give_out_a_mirrored_id(v: Victim) -> bool:
    """B assigns a local producer the producer id of a mirrored one."""
    local = v.batches("B", transactional=False, idempotent=True)
    for part, copy in v.batches("B", origin="A", transactional=False, idempotent=True):
        mine = [b for p, b in local if p is part]
        last = [b for b in part.log.batches if b.pid == copy.pid][-1]
        if mine and last.base < mine[0].base:
            b = mine[0]
            v.put(part, replace(b, pid=copy.pid, pepoch=copy.pepoch, seq=last.seq + last.last - last.base + 1).sealed())
            return True
    return False


@mutation(
    "pid_swallowed",
    stage=Stage.LOGS,
    scenario="failover",
    producers=("idempotent", "idempotent"),
    groups=0,
    share=False,
    may={
        "lost_write": "the write is not in the log",
        "ack_mismatch": "the acknowledged offset holds another record",
        "sequence_gap": "the swallowed batch's sequences are missing",
        "nonmonotonic_send": "the acknowledged offset is a mirrored record's, below earlier ones",
        "poll_skip": "readers were given the write before",
    },
)
def swallow_a_local_write(v: Victim) -> bool:
    """B takes a new write for a duplicate of a mirrored one, acknowledges that one's offset, and stores nothing."""
    copies = v.batches("B", origin="A", transactional=False, idempotent=True)
    for part, b in reversed(v.inner(v.batches("B", transactional=False, idempotent=True))):
        taken = [c for p, c in copies if p is part and len(c.records) >= len(b.records)]
        if taken:
            v.drop(part, b)
            for record, stored in zip(b.records, taken[0].records, strict=False):
                row = v.fates[record.value or ""].row
                assert row is not None
                row["offset"] = stored.offset
            return True
    return False


@mutation(
    "pid_negative",
    stage=Stage.LOGS,
    may={"offset_identity": "ids and checksums differ from A's"},
)
def negate_an_id(v: Victim) -> bool:
    """The mirror rewrites an idempotent producer's id to -(id + 2)."""
    found = v.pick(v.batches("B", origin="A", transactional=False, idempotent=True))
    if found is None:
        return False
    part, chosen = found
    pid = chosen.pid
    v.rewrite(part, lambda log: [replace(b, pid=-(pid + 2)).sealed() if b.pid == pid else b for b in log])
    return True


@mutation(
    "pid_negative",
    stage=Stage.LOGS,
    producers=("txn", "steps"),
    consumers=0,
    groups=0,
    may={
        "offset_identity": "ids and checksums differ from A's",
        "aborted_set": "brokers keep no state for negative ids, so aborted records are visible",
        "poll_skip": "readers were not given the records that are visible now",
    },
)
def negate_a_transactional_id(v: Victim) -> bool:
    """The mirror rewrites a transactional producer's id to -(id + 2), in data and in markers."""
    found = v.pick(v.batches("B", origin="A", transactional=True))
    if found is None:
        return False
    part, chosen = found
    pid = chosen.pid
    v.rewrite(part, lambda log: [replace(b, pid=-(pid + 2)).sealed() if b.pid == pid else b for b in log])
    return True


def _later(v: Victim, *, transactional: bool) -> tuple[Partition, Batch] | None:
    """A batch of A that is not the first of its producer id and epoch."""
    found = v.batches("A", transactional=transactional, idempotent=True)
    seen, later = set(), []
    for part, b in found:
        key = (part.number, b.pid, b.pepoch)
        if key in seen:
            later.append((part, b))
        seen.add(key)
    return v.pick(later)


@mutation("sequence_gap", stage=Stage.LOGS, producers=("idempotent", "idempotent"))
def skip_sequences(v: Victim) -> bool:
    """A producer's sequences skip ahead, on both clusters."""
    found = _later(v, transactional=False)
    if found is None:
        return False
    for part, b in list(v.everywhere(*found)):
        after = [x for x in part.log.batches if x.pid == b.pid and x.base >= b.base]
        for x in after:
            v.put(part, replace(x, seq=x.seq + 5).sealed())
    return True


@mutation("epoch_regressed", stage=Stage.LOGS, producers=("idempotent", "plain"))
def lower_a_producer_epoch(v: Victim) -> bool:
    """A producer's earlier batches have a higher epoch than its later ones, on both clusters."""
    found = _later(v, transactional=False)
    if found is None:
        return False
    part, chosen = found
    for p in (part, v.w.b.partitions[part.number]):
        earlier = [b for b in p.log.batches if b.pid == chosen.pid and b.base < chosen.base]
        for b in earlier:
            v.put(p, replace(b, pepoch=b.pepoch + 3).sealed())
    return True


@mutation("epoch_regressed", stage=Stage.LOGS, producers=("txn", "steps"))
def lower_a_coordinator_epoch(v: Victim) -> bool:
    """A marker has a lower coordinator epoch than the one before it, on both clusters."""
    for part in v.w.a.partitions:
        marks = [b for b in part.log.batches if b.control in MARKERS and b.base >= part.start]
        for one, two in pairwise(marks):
            if one.pid == two.pid:
                for p in (part, v.w.b.partitions[part.number]):
                    for b in [b for b in p.log.batches if b.base == one.base and b.control == one.control]:
                        v.put(p, replace(b, coordinator=(b.coordinator or 0) + 40).sealed())
                return True
    return False


@mutation(
    "late_write",
    stage=Stage.LOGS,
    producers=("steps", "steps"),
    scenario="steady",
    may={"lso_wrong": "the transaction hangs: no marker will ever end it"},
)
def let_a_stray_in(v: Victim) -> bool:
    """A delayed record of a fenced producer is appended after its transaction's marker, on both clusters."""
    for letter, number, stray in v.w.strays:
        part = v.cluster(letter).partitions[number]
        if any(b.pid == stray.pid and b.control in MARKERS for b in part.log.batches) and letter == "A":
            placed = v.add(part, stray)
            there = v.w.b.partitions[number]
            v.rewrite(there, lambda log, placed=placed: [*log, placed])
            return there.end == part.end
    return False


@mutation(
    "marker_missing",
    stage=Stage.LOGS,
    producers=("txn", "steps"),
    scenario="steady",
    consumers=0,
    groups=0,
    may={"stuck": STANDS, "copy_gone": SHORT, "share_group": "it was synced to the end with the marker"},
)
def lose_a_marker(v: Victim) -> bool:
    """The mirror skips the last transaction marker of a producer."""
    for part in v.rng.sample(v.w.b.partitions, len(v.w.b.partitions)):
        last: dict[int, Batch] = {b.pid: b for b in part.log.batches if b.transactional}
        single = [b for b in last.values() if b.control in MARKERS and _ends_something(part, b)]
        gone = v.pick([b for b in single if b.base > v.w.a.partitions[part.number].start])
        if gone is not None:
            v.drop(part, gone)
            return True
    return False


def _ends_something(part: Partition, mark: Batch) -> bool:
    """Whether the producer's batch before the marker is data."""
    own = [b for b in part.log.batches if b.pid == mark.pid and b.base < mark.base]
    return bool(own) and own[-1].control is None


@mutation(
    "lso_wrong",
    stage=Stage.TABLES,
    scenario="failover",
    on_stop="abort",
    producers=("txn", "steps"),
    may={
        "marker_missing": "no marker ends the transaction",
        "stop_cut": "it was open at the stop",
        "cross_partition": "it ended in other partitions",
        "group_skip": "its records are undecided, and the group passed them",
    },
)
def read_committed_beyond_an_open_transaction(v: Victim) -> bool:
    """A marker is missing on every replica of B, and yet the last stable offset is above it."""
    for part in v.w.b.partitions:
        last: dict[int, Batch] = {b.pid: b for b in part.log.batches if b.transactional}
        for mark in last.values():
            if mark.control in MARKERS and _ends_something(part, mark) and mark.last < part.end - 1:
                place = {"cluster": "B", "partition": part.number, "base_offset": mark.base}
                for table in ("batches", "records"):
                    v.tables[table] = [r for r in v.tables[table] if any(r[k] != x for k, x in place.items())]
                return True
    return False


def _flip(v: Victim, kind: str, to: str) -> bool:
    for part in v.rng.sample(v.w.b.partitions, len(v.w.b.partitions)):
        start = v.w.a.partitions[part.number].start
        copied = {b.pid for p, b in v.batches("B", origin="A", transactional=True) if p is part}
        copied |= {b.pid for b in part.log.batches if b.transactional} & {
            b.pid for b in v.w.a.partitions[part.number].log.batches
        }
        marks = [b for b in part.log.batches if b.control == kind and b.pid in copied and b.base > start]
        marks = [b for b in marks if _ends_something(part, b) and _held(part, b, start)]
        chosen = v.pick(marks)
        if chosen is not None and chosen.base < v.w.a.partitions[part.number].end:
            v.put(part, replace(chosen, control=to).sealed())
            return True
    return False


def _held(part: Partition, mark: Batch, start: int) -> bool:
    own = [b for b in part.log.batches if b.pid == mark.pid and b.base < mark.base]
    return own[-1].base >= start and bool(own[-1].records)


OTHER_MARKER = {"offset_identity": "A holds the other marker there"}


@mutation(
    "aborted_set",
    stage=Stage.LOGS,
    producers=("txn", "steps"),
    scenario="steady",
    may={**OTHER_MARKER, "aborted_read": "a read_committed final read of B returned it"},
)
def commit_what_was_aborted(v: Victim) -> bool:
    """An ABORT marker of A is a COMMIT marker on B."""
    return _flip(v, "ABORT", "COMMIT")


@mutation(
    "transaction_outcome",
    stage=Stage.LOGS,
    producers=("txn", "steps"),
    scenario="steady",
    may={
        **OTHER_MARKER,
        "poll_skip": "readers were given the records that are hidden now",
        "aborted_read": "a read_committed reader of B was given them",
    },
)
def abort_what_was_committed(v: Victim) -> bool:
    """A COMMIT marker of A is an ABORT marker on B."""
    return _flip(v, "COMMIT", "ABORT")
