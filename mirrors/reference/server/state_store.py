"""The mirrors' state on the destination itself: partition records, mirrors and notes in a compacted topic.

A record's key is always (mirror, topic ID, partition, fencing token); the switch `state_key` decides which of the
topic's partitions it goes to. Of several tokens the highest counts (see fencing); the others' keys are deleted together
with the new owner's first write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from crc32c import crc32c

from harness.wire.cluster import Cluster
from mirrors.reference.server.design import StateKey
from mirrors.reference.server.fencing import newest
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.state_topic import Pairs, StateTopic

_SPREAD: Final[Mapping[StateKey, Callable[[PartitionRecord], str]]] = {
    StateKey.MIRROR_TOPIC_PARTITION: lambda r: f"{r.key.mirror}/{r.topic_id}/{r.key.partition}",
    StateKey.MIRROR: lambda r: r.key.mirror,
}


class StateStore:
    """See the module. One event loop."""

    def __init__(self, cluster: Cluster, *, partitions: int, key: StateKey) -> None:
        self._topic = StateTopic(cluster, partitions=partitions)
        self._spread = _SPREAD[key]
        self._notes: dict[str, dict[str, Any]] = {}
        self._fences: dict[PartitionKey, int] = {}  # the fencing token that a record was last written with

    @property
    def written(self) -> Mapping[int, int]:
        """Partition of the state topic → records written, for the metrics."""
        return self._topic.written

    async def prepare(self) -> None:
        """Create the state topic unless it exists. Raises WireError or MirrorError."""
        await self._topic.prepare()

    async def load(self) -> tuple[dict[PartitionKey, PartitionRecord], dict[str, MirrorConfig]]:
        """Everything that is stored: partition records and mirrors. Raises WireError or MirrorError."""
        await self.prepare()
        return await self._read_all()

    async def read_records(self) -> dict[PartitionKey, PartitionRecord]:
        """Read the partition records of another cluster's mirrors; creates nothing. Raises WireError."""
        return (await self._read_all())[0] if await self._topic.exists() else {}

    async def _read_all(self) -> tuple[dict[PartitionKey, PartitionRecord], dict[str, MirrorConfig]]:
        records: dict[PartitionKey, PartitionRecord] = {}
        mirrors: dict[str, MirrorConfig] = {}
        for key, value in (await self._topic.read()).items():
            kind, *name = json.loads(key)
            if value is None:
                if kind not in ("mirror", "partition"):
                    self._remember(kind, name[0], None)
            elif kind == "mirror":
                config = MirrorConfig.from_json(json.loads(value))
                mirrors[config.name] = config
            elif kind != "partition":
                self._remember(kind, name[0], json.loads(value))
            else:
                record = PartitionRecord.from_bytes(value)
                records[record.key] = newest(records.get(record.key), record)
        return records, mirrors

    async def put(self, records: Sequence[PartitionRecord]) -> None:
        """Store partition records. Raises MirrorError when they are not acknowledged in time."""
        by_partition: dict[int, Pairs] = {}
        for record in records:
            target = crc32c(self._spread(record).encode()) % self._topic.count
            pairs = by_partition.setdefault(target, [])
            pairs.append((_key_of(record, record.fence), record.to_bytes()))
            pairs.extend((_key_of(record, fence), None) for fence in self._superseded(record))
        await self._topic.write(by_partition)
        self._fences.update((record.key, record.fence) for record in records)

    def _superseded(self, record: PartitionRecord) -> Iterable[int]:
        """Tokens of former owners whose records are deleted together with the first write under a higher one."""
        return range(record.fence) if self._fences.get(record.key, 0) < record.fence else ()

    async def delete(self, records: Iterable[PartitionRecord]) -> None:
        """Forget partition records. Raises MirrorError."""
        by_partition: dict[int, Pairs] = {}
        for record in records:
            target = crc32c(self._spread(record).encode()) % self._topic.count
            keys = [_key_of(record, fence) for fence in range(record.fence + 1)]
            by_partition.setdefault(target, []).extend((key, None) for key in keys)
        await self._topic.write(by_partition)

    async def put_note(self, kind: str, name: str, value: Any) -> None:
        """Store a JSON value of another part of the mirror, under (kind, name); None deletes it. Raises MirrorError."""
        key = json.dumps([kind, name]).encode()
        stored = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        await self._topic.write({crc32c(key) % self._topic.count: [(key, stored)]})
        self._remember(kind, name, value)

    def notes(self, kind: str) -> dict[str, Any]:
        """Name → value of the notes of a kind, as loaded and put since."""
        return dict(self._notes.get(kind, {}))

    def _remember(self, kind: str, name: str, value: Any) -> None:
        known = self._notes.setdefault(kind, {})
        if value is None:
            known.pop(name, None)
        else:
            known[name] = value

    async def put_mirror(self, config: MirrorConfig, *, deleted: bool = False) -> None:
        """Store a mirror, or its deletion. Raises MirrorError."""
        key = json.dumps(["mirror", config.name]).encode()
        value = None if deleted else json.dumps(config.to_json()).encode()
        await self._topic.write({crc32c(key) % self._topic.count: [(key, value)]})


def _key_of(record: PartitionRecord, fence: int) -> bytes:
    identity = [record.key.mirror, str(record.topic_id), record.key.partition, fence]
    return json.dumps(["partition", *identity]).encode()
