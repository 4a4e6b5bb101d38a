"""Replicated logs: batches, replicas, leaders with epochs, high watermark, last stable offset, gaps.

A partition is correct by construction: elections are clean, followers truncate to their leader, no offset is reused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

MARKERS = ("COMMIT", "ABORT")


@dataclass(frozen=True)
class Record:
    """One record of a batch: its offset and what the client gave."""

    offset: int
    key: str | None
    value: str | None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch as a log holds it. After compaction `records` may hold fewer than `base` to `last` spans."""

    base: int
    last: int
    records: tuple[Record, ...]
    epoch: int = 0
    pid: int = -1
    pepoch: int = -1
    seq: int = -1
    transactional: bool = False
    control: str | None = None
    coordinator: int | None = None
    time_ms: int = 0
    crc: int = 0

    @property
    def checksum(self) -> int:
        """The CRC: it covers everything but base offset and leader epoch."""
        body = [(r.offset - self.base, r.key, r.value) for r in self.records]
        covered = (self.last - self.base, body, self.pid, self.pepoch, self.seq, self.transactional, self.control)
        return zlib.crc32(repr((covered, self.coordinator, self.time_ms)).encode())

    def sealed(self) -> Batch:
        """The batch with its CRC."""
        return replace(self, crc=self.checksum)


def batch(values: Sequence[tuple[str | None, str | None]], **columns: object) -> Batch:
    """A batch of (key, value) pairs that is in no log yet: offsets from 0."""
    records = tuple(Record(i, key, value) for i, (key, value) in enumerate(values))
    return Batch(base=0, last=len(records) - 1, records=records, **columns)  # type: ignore[arg-type]


def marker(kind: str, *, pid: int, pepoch: int, coordinator: int, time_ms: int) -> Batch:
    """A control batch: COMMIT, ABORT or PID_RESET."""
    control = kind in MARKERS
    return batch(
        [(None, None)],
        pid=pid,
        pepoch=pepoch,
        transactional=control,
        control=kind,
        coordinator=coordinator if control else None,
        time_ms=time_ms,
    )


def moved(b: Batch, base: int, epoch: int) -> Batch:
    """The batch at another offset, under another leader epoch."""
    shift = base - b.base
    records = tuple(replace(r, offset=r.offset + shift) for r in b.records)
    return replace(b, base=base, last=b.last + shift, records=records, epoch=epoch).sealed()


