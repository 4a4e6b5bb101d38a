"""The mirror in the other direction: A's log is truncated to where the mirror to B ended, and follows B from there."""

from __future__ import annotations

from copy import copy

from model.logs import Partition
from model.mirror import ClusterMirror
from model.world import World

GHOST = 100


class Failback(ClusterMirror):
    """The mirror from B to A, after a failover."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.b, world.a)
        self.left = 1 << 30

    def begin(self) -> None:
        """Truncate every partition of A, report what was discarded, and begin to mirror."""
        op = self._ask("mirror_failback")
        for number in self.states:
            self.move(number, "PREPARING", "start")
        for part in self.w.a.partitions:
            self.w.book.tick()
            self._lead(part)
            self._discard(part)
            self.move(part.number, "MIRRORING", "start")
        self._answer("mirror_failback", op)

    def _lead(self, part: Partition) -> None:
        """The mirror leads the partition, under a higher epoch than any before on either cluster."""
        part.replicate()
        ghost = copy(part.log)
        ghost.batches = list(part.log.batches)
        part.replicas[GHOST] = ghost
        part.isr.add(GHOST)
        part.epoch = max(part.epoch, self.w.b.partitions[part.number].epoch)
        part.elect(GHOST)
        part.ghost = GHOST

    def _discard(self, part: Partition) -> None:
        cut = self.w.cuts[part.number]
        gone = [r for b in part.log.batches if b.base >= cut for r in b.records]
        if part.start > cut:  # everything that A still holds is above the cut
            part.restart_at(cut)
        part.truncate(cut)
        part.replicate()
        if gone:
            self.errors[part.number] = f"discarded {len(gone)} records above the cut {cut}"
            self.look(part.number)
