"""MirrorMaker 2 with exactly-once source support: one transaction on B commits records and its positions in A.

A killed worker leaves its transaction open; its successor fences it, so that B ends it with ABORT, and writes the same
records again. It reads A at read_committed, so nothing that was aborted on A is copied to B.
"""

from __future__ import annotations

from model.book import Row
from model.logs import marker
from model.mm2 import Mm2
from model.world import World


class ExactlyOnce(Mm2):
    """One worker. under_way: partitions of B in its open transaction; told: the committed points."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pepoch = 0
        self.under_way: set[int] = set()
        self.told = {n: list(points) for n, points in self.points.items()}

    def fetch(self, number: int, *, most: int) -> None:
        """Read up to `most` committed records of one partition, write them as one batch, and maybe commit."""
        if self.carry(number, most, committed=True, pepoch=self.pepoch, transactional=True):
            self.under_way.add(number)
        if most > 3 or self.w.chance(0.5):
            self.end("COMMIT")

    def end(self, kind: str) -> None:
        """End the open transaction on every partition that it wrote to. An abort returns to the committed positions."""
        if self.w.plan.tv2 or kind == "ABORT":
            self.pepoch += 1
        for number in sorted(self.under_way):
            part = self.w.b.partitions[number]
            part.append(marker(kind, pid=self.pid, pepoch=self.pepoch, coordinator=0, time_ms=self.w.book.now_ms))
            part.replicate()
        if self.w.plan.tv2 or kind == "ABORT":
            self.sequence = {}
        if kind == "COMMIT":
            self.flushed = dict(self.position)
            self.told = {n: list(points) for n, points in self.points.items()}
        else:
            self.position = dict(self.flushed)
            self.points = {n: list(points) for n, points in self.told.items()}
        self.under_way = set()

    def restart(self) -> None:
        """The worker was killed: its successor fences it and resumes where the last transaction ended."""
        self.end("ABORT")

    def stop(self) -> None:
        """It shuts down cleanly, or is killed."""
        self.end("COMMIT" if self.w.chance(0.5) else "ABORT")
        super().stop()

    def refresh(self) -> None:
        """Copy the first record of every partition, and commit."""
        super().refresh()
        self.end("COMMIT")

    def look(self, number: int, *, event: str = "look", time_ns: int | None = None) -> Row:
        """The state that is visible outside: the committed one."""
        ahead, self.position = self.position, self.flushed
        row = super().look(number, event=event, time_ns=time_ns)
        self.position = ahead
        return row

    def translate(self, number: int, offset: int) -> int | None:
        """As Mm2, by committed points only."""
        below = [(here, there) for here, there in self.told[number] if here < offset]
        return below[-1][1] + 1 if below else None