@dataclass
class Replica:
    """One broker's copy of a partition."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    empty_end: int = 0

    @property
    def end(self) -> int:
        """Log end offset."""
        return self.batches[-1].last + 1 if self.batches else max(self.start, self.empty_end)

    def truncate(self, offset: int) -> None:
        """Truncate to `offset`, which is the base of a batch."""
        self.batches = [b for b in self.batches if b.last < offset]
        self.empty_end = max(offset, self.start) if not self.batches else 0

    def expire(self, offset: int) -> None:
        """Move the log start forward and delete batches that are wholly below it."""
        end = self.end
        self.start = max(self.start, offset)
        self.batches = [b for b in self.batches if b.last >= self.start]
        self.empty_end = max(end, self.start)


def open_transactions(batches: Sequence[Batch]) -> dict[int, Batch]:
    """Producer id → the first batch of its transaction that no marker ends."""
    found: dict[int, Batch] = {}
    for b in batches:
        if b.control in MARKERS:
            found.pop(b.pid, None)
        elif b.transactional:
            found.setdefault(b.pid, b)
    return found


def visible(batches: Sequence[Batch], *, committed: bool, below: int) -> Iterator[tuple[Batch, Record]]:
    """Data records below an offset, without aborted ones for a read_committed reader."""
    outcome: dict[int, str | None] = {}
    ends: dict[int, str | None] = {}
    for b in reversed(batches):
        if b.control in MARKERS:
            outcome[b.pid] = b.control
        elif b.transactional:
            ends[b.base] = outcome.get(b.pid)
    for b in batches:
        if b.control is not None or (committed and b.transactional and ends[b.base] == "ABORT"):
            continue
        yield from ((b, r) for r in b.records if r.offset < below)


class Partition:
    """One partition of one topic of one cluster.

    `leader` may be a broker without a stored log (`ghost`): a mirror that leads its followers. strays: broker that was
    down while the topic was recreated → topic id of the log that it still holds, which is an earlier topic's.
    """

    def __init__(self, topic: str, number: int, brokers: Sequence[int], *, base: int = 0, ghost: int | None = None):
        self.topic = topic
        self.topic_id = f"id of {topic}"
        self.strays: dict[int, str] = {}
        self.number = number
        self.ghost = ghost
        self.replicas = {b: Replica(start=base, empty_end=base) for b in ([ghost] if ghost else []) + list(brokers)}
        self.leader = ghost or brokers[0]
        self.epoch = 0
        self.isr = set(self.replicas)
        self.down: set[int] = set()
        self.dropped: list[Batch] = []
        self.hw = base

    @property
    def log(self) -> Replica:
        """The leader's copy."""
        return self.replicas[self.leader]

    @property
    def start(self) -> int:
        """Log start offset."""
        return self.log.start

    @property
    def end(self) -> int:
        """Log end offset."""
        return self.log.end

    @property
    def lso(self) -> int:
        """Last stable offset: not above the high watermark nor the first open transaction below it."""
        open_ = open_transactions(self.log.batches).values()
        return min([self.hw, *(b.base for b in open_)])

    def append(self, b: Batch) -> Batch:
        """Append at the leader, under its epoch; only the leader has the batch yet."""
        placed = moved(b, self.end, self.epoch)
        self.log.batches.append(placed)
        return placed

    def copy_in(self, b: Batch, epoch: int) -> None:
        """Append a batch of another log at the offset that it has there."""
        assert b.base >= self.end, "a copy may leave a gap, never lie below the end"
        self.log.batches.append(replace(b, epoch=epoch))

    def replicate(self) -> None:
        """Every in-sync follower catches up to its leader's log end; the high watermark advances."""
        for broker in self.isr - {self.leader}:
            self._follow(broker)
        self.hw = max(self.hw, min(self.replicas[b].end for b in self.isr))

    def holds(self, b: Batch) -> bool:
        """Whether no election has discarded this batch."""
        return not any(b is dropped for dropped in self.dropped)

    def _follow(self, broker: int) -> None:
        follower, leader = self.replicas[broker], self.log
        follower.batches = list(leader.batches)
        follower.start, follower.empty_end = leader.start, leader.empty_end

    def elect(self, broker: int) -> None:
        """Another in-sync replica leads; the others truncate what it does not have."""
        assert broker in self.isr, "only in-sync replicas are elected"
        self.dropped += [b for b in self.log.batches if b.base >= self.replicas[broker].end]
        self.leader = broker
        self.epoch += 1
        self.replicate()

    def elect_unclean(self, broker: int) -> None:
        """A replica leads that is not in sync: what it does not have is lost, acknowledged or not."""
        self.dropped += [b for b in self.log.batches if b.base >= self.replicas[broker].end]
        self.leader = broker
        self.epoch += 1
        self.down.clear()
        self.isr = set(self.replicas)
        self.hw = min(self.hw, self.end)
        self.replicate()

    def leave(self, broker: int) -> None:
        """A broker dies: it leaves the ISR, and another leads if it led."""
        self.down.add(broker)
        self.isr.discard(broker)
        if self.leader == broker:
            self.elect(min(self.isr))
        self.replicate()

    def rejoin(self, broker: int) -> None:
        """The broker comes back, truncates to its leader, catches up and is in sync again."""
        self.down.discard(broker)
        self._follow(broker)
        self.isr.add(broker)
        self.replicate()

    def truncate(self, offset: int) -> None:
        """The leader truncates its log, and the followers theirs."""
        self.log.truncate(offset)
        for broker in self.isr - {self.leader}:
            self._follow(broker)
        self.hw = min(self.hw, self.end)

    def expire(self, offset: int) -> None:
        """Retention: the log start moves forward on every live replica, to the high watermark at most."""
        for broker in self.isr:
            self.replicas[broker].expire(min(offset, self.hw))

    def restart_at(self, offset: int) -> None:
        """All replicas restart at an offset beyond their end, as followers do when their leader's log starts there."""
        for replica in self.replicas.values():
            replica.batches, replica.start, replica.empty_end = [], offset, offset
        self.hw = offset

    def compact(self, *, below: int | None = None) -> None:
        """Compact each live replica by itself: the last record of each key (below an offset, where one is given) and
        the newest batch stay."""
        for broker in self.isr:
            replica = self.replicas[broker]
            replica.batches = compacted(replica.batches, below=self.lso if below is None else min(below, self.lso))


def compacted(batches: list[Batch], *, below: int) -> list[Batch]:
    """The log after a cleaner's pass below an offset: it removes decided records that a later one of their key
    supersedes, aborted ones, and batches that are then empty, except the last of their producer."""
    kept_values = {r.offset for _, r in visible(batches, committed=True, below=1 << 62)}
    newest = {r.key: r.offset for _, r in visible(batches, committed=True, below=below) if r.key is not None}
    last_of = {b.pid: b.base for b in batches if b.control is None}
    cleaned: list[Batch] = []
    for b in batches[:-1]:
        if b.control is not None or b.last >= below:
            cleaned.append(b)
            continue
        stay = tuple(r for r in b.records if r.offset in kept_values and newest.get(r.key, r.offset) == r.offset)
        if stay or (b.pid >= 0 and last_of[b.pid] == b.base):
            cleaned.append(b if stay == b.records else replace(b, records=stay).sealed())
    return cleaned + batches[-1:]
