"""Consumers: assigned ones that read everything, group members that commit, share groups, and the final reads."""

from __future__ import annotations

from model.book import Row
from model.logs import Partition, visible
from model.world import BUSY, IDLE, Actor, Cluster, World


def poll_rows(part: Partition, position: int, most: int, *, committed: bool) -> tuple[list[Row], int]:
    """Up to `most` records from a position, and the position after them, beyond markers and gaps."""
    limit = part.lso if committed else part.hw
    found: list[Row] = []
    after = limit
    for b, r in visible(part.log.batches, committed=committed, below=limit):
        if r.offset < position:
            continue
        if len(found) == most:
            after = r.offset
            break
        place = {"action": "poll", "topic": part.topic, "partition": part.number, "offset": r.offset}
        found.append({**place, "value": r.value, "key": r.key, "leader_epoch": b.epoch})
    return found, max(position, after)


class Reader:
    """One process that polls partitions that it assigns itself."""

    f_assign = "assign"

    def __init__(self, world: World, cluster: Cluster, *, committed: bool, group: str | None = None) -> None:
        self.w = world
        self.cluster = cluster
        self.committed = committed
        self.group = group
        self.process = world.process("c")
        self.client = ""
        self.positions: dict[int, int] = {}
        self.stopped = False

    @property
    def columns(self) -> Row:
        """The columns of each of its operations."""
        isolation = "read_committed" if self.committed else "read_uncommitted"
        return {"cluster": self.cluster.letter, "client": self.client, "isolation": isolation, "group": self.group}

    def open(self, places: dict[int, int]) -> None:
        """Open a new client that reads from these offsets on."""
        self.client = self.w.client(self.cluster.letter, "consumer")
        self.assign(places)

    def assign(self, places: dict[int, int]) -> None:
        """Read from other offsets on."""
        rows = [
            {"action": "assign", "topic": self.cluster.topic, "partition": p, "offset": o} for p, o in places.items()
        ]
        self.w.book.operation(self.process, self.f_assign, rows, **self.columns)
        self.positions.update(places)

    def starts(self) -> dict[int, int]:
        """The log start of every partition."""
        return {p.number: p.start for p in self.cluster.partitions}

    def run(self) -> Actor:
        """Read until stopped."""
        self.open(self.starts())
        while not self.stopped:
            yield IDLE
            if self.w.chance(0.08):
                self.w.book.operation(self.process, "crash", error="_FENCED", **self.columns)
                self.open(dict(self.positions))
            yield from self.poll()

    def poll(self) -> Actor:
        """One poll; it may fail, or find its position expired. Most polls that would return nothing are left out."""
        if self._at_the_end() and self.w.chance(0.85):
            return
        op = self.w.book.event(self.process, "invoke", "poll", **self.columns)
        yield BUSY
        if self.w.chance(0.05):
            self.w.book.event(self.process, "fail", "poll", invoke_index=op, error="_TRANSPORT", **self.columns)
            return
        rows, lost = self._fetch()
        self.w.book.event(self.process, "ok", "poll", rows, invoke_index=op, **self.columns)
        if lost:  # below the log start: retention was faster
            self.assign({p.number: p.start for p in lost})

    def _at_the_end(self) -> bool:
        ends = {p.number: p.lso if self.committed else p.hw for p in self.cluster.partitions}
        return all(p.start <= self.positions.get(p.number, -1) == ends[p.number] for p in self.cluster.partitions)

    def _fetch(self) -> tuple[list[Row], list[Partition]]:
        rows: list[Row] = []
        lost = [p for p in self.cluster.partitions if self.positions.get(p.number, p.start) < p.start]
        for part in self.cluster.partitions:
            if part.number in self.positions and part not in lost and self.w.chance(0.9):
                most = self.w.rng.randint(1, 6)
                found, after = poll_rows(part, self.positions[part.number], most, committed=self.committed)
                rows += found
                self.positions[part.number] = after
        return rows, lost


class Member(Reader):
    """The only member of a consumer group: begins at the committed offsets, and commits what it has processed."""

    f_assign = "assign"

    def open(self, places: dict[int, int]) -> None:
        """Join, fetch the committed offsets, and begin there, or at the log start where there is none."""
        assert self.group is not None
        self.client = self.w.client(self.cluster.letter, "consumer")
        self.w.book.operation(self.process, "subscribe", **self.columns)
        here = {}
        for part in self.cluster.partitions:
            offset = self.cluster.committed.get((self.group, part.number))
            here[part.number] = part.start if offset is None else offset
            row = {"action": "fetch", "topic": part.topic, "partition": part.number}
            invoke = self.w.book.event(self.process, "invoke", "fetch_offset", [row], **self.columns)
            fetched = [{**row, "offset": offset}]
            self.w.book.event(self.process, "ok", "fetch_offset", fetched, invoke_index=invoke, **self.columns)
        self.assign(here)

    def poll(self) -> Actor:
        """Poll, then mostly commit."""
        yield from super().poll()
        if self.positions and self.w.chance(0.8):
            yield from self._commit(self.w.rng.choice(sorted(self.positions)))

    def _commit(self, partition: int) -> Actor:
        assert self.group is not None
        position = self.positions[partition]
        row = {"action": "commit", "topic": self.cluster.topic, "partition": partition, "offset": position}
        row["processed"] = position - 1
        op = self.w.book.event(self.process, "invoke", "commit_offset", [row], **self.columns)
        yield BUSY
        end = self.w.rng.choices(("ok", "fail", "info"), (8, 1, 1))[0]
        if end == "ok" or (end == "info" and self.w.chance(0.5)):
            self.cluster.committed[self.group, partition] = position
        error = {"ok": None, "fail": "ILLEGAL_GENERATION", "info": "_TIMED_OUT"}[end]
        self.w.book.event(self.process, end, "commit_offset", [row], invoke_index=op, error=error, **self.columns)


class ShareMember(Reader):
    """A member of a share group: records that it was given move the group's start offset, which the cluster keeps."""

    def run(self) -> Actor:
        """Read until stopped."""
        assert self.group is not None
        self.client = self.w.client(self.cluster.letter, "share")
        while not self.stopped:
            yield IDLE
            for part in self.cluster.partitions:
                key = (self.group, part.number)
                self.positions[part.number] = max(self.cluster.share_starts.get(key, part.start), part.start)
            yield from self.poll()
            for number, position in self.positions.items():
                self.cluster.share_starts[self.group, number] = position


def read_to_the_end(world: World, cluster: Cluster) -> None:
    """Fresh clients read every partition at both isolation levels, and record how far they came."""
    for committed in (False, True):
        reader = Reader(world, cluster, committed=committed)
        reader.process = world.process("f")
        reader.open(reader.starts())
        for part in cluster.partitions:
            rows, _ = poll_rows(part, part.start, 1 << 30, committed=committed)
            world.book.operation(reader.process, "poll", [], **reader.columns) if not rows else _returned(
                world, reader, rows
            )
            position = part.lso if committed else part.hw
            world.book.row(
                "final_reads",
                cluster=cluster.letter,
                topic=part.topic,
                partition=part.number,
                isolation=reader.columns["isolation"],
                start_offset=part.start,
                target_offset=part.hw,
                position=position,
                complete=position >= part.hw,
            )


def _returned(world: World, reader: Reader, rows: list[Row]) -> None:
    op = world.book.event(reader.process, "invoke", "poll", **reader.columns)
    world.book.event(reader.process, "ok", "poll", rows, invoke_index=op, **reader.columns)
