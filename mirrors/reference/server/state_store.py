"""The mirrors' state on the destination itself: a compacted topic of partition records.

A record's key is always (mirror, topic ID, partition, fencing token); the switch `state_key` decides which of the
topic's partitions it goes to. Of several tokens the highest counts (see fencing); the others' keys are deleted together
with the new owner's first write. Writes are acknowledged by all in-sync replicas and retried, with a time limit:
writing a record twice does no harm.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from crc32c import crc32c
from kio.records.readers import read_batch
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.produce.v11 import request as produce
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from harness.core.errors import MirrorError
from harness.wire.batch_headers import headers
from harness.wire.batches import build
from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from harness.wire.metadata import Metadata
from mirrors.reference.server.design import StateKey
from mirrors.reference.server.destination import create_topic
from mirrors.reference.server.fencing import FencedError, newest
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord

_LOG = logging.getLogger(__name__)

TOPIC: Final = "__mirror_state"
FIRST_MIRROR_ID: Final = 100  # broker ids from here on are mirror processes: they hold no log

_CONFIGS: Final = {"cleanup.policy": "compact", "min.insync.replicas": "1", "segment.bytes": "16777216"}
_TIMEOUT: Final = i32Timedelta.parse(datetime.timedelta(seconds=5))
_NO_WAIT: Final = i32Timedelta.parse(datetime.timedelta())
_FETCH_BYTES: Final = 8 * 1024 * 1024
_TRIES: Final = 40
_RETRY_S: Final = 0.25

_SPREAD: Final[Mapping[StateKey, Callable[[PartitionRecord], str]]] = {
    StateKey.MIRROR_TOPIC_PARTITION: lambda r: f"{r.key.mirror}/{r.topic_id}/{r.key.partition}",
    StateKey.MIRROR: lambda r: r.key.mirror,
}


class StateStore:
    """See the module. One event loop."""

    def __init__(self, cluster: Cluster, *, partitions: int, key: StateKey) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._spread = _SPREAD[key]
        self._meta: Metadata | None = None
        self._notes: dict[str, dict[str, Any]] = {}
        self._fences: dict[PartitionKey, int] = {}  # the fencing token that a record was last written with
        self.written: dict[int, int] = {}  # partition of the state topic → records written, for the metrics

    async def prepare(self) -> None:
        """Create the topic on the real brokers unless it exists. Raises WireError or MirrorError."""
        found = await self._cluster.metadata()
        if TOPIC not in found.topics:
            real = sorted(b for b in found.brokers if b < FIRST_MIRROR_ID)
            if not real:
                raise MirrorError("the destination has no broker for the state topic")
            copies = min(3, len(real))
            placed = {p: [real[(p + n) % len(real)] for n in range(copies)] for p in range(self._partitions)}
            await create_topic(self._cluster, TOPIC, placed, _CONFIGS)
        for _ in range(_TRIES):
            self._meta = await self._cluster.metadata((TOPIC,))
            topic = self._meta.topics.get(TOPIC)
            if topic is not None and topic.partitions and all(p.leader is not None for p in topic.partitions.values()):
                return
            await asyncio.sleep(_RETRY_S)
        raise MirrorError(f"topic {TOPIC} of the destination has partitions without a leader")

    async def load(self) -> tuple[dict[PartitionKey, PartitionRecord], dict[str, MirrorConfig]]:
        """Everything that is stored: partition records and mirrors. Raises WireError or MirrorError."""
        await self.prepare()
        return await self._read_all()

    async def read_records(self) -> dict[PartitionKey, PartitionRecord]:
        """Read the partition records of another cluster's mirrors; creates nothing. Raises WireError."""
        self._meta = await self._cluster.metadata((TOPIC,))
        return (await self._read_all())[0] if TOPIC in self._meta.topics else {}

    async def _read_all(self) -> tuple[dict[PartitionKey, PartitionRecord], dict[str, MirrorConfig]]:
        assert self._meta is not None
        values: dict[bytes, bytes | None] = {}
        for partition in sorted(self._meta.topics[TOPIC].partitions):
            values.update(await self._read(partition))
        records: dict[PartitionKey, PartitionRecord] = {}
        mirrors: dict[str, MirrorConfig] = {}
        for key, value in values.items():
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
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for record in records:
            target = crc32c(self._spread(record).encode()) % self._count
            pairs = by_partition.setdefault(target, [])
            pairs.append((_key_of(record, record.fence), record.to_bytes()))
            pairs.extend((_key_of(record, fence), None) for fence in self._superseded(record))
        await self._write_all(by_partition)
        self._fences.update((record.key, record.fence) for record in records)

    def _superseded(self, record: PartitionRecord) -> Iterable[int]:
        """Tokens of former owners whose records are deleted together with the first write under a higher one."""
        return range(record.fence) if self._fences.get(record.key, 0) < record.fence else ()

    async def delete(self, records: Iterable[PartitionRecord]) -> None:
        """Forget partition records. Raises MirrorError."""
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for record in records:
            target = crc32c(self._spread(record).encode()) % self._count
            keys = [_key_of(record, fence) for fence in range(record.fence + 1)]
            by_partition.setdefault(target, []).extend((key, None) for key in keys)
        await self._write_all(by_partition)

    async def put_note(self, kind: str, name: str, value: Any) -> None:
        """Store a JSON value of another part of the mirror, under (kind, name); None deletes it. Raises MirrorError."""
        key = json.dumps([kind, name]).encode()
        stored = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        await self._write_all({crc32c(key) % self._count: [(key, stored)]})
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
        await self._write_all({crc32c(key) % self._count: [(key, value)]})

    @property
    def _count(self) -> int:
        assert self._meta is not None, "prepare() comes first"
        return len(self._meta.topics[TOPIC].partitions)

    async def _write_all(self, by_partition: Mapping[int, list[tuple[bytes, bytes | None]]]) -> None:
        left = dict(by_partition)
        last = "no leader"
        for _ in range(_TRIES):
            try:
                left, last = await self._write(left)
            except FencedError as error:
                raise MirrorError(str(error)) from error
            except WireError as error:
                last = str(error)
            if not left:
                return
            await asyncio.sleep(_RETRY_S)
            try:
                self._meta = await self._cluster.metadata((TOPIC,))
            except WireError as error:
                last = str(error)
        raise MirrorError(f"writing state to {TOPIC} of the destination failed: {last}")

    async def _write(
        self, by_partition: Mapping[int, list[tuple[bytes, bytes | None]]]
    ) -> tuple[dict[int, list[tuple[bytes, bytes | None]]], str]:
        """Returns what is not stored yet, and why."""
        assert self._meta is not None
        by_leader: dict[int | None, list[int]] = {}
        for partition in by_partition:
            found = self._meta.partition(TOPIC, partition)
            by_leader.setdefault(None if found is None else found.leader, []).append(partition)
        left, why = {}, ""
        for leader, partitions in by_leader.items():
            if leader is None:
                left.update({p: by_partition[p] for p in partitions})
                continue
            request = _produce({p: by_partition[p] for p in partitions})
            answer = await self._cluster.call_broker(leader, request, timeout_s=7)
            for part in answer.responses[0].partition_responses:
                index = int(part.index)
                if part.error_code is ErrorCode.none:
                    self.written[index] = self.written.get(index, 0) + len(by_partition[index])
                else:
                    left[index], why = by_partition[index], part.error_code.name
        return left, why

    async def _read(self, partition: int) -> dict[bytes, bytes | None]:
        """The last value of every key in one partition, up to its current high watermark."""
        for attempt in range(_TRIES):
            try:
                return await self._read_once(partition)
            except WireError as error:
                if attempt == _TRIES - 1:
                    raise
                _LOG.info("reading %s-%d: %s", TOPIC, partition, error)
                await asyncio.sleep(_RETRY_S)
                self._meta = await self._cluster.metadata((TOPIC,))
        raise AssertionError("unreachable")

    async def _read_once(self, partition: int) -> dict[bytes, bytes | None]:
        assert self._meta is not None
        meta = self._meta.topics[TOPIC]
        leader = meta.partitions[partition].leader
        if leader is None:
            raise WireError(f"{TOPIC}-{partition} has no leader")
        position = await self._offset(leader, partition, -2)
        end = await self._offset(leader, partition, -1)
        values: dict[bytes, bytes | None] = {}
        while position < end:
            part = fetch.FetchPartition(
                partition=i32(partition), fetch_offset=i64(position), partition_max_bytes=i32(_FETCH_BYTES)
            )
            request = fetch.FetchRequest(
                replica_id=BrokerId(-1),
                max_wait=_NO_WAIT,
                min_bytes=i32(0),
                topics=(fetch.FetchTopic(topic_id=meta.topic_id, partitions=(part,)),),
                forgotten_topics_data=(),
            )
            found = (await self._cluster.call_broker(leader, request)).responses[0].partitions[0]
            if found.error_code is not ErrorCode.none:
                raise WireError(found.error_code.name)
            data = bytes(found.records or b"")
            before = position
            for batch in headers(data):
                for record in read_batch(data, batch.position)[0].records:
                    if record.key is not None:
                        values[record.key] = record.value
                position = max(position, batch.next_offset)
            if position == before:
                raise WireError(f"nothing can be read at offset {position}")
        return values

    async def _offset(self, leader: int, partition: int, which: int) -> int:
        part = list_offsets.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(which))
        request = list_offsets.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(list_offsets.ListOffsetsTopic(name=TopicName(TOPIC), partitions=(part,)),),
        )
        found = (await self._cluster.call_broker(leader, request)).topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise WireError(found.error_code.name)
        return int(found.offset)


def _key_of(record: PartitionRecord, fence: int) -> bytes:
    identity = [record.key.mirror, str(record.topic_id), record.key.partition, fence]
    return json.dumps(["partition", *identity]).encode()


def _produce(values: Mapping[int, list[tuple[bytes, bytes | None]]]) -> produce.ProduceRequest:
    now = int(time.time() * 1000)
    return produce.ProduceRequest(
        transactional_id=None,
        acks=i16(-1),
        timeout=_TIMEOUT,
        topic_data=(
            produce.TopicProduceData(
                name=TopicName(TOPIC),
                partition_data=tuple(
                    produce.PartitionProduceData(index=i32(p), records=Records(build(pairs, timestamp_ms=now)))
                    for p, pairs in values.items()
                ),
            ),
        ),
    )
