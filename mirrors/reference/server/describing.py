"""The status of each mirrored partition, as rows. Lag is reported only when the source answers with its log end.

The destination's offsets are read before the source is asked, so that lag 0 means: everything that the source had when
it was asked is on every in-sync replica of the destination. Without an answer from the source there is no lag.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from harness.wire.frames import WireError
from mirrors.reference.server.epochs import OffsetShifts
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.reading import LATEST
from mirrors.reference.server.source import SourceLink
from mirrors.reference.server.states import PartitionState

_LOG = logging.getLogger(__name__)
_ASK_S: Final = 2.0

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class MirrorRow:
    """One partition of one mirror. Offsets are log ends; None when they are not known.

    source_offset: the next source offset to be mirrored, for a stopped partition the recorded cut; destination_offset
    the same on the destination. carried: the source offset below which every in-sync replica has everything. step: the
    last finished named step of the life cycle. owner: broker id of the process that has it.
    """

    mirror: str
    topic: str
    partition: int
    state: str
    source_offset: int | None
    destination_offset: int | None
    carried: int | None
    lag: int | None
    error: str
    step: str
    owner: int
    last_mirrored: int
    last_mirrored_epoch: int
    stopped_at_ms: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Position:
    """Offsets of one partition on the destination. high_watermark: what every in-sync replica has."""

    log_end: int
    high_watermark: int
    source_log_end: int
    source_high_watermark: int


def row(record: PartitionRecord, position: Position | None, source_end: int | None) -> MirrorRow:
    """One row. position: None when this process does not lead it. source_end: None when the source does not answer."""
    stopped = record.state is PartitionState.STOPPED
    if stopped and record.last_mirrored >= 0:
        destination: int | None = record.last_mirrored
        source: int | None = OffsetShifts(record.shifts).source(record.last_mirrored)
    else:
        destination = None if position is None else position.log_end
        source = None if position is None else position.source_log_end
    known = position is not None and source_end is not None and not stopped
    lag = max(0, source_end - position.source_high_watermark) if known and position and source_end is not None else None
    return MirrorRow(
        mirror=record.key.mirror,
        topic=record.key.topic,
        partition=record.key.partition,
        state=str(record.state),
        source_offset=source,
        destination_offset=destination,
        carried=source if stopped or position is None else position.source_high_watermark,
        lag=lag,
        error=record.error,
        step=record.step,
        owner=record.owner,
        last_mirrored=record.last_mirrored,
        last_mirrored_epoch=record.last_mirrored_epoch,
        stopped_at_ms=record.stopped_at_ms,
    )


class Describing:
    """Rows of the partitions that this process has."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._life = lifecycle

    async def rows(self, mirror: str) -> list[MirrorRow]:
        """All partitions of a mirror that this process owns, in order."""
        life = self._life
        records = [r for k, r in sorted(life.records.items()) if k.mirror == mirror and r.owner == life.hub.me]
        positions = {record.key: self._position(record.key) for record in records}
        link = life.links.get(mirror)
        led = [(key.topic, key.partition) for key, position in positions.items() if position is not None]
        ends = {} if link is None else await source_ends(link, led)
        return [row(r, positions[r.key], ends.get((r.key.topic, r.key.partition))) for r in records]

    def _position(self, key: PartitionKey) -> Position | None:
        mirrored = self._life.mirrored(key)
        if mirrored is None or mirrored.led.high_watermark is None:
            return None
        led = mirrored.led
        high = mirrored.led.high_watermark
        return Position(
            log_end=led.log_end,
            high_watermark=high,
            source_log_end=led.shifts.source(led.log_end),
            source_high_watermark=led.shifts.source(high),
        )


async def source_ends(link: SourceLink, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The source's current high watermarks of the partitions whose leader answers in time."""
    by_leader: dict[int, list[tuple[TopicPartition, int]]] = {}
    for topic, partition in partitions:
        meta = link.topics.get(topic)
        found = None if meta is None else meta.partitions.get(partition)
        if found is not None and found.leader is not None:
            by_leader.setdefault(found.leader, []).append(((topic, partition), found.leader_epoch))
    answers = await asyncio.gather(*(_ends_at(link, broker, parts) for broker, parts in by_leader.items()))
    return {key: end for answer in answers for key, end in answer.items()}


async def _ends_at(
    link: SourceLink, broker: int, parts: Sequence[tuple[TopicPartition, int]]
) -> dict[TopicPartition, int]:
    by_topic: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
    for (topic, partition), epoch in parts:
        by_topic.setdefault(topic, []).append(
            list_offsets.ListOffsetsPartition(
                partition_index=i32(partition), current_leader_epoch=i32(epoch), timestamp=i64(LATEST)
            )
        )
    request = list_offsets.ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=tuple(
            list_offsets.ListOffsetsTopic(name=TopicName(t), partitions=tuple(p)) for t, p in by_topic.items()
        ),
    )
    try:
        answer = await link.cluster.call_broker(broker, request, timeout_s=_ASK_S)
    except WireError as error:
        _LOG.info("log ends of the source: %s", error)
        return {}
    return {
        (str(topic.name), int(part.partition_index)): int(part.offset)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code is ErrorCode.none
    }
