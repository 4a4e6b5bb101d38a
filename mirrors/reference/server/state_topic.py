"""A compacted topic of the destination that the mirror writes to and reads by Produce and Fetch requests of its own.

Writes are acknowledged by all in-sync replicas and retried, with a time limit: writing a record twice does no harm.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Mapping
from typing import Final

from kio.records.readers import read_batch
from kio.schema.errors import ErrorCode
from kio.schema.produce.v11 import request as produce
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta

from harness.core.errors import MirrorError
from harness.wire.batch_headers import headers
from harness.wire.batches import build
from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from harness.wire.metadata import Metadata
from mirrors.reference.server.destination import create_topic
from mirrors.reference.server.fencing import FencedError, RetriableError
from mirrors.reference.server.reading import EARLIEST, LATEST, listed_offset, read
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

TOPIC: Final = "__mirror_state"

_CONFIGS: Final = {"cleanup.policy": "compact", "min.insync.replicas": "1", "segment.bytes": "16777216"}
_TIMEOUT: Final = i32Timedelta.parse(datetime.timedelta(seconds=5))
_FETCH_BYTES: Final = 8 * 1024 * 1024
_TRIES: Final = 40
_RETRY_S: Final = 0.25

Pairs = list[tuple[bytes, bytes | None]]


class StateTopic:
    """See the module. One event loop. partitions: how many it is created with."""

    def __init__(self, cluster: Cluster, *, partitions: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._meta: Metadata | None = None
        self.written: dict[int, int] = {}  # partition → records written, for the metrics

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

    async def exists(self) -> bool:
        """Whether the topic is there. Raises WireError."""
        self._meta = await self._cluster.metadata((TOPIC,))
        return TOPIC in self._meta.topics

    @property
    def count(self) -> int:
        """How many partitions it has."""
        assert self._meta is not None, "prepare() comes first"
        return len(self._meta.topics[TOPIC].partitions)

    async def read(self) -> dict[bytes, bytes | None]:
        """The last value of every key, of all partitions, up to their current high watermarks. Raises WireError."""
        assert self._meta is not None
        values: dict[bytes, bytes | None] = {}
        for partition in sorted(self._meta.topics[TOPIC].partitions):
            values.update(await self._read(partition))
        return values

    async def write(self, by_partition: Mapping[int, Pairs]) -> None:
        """Write (key, value) pairs, None to delete a key. Raises RetriableError when that is not acknowledged."""
        left = dict(by_partition)
        last = "no leader"
        for _ in range(_TRIES):
            try:
                left, last = await self._write(left)
            except FencedError as error:
                raise RetriableError(str(error)) from error
            except WireError as error:
                last = str(error)
            if not left:
                return
            await asyncio.sleep(_RETRY_S)
            try:
                self._meta = await self._cluster.metadata((TOPIC,))
            except WireError as error:
                last = str(error)
        raise RetriableError(f"writing state to {TOPIC} of the destination failed: {last}")

    async def _write(self, by_partition: Mapping[int, Pairs]) -> tuple[dict[int, Pairs], str]:
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
        position = await self._offset(leader, partition, EARLIEST)
        end = await self._offset(leader, partition, LATEST)
        values: dict[bytes, bytes | None] = {}
        while position < end:
            found = await read(
                self._cluster,
                leader,
                topic_id=meta.topic_id,
                partition=partition,
                offset=position,
                max_bytes=_FETCH_BYTES,
            )
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
        found = await listed_offset(self._cluster, leader, TOPIC, partition, which)
        if found.error_code is not ErrorCode.none:
            raise WireError(found.error_code.name)
        return int(found.offset)


def _produce(values: Mapping[int, Pairs]) -> produce.ProduceRequest:
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
