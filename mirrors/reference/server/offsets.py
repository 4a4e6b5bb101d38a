"""Answers ListOffsets: from what this process knows itself, otherwise from followers, which have logs.

A client may ask for a thousand partitions at once: every follower is asked once for all that it is to answer.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17 import request as fetch
from kio.schema.list_offsets.v7 import request as offsets
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.wire.frames import WireError
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.reading import EARLIEST, LATEST

EARLIEST_LOCAL = -4

_DEBUGGING_REPLICA: Final = -2  # a follower answers ListOffsets of this replica id
_ZERO: Final = i32Timedelta.parse(datetime.timedelta())
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """An offset, and the time (ms) of the record there where a time was asked for."""

    error: ErrorCode = ErrorCode.none
    offset: int = -1
    time: int = -1


_UNKNOWN: Final = Found(ErrorCode.leader_not_available)


class Offsets:
    """read_replica: partition → the follower that may answer for it, -1 for nobody."""

    def __init__(self, hub: Hub, read_replica: Callable[[LedPartition], int]) -> None:
        self._hub = hub
        self._read_replica = read_replica

    async def find(
        self, asked: Mapping[LedPartition, int], *, by_replica: bool, committed: bool
    ) -> Mapping[LedPartition, Found]:
        """asked: partition → timestamp, or one of Kafka's negative ones. by_replica: another replica asks.

        committed: LATEST is the last stable offset. Partitions that nobody can answer for now get
        `leader_not_available`.
        """
        found: dict[LedPartition, Found] = {}
        for led, timestamp in asked.items():
            if led.high_watermark is None:
                found[led] = _UNKNOWN
            elif timestamp in (EARLIEST, EARLIEST_LOCAL):
                found[led] = Found(offset=led.log_start)
            elif by_replica:
                found[led] = Found(offset=led.log_end)
            elif timestamp == LATEST and not committed:
                found[led] = Found(offset=led.high_watermark)
        followers: dict[int, dict[LedPartition, int]] = defaultdict(dict)
        for led in asked.keys() - found.keys():
            followers[self._read_replica(led)][led] = asked[led]
        for answers in await asyncio.gather(*(self._ask(broker, part) for broker, part in followers.items())):
            found |= answers
        return found

    async def _ask(self, broker: int, asked: Mapping[LedPartition, int]) -> Mapping[LedPartition, Found]:
        """One follower's answers."""
        stable = [led for led, timestamp in asked.items() if timestamp == LATEST]
        timed = {led: timestamp for led, timestamp in asked.items() if timestamp != LATEST}
        found = dict.fromkeys(asked, _UNKNOWN)
        try:
            if stable:
                found |= await self._last_stable(broker, stable)
            if timed:
                found |= await self._by_time(broker, timed)
        except WireError as error:
            _LOG.info("offsets of %d partitions from follower %d: %s", len(asked), broker, error)
        return found

    async def _last_stable(self, broker: int, asked: Sequence[LedPartition]) -> Mapping[LedPartition, Found]:
        """The last stable offsets as a follower has them: consumers may fetch there."""
        topics: dict[uuid.UUID, list[fetch.FetchPartition]] = defaultdict(list)
        for led in asked:
            topics[led.topic_id].append(
                fetch.FetchPartition(
                    partition=i32(led.partition), fetch_offset=i64(led.high_watermark or 0), partition_max_bytes=i32(1)
                )
            )
        request = fetch.FetchRequest(
            max_wait=_ZERO,
            min_bytes=i32(0),
            max_bytes=i32(1),
            isolation_level=i8(1),
            topics=tuple(fetch.FetchTopic(topic_id=one, partitions=tuple(parts)) for one, parts in topics.items()),
            forgotten_topics_data=(),
        )
        answer = await self._hub.destination.call_broker(broker, request)
        by_key = {(led.topic_id, led.partition): led for led in asked}
        return {
            one: Found(offset=int(part.last_stable_offset))
            for topic in answer.responses
            for part in topic.partitions
            if (one := by_key.get((topic.topic_id, int(part.partition_index)))) and part.error_code is ErrorCode.none
        }

    async def _by_time(self, broker: int, asked: Mapping[LedPartition, int]) -> Mapping[LedPartition, Found]:
        topics: dict[str, list[offsets.ListOffsetsPartition]] = defaultdict(list)
        for led, timestamp in asked.items():
            topics[led.topic].append(
                offsets.ListOffsetsPartition(partition_index=i32(led.partition), timestamp=i64(timestamp))
            )
        request = offsets.ListOffsetsRequest(
            replica_id=BrokerId(_DEBUGGING_REPLICA),
            isolation_level=i8(0),
            topics=tuple(offsets.ListOffsetsTopic(name=TopicName(t), partitions=tuple(p)) for t, p in topics.items()),
        )
        answer = await self._hub.destination.call_broker(broker, request)
        by_key = {(led.topic, led.partition): led for led in asked}
        return {
            one: Found(part.error_code, int(part.offset), int(part.timestamp))
            for topic in answer.topics
            for part in topic.partitions
            if (one := by_key.get((str(topic.name), int(part.partition_index))))
        }
