"""What mutations work on: an example's values and their outcomes, its polls, and its logs to be changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TypeVar

from model.book import Row
from model.logs import MARKERS, Batch, Partition, Record, moved
from model.world import Cluster, World

T = TypeVar("T")
SURE = ("acked", "committed")


@dataclass(frozen=True)
class Fate:
    """One value: where it was sent, and how its send ended. outcome: acked, committed, aborted, failed, unknown.
    row: its row in the completion (None: there is none); offset: as acknowledged."""

    value: str
    cluster: str
    partition: int
    outcome: str
    process: str
    client: str
    txn: str | None
    row: Row | None

    @property
    def offset(self) -> int | None:
        """The acknowledged offset."""
        return None if self.row is None else self.row.get("offset")


@dataclass(frozen=True)
class Poll:
    """One completed poll and its records."""

    op: Row
    records: list[Row]


class Victim:
    """The example that a mutation changes, and the choice of where."""

    def __init__(self, world: World, rng: Random) -> None:
        self.w = world
        self.rng = rng
        self.tables = world.book.tables

    def pick(self, choices: list[T]) -> T | None:
        """One of them; None when there is none."""
        return self.rng.choice(choices) if choices else None

    # -- the history --------------------------------------------------------------------------------------------------

    @cached_property
    def ops(self) -> dict[int, Row]:
        """Index → event."""
        return {row["index"]: row for row in self.tables["ops"]}

    @cached_property
    def records(self) -> dict[int, list[Row]]:
        """Index of an event → its records in order."""
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self.tables["op_records"]:
            found[row["op_index"]].append(row)
        return found

    @cached_property
    def fates(self) -> dict[str, Fate]:
        """Value → outcome of its send."""
        ended = {
            op["txn"]: op["f"].removeprefix("txn_")
            for op in self.ops.values()
            if op["f"] in ("txn_commit", "txn_abort") and op["type"] == "ok"
        }
        found: dict[str, Fate] = {}
        for op in self.ops.values():
            if op["f"] in ("send", "txn"):
                for row in self.records[op["index"]]:
                    if row["action"] == "send":
                        found[row["value"]] = self._fate(op, row, ended)
        return found

    def _fate(self, op: Row, row: Row, ended: dict[str, str]) -> Fate:
        txn, done = op.get("txn"), op["type"] != "invoke"
        told = op["type"] == "ok" or (op["type"] == "info" and row.get("offset") is not None)
        if op["f"] == "txn":
            outcome = {"ok": "committed", "fail": "aborted"}.get(op["type"], "unknown")
        elif txn is not None and ended.get(txn) == "abort":
            outcome = "aborted"
        elif op["type"] == "fail":
            outcome = "failed"
        elif not told:
            outcome = "unknown"
        elif txn is None:
            outcome = "acked"
        else:
            outcome = "committed" if ended.get(txn) == "commit" else "unknown"
        place = (op["cluster"], row["partition"])
        return Fate(row["value"], *place, outcome, op["process"], op["client"], txn, row if done else None)

    def sure(self, cluster: str, *, transactional: bool | None = None) -> list[Fate]:
        """Values that this cluster acknowledged (or whose transaction it committed) with an offset."""
        found = [f for f in self.fates.values() if f.cluster == cluster and f.outcome in SURE and f.offset is not None]
        return [f for f in found if transactional is None or (f.txn is not None) == transactional]

    def polls(self, **columns: object) -> list[Poll]:
        """Successful polls with records, of events with these columns."""
        found = [
            Poll(op, self.records[op["index"]])
            for op in self.ops.values()
            if op["f"] == "poll" and op["type"] == "ok" and all(op.get(k) == v for k, v in columns.items())
        ]
        return [p for p in found if any(r["action"] == "poll" for r in p.records)]

    def remove_record(self, row: Row) -> None:
        """Remove one row from `op_records`."""
        self.tables["op_records"] = [r for r in self.tables["op_records"] if r is not row]

    def rows(self, table: str, **columns: object) -> list[Row]:
        """Rows of a table with these columns."""
        return [r for r in self.tables[table] if all(r.get(k) == v for k, v in columns.items())]

    # -- the logs -----------------------------------------------------------------------------------------------------

    def cluster(self, letter: str) -> Cluster:
        """A or B."""
        return self.w.a if letter == "A" else self.w.b

    def batches(
        self,
        letter: str,
        *,
        origin: str | None = None,
        transactional: bool | None = None,
        idempotent: bool | None = None,
    ) -> list[tuple[Partition, Batch]]:
        """Data batches of a cluster whose records were all acknowledged or committed, by the cluster that they were
        sent to."""
        found = []
        for part in self.cluster(letter).partitions:
            for b in part.log.batches:
                if b.control is not None or not b.records or b.base < part.start:
                    continue
                fates = [self.fates[r.value or ""] for r in b.records]
                fits = all(f.outcome in SURE for f in fates) and fates[0].cluster == (origin or letter)
                fits = fits and (transactional is None or b.transactional == transactional)
                if fits and (idempotent is None or (b.pid >= 0) == idempotent):
                    found.append((part, b))
        return found

    @staticmethod
    def inner(found: list[tuple[Partition, Batch]]) -> list[tuple[Partition, Batch]]:
        """Those that are not the last of their log, so that its end does not change when they are removed."""
        return [(part, b) for part, b in found if b.last < part.end - 1]

    def rewrite(self, part: Partition, change: Callable[[list[Batch]], list[Batch]]) -> None:
        """Change the log of every replica of a partition."""
        for replica in part.replicas.values():
            end = replica.end
            replica.batches = change(replica.batches)
            replica.empty_end = max(end, replica.start)
        part.hw = part.end
        self.cap_looks(part)

    def cap_looks(self, part: Partition) -> None:
        """Earlier snapshots of a log that is shorter now, or has a transaction open, are capped at its present ends."""
        letter = "A" if part in self.w.a.partitions else "B"
        for row in self.rows("log_ends", cluster=letter, partition=part.number):
            limits = {"log_end": part.end, "high_watermark": part.hw, "last_stable": part.lso}
            for column, most in limits.items():
                if row.get(column) is not None:
                    row[column] = max(row["log_start"], min(row[column], most))

    def drop(self, part: Partition, gone: Batch) -> None:
        """Remove a batch from a log."""
        self.rewrite(part, lambda log: [b for b in log if b.base != gone.base])

    def put(self, part: Partition, new: Batch) -> None:
        """Replace the batch that has this base offset."""
        self.rewrite(part, lambda log: [new if b.base == new.base else b for b in log])

    def add(self, part: Partition, b: Batch) -> Batch:
        """Append a batch to a log."""
        placed = moved(b, part.end, part.epoch)
        self.rewrite(part, lambda log: [*log, placed])
        return placed

    def everywhere(self, part: Partition, b: Batch) -> Iterator[tuple[Partition, Batch]]:
        """The batch of A, and the mirror's copy of it on B where it has one."""
        yield part, b
        there = self.w.b.partitions[part.number]
        for copy in there.log.batches:
            if copy.base == b.base and copy.crc == b.crc and there is not part:
                yield there, copy


def valued(b: Batch, values: list[str | None]) -> Batch:
    """The batch with other values."""
    records = tuple(Record(r.offset, r.key, v) for r, v in zip(b.records, values, strict=True))
    return replace(b, records=records).sealed()


def outcomes(part: Partition) -> Iterator[tuple[Batch, Batch | None]]:
    """Every transactional data batch and the marker that ends it."""
    batches = part.log.batches
    for i, b in enumerate(batches):
        if b.transactional and b.control is None:
            yield b, next((m for m in batches[i:] if m.control in MARKERS and m.pid == b.pid), None)
