"""A mirror like MirrorMaker 2: it produces records again, resumes where it last flushed, and translates offsets.

It promises less than Cluster Mirroring: records keep their order and all arrive, some of them twice. It reads
uncommitted data, so aborted records become plain records on B.
"""

from __future__ import annotations

from model.book import Row
from model.logs import Partition, batch, visible
from model.mirror import ClusterMirror
from model.syncs import Syncs
from model.trouble import fault
from model.world import IDLE, Actor, World


class Mm2(ClusterMirror):
    """One worker. position: next source offset of each partition; flushed: where a restarted worker begins; points:
    known pairs (source offset, destination offset) of records, in order."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.a, world.b)
        self.position = {p.number: p.start for p in world.a.partitions}
        self.flushed = dict(self.position)
        self.points: dict[int, list[tuple[int, int]]] = {n: [] for n in self.position}
        self.pid = world.b.new_pid()
        self.sequence: dict[int, int] = {}

    def fetch(self, number: int, *, most: int) -> None:
        """Read up to `most` records of one partition and write them as one batch."""
        self.carry(number, most, committed=False, pepoch=0)
        if self.w.chance(0.5):
            self.flushed[number] = self.position[number]

    def carry(self, number: int, most: int, *, committed: bool, **columns: object) -> bool:
        """Read up to `most` records (committed ones alone, or all) and write them as one batch with these columns;
        whether there were any. Records that have expired meanwhile are skipped and reported."""
        a, b = self.w.a.partitions[number], self.w.b.partitions[number]
        if a.start > self.position[number]:
            self.errors[number] = f"source log start {a.start} passed {self.position[number]}: a gap of expired records"
            self.look(number)
            self.position[number] = a.start
        limit = a.lso if committed else a.hw
        found = visible(a.log.batches, committed=committed, below=limit)
        due = [r for _, r in found if r.offset >= self.position[number]]
        chosen = due[:most]
        if chosen:
            seq = self.sequence.get(number, 0)
            self.sequence[number] = seq + len(chosen)
            own = {"pid": self.pid, "seq": seq, "time_ms": self.w.book.now_ms, **columns}
            placed = b.append(batch([(r.key, r.value) for r in chosen], **own))
            b.replicate()
            self.points[number] += [(chosen[0].offset, placed.base), (chosen[-1].offset, placed.last)]
        self.position[number] = chosen[-1].offset + 1 if len(due) > most else max(self.position[number], limit)
        return bool(chosen)

    def refresh(self) -> None:
        """Mirror the first record of every partition: the warm-up of a run waits for that."""
        for number, points in self.points.items():
            if not points:
                self.fetch(number, most=1)

    def restart(self) -> None:
        """The worker was killed: a new producer resumes where offsets were last flushed."""
        self.position = dict(self.flushed)
        self.pid, self.sequence = self.w.b.new_pid(), {}

    def look(self, number: int, *, event: str = "look", time_ns: int | None = None) -> Row:
        """The state as Kafka's own tools report it."""
        row = super().look(number, event=event, time_ns=time_ns)
        row["source_offset"] = self.position[number]
        if row["lag"] is not None:
            row["lag"] = max(0, self.w.a.partitions[number].hw - self.position[number])
        return row

    def _finish_committed(self, number: int) -> None:
        """Nothing to wait for: it does not know of transactions."""

    def _cut(self, part: Partition) -> int:
        return part.end

    def translate(self, number: int, offset: int) -> int | None:
        """An offset on B at or below every record that is not processed on A; None while no point below is known."""
        below = [(here, there) for here, there in self.points[number] if here < offset]
        return below[-1][1] + 1 if below else None


class Translations(Syncs):
    """Checkpoints: translated offsets of A's groups, synced to groups that have no members on B."""

    def __init__(self, world: World, mirror: Mm2) -> None:
        super().__init__(world)
        self.mirror = mirror
        self.told: dict[tuple[str, int], tuple[int, int]] = {}

    def groups(self) -> None:
        """One checkpoint for each group and partition that has moved, and a sync of it."""
        for (group, number), source in self.w.a.committed.items():
            offset = self.mirror.translate(number, source)
            before = self.told.get((group, number))
            if offset is None or (before is not None and (offset < before[0] or (offset, source) == before)):
                continue
            self.told[group, number] = (offset, source)
            part = self.w.b.partitions[number]
            place = {"cluster": "B", "group": group, "kind": "consumer", "topic": part.topic, "partition": number}
            place |= {"offset": offset, "source_offset": source}
            self.w.book.row("group_offsets", event="checkpoint", **place)
            if group not in self.active:
                self.w.b.committed[group, number] = offset
                self.w.book.row("group_offsets", event="sync", members=0, state="Empty", **place)


def restarts(world: World, mirror: Mm2) -> Actor:
    """The worker is killed and started again."""
    while True:
        yield IDLE
        if world.chance(0.15):
            number = world.number("fault")
            fault(world, number, "mm2-kill", "mirror", "mm2-0", "inject")
            mirror.restart()
            fault(world, number, "mm2-kill", "mirror", "mm2-0", "bit")
