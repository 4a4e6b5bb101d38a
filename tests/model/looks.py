"""Snapshots of both clusters and the mirror, at times that all examples share; and the logs captured at the end."""

from __future__ import annotations

import zlib

from model.book import SECOND, Row
from model.logs import MARKERS, Batch, Partition
from model.mirror import ClusterMirror
from model.world import Cluster, World

MOMENTS = (12, 24, 36, 46, 54, 63)
LAST = 82
LOAD_LOOK, FINAL_LOOK = 0, 1


class Observer:
    """Takes the snapshots that are due."""

    def __init__(self, world: World, mirror: ClusterMirror | None) -> None:
        self.w = world
        self.mirror = mirror
        self.due = [m * SECOND for m in MOMENTS]

    def until(self, now: int) -> None:
        """Take every snapshot that is due by this time. Nothing has happened since the last event, so they show the
        present state."""
        while self.due and self.due[0] <= now:
            self.look(self.due.pop(0), LOAD_LOOK)

    def look(self, time_ns: int, look: int) -> None:
        """Log ends, group offsets, access rules and configurations of both clusters, and the mirror's states."""
        for part in self.w.recreated.current.partitions if self.w.recreated else ():
            self._ends(self.w.recreated.current, part, look, time_ns)
        for cluster in (self.w.a, self.w.b):
            for part in cluster.partitions:
                self._ends(cluster, part, look, time_ns)
            self._groups(cluster, time_ns)
            if self.w.plan.access:
                self._access(cluster, look, time_ns)
            self._policy(cluster, look, time_ns)
        for mirror in (self.mirror, self.w.failback):
            for number in mirror.states if mirror is not None else ():
                mirror.look(number, time_ns=time_ns)

    def _ends(self, cluster: Cluster, part: Partition, look: int, time_ns: int) -> None:
        place = {"cluster": cluster.letter, "topic": part.topic, "partition": part.number, "look": look}
        whole = {"leader": part.leader, "isr": sorted(part.isr), "replicas": sorted(part.replicas), "time_ns": time_ns}
        own = {"log_start": part.start, "log_end": part.end, "high_watermark": part.hw, "last_stable": part.lso}
        row = self.w.book.row
        row("log_ends", **place, **whole, broker=part.leader, leader_epoch=part.epoch, **own)
        for broker in sorted(part.replicas.keys() - {part.leader}) if look == FINAL_LOOK else ():
            replica = part.replicas[broker]
            row("log_ends", **place, **whole, broker=broker, log_start=replica.start, log_end=replica.end)

    def _groups(self, cluster: Cluster, time_ns: int) -> None:
        for kind, offsets in (("consumer", cluster.committed), ("share", cluster.share_starts)):
            for (group, number), offset in offsets.items():
                place = {"cluster": cluster.letter, "topic": cluster.topic, "partition": number, "time_ns": time_ns}
                self.w.book.row("group_offsets", **place, group=group, kind=kind, event="look", offset=offset)

    def _access(self, cluster: Cluster, look: int, time_ns: int) -> None:
        place = {"cluster": cluster.letter, "look": look, "event": "look", "time_ns": time_ns}
        for binding in sorted(cluster.acls) or [None]:
            self.w.book.row("acls", **place, binding=binding)
        for name, value in sorted(cluster.configs.items()):
            self.w.book.row("configs", **place, topic=cluster.topic, name=name, value=value)

    def _policy(self, cluster: Cluster, look: int, time_ns: int) -> None:
        if self.w.plan.compacted:
            place = {"cluster": cluster.letter, "look": look, "event": "look", "time_ns": time_ns}
            self.w.book.row("configs", **place, topic=cluster.topic, name="cleanup.policy", value="compact")

    def evidence(self) -> None:
        """The last snapshot, and the log of every replica."""
        self.w.book.now = LAST * SECOND
        self.look(self.w.book.now, FINAL_LOOK)
        for cluster in self.w.clusters:
            for part in cluster.partitions:
                for broker, replica in sorted(part.replicas.items()):
                    for b in replica.batches if broker != part.ghost else ():
                        self._batch(cluster, part, broker, b)

    def _batch(self, cluster: Cluster, part: Partition, broker: int, b: Batch) -> None:
        place: Row = {"cluster": cluster.letter, "broker": broker, "look": FINAL_LOOK}
        place |= {"topic": part.topic, "partition": part.number}
        producer: Row = {"producer_id": b.pid, "producer_epoch": b.pepoch, "transactional": b.transactional}
        control: Row = {"control_type": b.control, "leader_epoch": b.epoch}
        columns: Row = {"base_offset": b.base, "last_offset": b.last, "base_sequence": b.seq, "crc": b.crc}
        columns |= {"crc_ok": True, "records_count": len(b.records), "control": b.control is not None}
        columns |= {
            "coordinator_epoch": b.coordinator,
            "timestamp": b.time_ms,
            "topic_id": part.strays.get(broker, part.topic_id),
        }
        columns |= {"compression": "none", "size": 61 + sum(len(r.value or "") for r in b.records)}
        self.w.book.row("batches", **place, **producer, **control, **columns)
        for r in b.records:
            hashed = None if b.control in MARKERS else hash_of(r.key, r.value)
            sequence = b.seq + r.offset - b.base if b.seq >= 0 else -1
            own: Row = {"offset": r.offset, "key": r.key, "value": r.value, "value_hash": hashed}
            own |= {"timestamp": b.time_ms, "base_offset": b.base, "sequence": sequence}
            self.w.book.row("records", **place, **producer, **control, **own)


def hash_of(key: str | None, value: str | None) -> int:
    """A hash of key and value that is the same in every Python process."""
    return zlib.crc32(f"{key}\t{value}".encode())
