"""Fetching from the source on behalf of one follower's session: one long poll per source broker, fetched ahead.

A poll asks for every partition of the session that the broker leads, from behind what was fetched already, so that
idle partitions share one request. Bytes held for a follower are bounded by `budget`; beyond it no poll is sent until
the follower has taken some. A poll's answer is stamped (see stamping) and put at the cursors it was sent for.

What the source refuses is not decided here: `Hub.source_refused`, `Hub.source_diverged`.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.mirrors.reference.cursors import Cursor, Session
from harness.mirrors.reference.epochs import UNKNOWN
from harness.mirrors.reference.partition import Feed
from harness.mirrors.reference.source import Mirrored, SourceLink
from harness.mirrors.reference.stamping import stamp
from harness.wire.frames import WireError

if TYPE_CHECKING:
    from harness.mirrors.reference.hub import Hub

_LOG = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_GRACE_S: Final = 4.0  # beyond the poll's own wait, before the connection counts as dead
_IDLE_S: Final = 0.1  # between looks for something to ask while nothing wakes the feeder
_RETRY_S: Final = 0.2
_PARTITION_BYTES: Final = 1024 * 1024
_STALE: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.offset_not_available,
        ErrorCode.kafka_storage_error,
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a poll, as it stood when the poll was sent."""

    cursor: Cursor
    mirrored: Mirrored
    offset: int
    generation: int
    epoch: int
    leader_epoch: int


class Feeder:
    """Keeps one follower's session supplied until it is cancelled."""

    def __init__(self, session: Session, hub: Hub, *, budget: int) -> None:
        self._session = session
        self._hub = hub
        self._budget = budget
        self._busy: dict[tuple[SourceLink, int], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll every source broker that has something for this session."""
        try:
            while True:
                self._session.wants.clear()
                for key, asked in self._wanted().items():
                    self._busy[key] = asyncio.create_task(self._poll(*key, asked))
                try:
                    async with asyncio.timeout(_IDLE_S):
                        await self._session.wants.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._busy.values():
                task.cancel()

    def _wanted(self) -> dict[tuple[SourceLink, int], list[Asked]]:
        wanted: dict[tuple[SourceLink, int], list[Asked]] = {}
        if self._session.held >= self._budget:
            return wanted
        now = self._hub.clock()
        for cursor in self._session.cursors.values():
            led = cursor.partition
            if led is None or not led.leading or led.feed is not Feed.SOURCE or cursor.next_offset < 0:
                continue
            if cursor.not_before > now:
                continue
            if led.limit is not None and cursor.next_offset >= led.limit:
                continue
            mirrored = self._hub.mirrored_of(led)
            if mirrored is None or mirrored.trouble is not None or led.high_watermark is None:
                continue
            leader = mirrored.link.leader(led.topic, led.partition)
            if leader is None or (mirrored.link, leader[0]) in self._busy:
                continue
            wanted.setdefault((mirrored.link, leader[0]), []).append(
                Asked(cursor, mirrored, cursor.next_offset, cursor.generation, leader[1], led.leader_epoch)
            )
        return wanted

    async def _poll(self, link: SourceLink, broker: int, asked: Sequence[Asked]) -> None:
        try:
            connection = await link.cluster.broker(broker, f"fetch-{self._session.session_id}")
            request = _request(asked, isolation=self._hub.isolation, max_bytes=self._budget - self._session.held)
            answer = await connection.call(request, timeout_s=_POLL_S + _GRACE_S)
            await self._take(link, asked, answer)
        except WireError as error:
            _LOG.info("mirror %s: fetch from broker %d: %s", link.mirror, broker, error)
            for one in asked:
                link.distrust(one.mirrored.led.topic, one.mirrored.led.partition)
            await asyncio.sleep(_RETRY_S)
        except Exception:
            _LOG.exception("mirror %s: fetch from broker %d", link.mirror, broker)
            await asyncio.sleep(_RETRY_S)
        finally:
            self._busy.pop((link, broker), None)
            self._session.wants.set()

    async def _take(self, link: SourceLink, asked: Sequence[Asked], answer: Any) -> None:
        by_key = {(one.mirrored.source_topic_id, one.mirrored.led.partition): one for one in asked}
        troubled = answer.error_code is not ErrorCode.none
        for topic in answer.responses:
            for part in topic.partitions:
                one = by_key.get((topic.topic_id, int(part.partition_index)))
                if one is not None:
                    troubled = await self._take_partition(link, one, part) or troubled
        if troubled:
            await asyncio.sleep(_RETRY_S)

    async def _take_partition(self, link: SourceLink, one: Asked, part: Any) -> bool:
        """Returns whether the source refused it, so that the next poll should wait a little."""
        led, mirrored = one.mirrored.led, one.mirrored
        error = part.error_code
        if error is ErrorCode.offset_out_of_range:
            self._hub.source_refused(mirrored, one.offset)
            return True
        if error is not ErrorCode.none:
            if error not in _STALE:
                _LOG.warning("mirror %s: %s at the source: %s", link.mirror, mirrored.name, error.name)
            link.distrust(led.topic, led.partition)
            return True
        if part.preferred_read_replica >= 0:
            link.prefer(led.topic, led.partition, int(part.preferred_read_replica))
            return False
        if part.diverging_epoch.epoch >= 0 or part.diverging_epoch.end_offset >= 0:
            epoch, end = int(part.diverging_epoch.epoch), int(part.diverging_epoch.end_offset)
            self._hub.source_diverged(mirrored, epoch, end)
            return True
        self._hub.source_seen(mirrored, part)
        if part.records and led.leader_epoch == one.leader_epoch:
            await self._put(one, bytes(part.records))
        return False

    async def _put(self, one: Asked, records: bytes) -> None:
        mirrored, cursor = one.mirrored, one.cursor
        last = mirrored.source_epochs.before(mirrored.led.shifts.source(one.offset))
        made = stamp(records, offset=one.offset, partition=mirrored.led, policy=mirrored.stamp, last_epoch=last)
        if made is None:
            return
        if not await self._hub.may_hand_on(mirrored, made):
            return
        if cursor.generation == one.generation and mirrored.led.leader_epoch == one.leader_epoch:
            self._hub.fetched(mirrored, len(made.chunk.records))
            cursor.put(made.chunk)


def _request(asked: Sequence[Asked], *, isolation: int, max_bytes: int) -> fetch.FetchRequest:
    topics: dict[uuid.UUID, list[fetch.FetchPartition]] = {}
    for one in asked:
        led = one.mirrored.led
        source = led.shifts.source(one.offset)
        topics.setdefault(one.mirrored.source_topic_id, []).append(
            fetch.FetchPartition(
                partition=i32(led.partition),
                current_leader_epoch=i32(one.epoch),
                fetch_offset=i64(source),
                last_fetched_epoch=i32(
                    one.mirrored.source_epochs.before(source) if one.mirrored.check_epochs else UNKNOWN
                ),
                partition_max_bytes=i32(_PARTITION_BYTES),
            )
        )
    return fetch.FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=i32Timedelta.parse(datetime.timedelta(seconds=_POLL_S)),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=i8(isolation),
        session_epoch=i32(UNKNOWN),
        topics=tuple(
            fetch.FetchTopic(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in topics.items()
        ),
        forgotten_topics_data=(),
    )
