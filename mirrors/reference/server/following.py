"""Following a real leader as a replica, to take over its leadership: its log end, epochs and high watermark.

A follower that owns no log may begin at the leader's log end: the leader counts it as in sync as soon as it fetches
from there, with the epoch that the controller gave this broker. What the leader appends meanwhile is read and only
counted. All partitions of one leader are asked in one request.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17 import request as fetch
from kio.schema.offset_for_leader_epoch.v4 import request as epoch_ends
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from harness.wire.batch_headers import headers
from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from mirrors.reference.server.epochs import EpochList
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.partition import LedPartition

_LOG = logging.getLogger(__name__)

_WAIT: Final = i32Timedelta.parse(datetime.timedelta(milliseconds=100))
_RESPONSE_BYTES: Final = 4 * 1024 * 1024
_EPOCHS_AT_MOST: Final = 1000  # how many leader changes of one log are read back
_PURPOSE: Final = "follow"


@dataclass(slots=True)
class Followed:
    """The state of a real leader's log."""

    led: LedPartition
    leader: int
    leader_epoch: int
    end: int = -1
    high_watermark: int = -1
    log_start: int = 0
    epochs: EpochList = field(default_factory=EpochList)


async def epoch_lists(
    cluster: Cluster, broker: int, current: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], tuple[EpochList, int]]:
    """A leader's whole epoch cache and log end per partition, one question per epoch for all partitions together.

    current: partition → leader epoch. Partitions that the broker does not lead are left out. Raises WireError.
    """
    asked = dict(current)
    found: dict[tuple[str, int], list[tuple[int, int]]] = {key: [] for key in current}  # (epoch, end), falling
    for _ in range(_EPOCHS_AT_MOST):
        if not asked:
            break
        answers = await _epoch_ends(cluster, broker, asked, current)
        following = {}
        for key, (epoch, end) in answers.items():
            if epoch < 0 or end < 0:
                continue
            found[key].append((epoch, end))
            if epoch > 0:
                following[key] = epoch - 1
        asked = following
    lists = {}
    for key, ends in found.items():
        if not ends:
            continue
        starts = [end for _, end in ends[1:]] + [0]
        entries = [(epoch, start) for (epoch, _), start in zip(ends, starts, strict=True)]
        lists[key] = (EpochList(reversed(entries)), ends[0][1])
    return lists


async def _epoch_ends(
    cluster: Cluster, broker: int, asked: Mapping[tuple[str, int], int], current: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], tuple[int, int]]:
    topics: dict[str, list[epoch_ends.OffsetForLeaderPartition]] = {}
    for (topic, partition), epoch in asked.items():
        topics.setdefault(topic, []).append(
            epoch_ends.OffsetForLeaderPartition(
                partition=i32(partition),
                current_leader_epoch=i32(current[topic, partition]),
                leader_epoch=i32(epoch),
            )
        )
    request = epoch_ends.OffsetForLeaderEpochRequest(
        replica_id=BrokerId(-1),
        topics=tuple(
            epoch_ends.OffsetForLeaderTopic(topic=TopicName(name), partitions=tuple(parts))
            for name, parts in topics.items()
        ),
    )
    answer = await cluster.call_broker(broker, request)
    return {
        (str(topic.topic), int(part.partition)): (int(part.leader_epoch), int(part.end_offset))
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code is ErrorCode.none
    }


class Following:
    """Follows partitions from their real leaders until this process leads them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._followed: dict[LedPartition, Followed] = {}

    async def round(self, wanted: Iterable[tuple[LedPartition, int, int]]) -> None:
        """One fetch per leader. wanted: (partition, leader, leader epoch) of those that this process does not lead.

        Each partition keeps what the leader answered (`LedPartition.hand_over`) for when this process becomes leader.
        """
        by_leader: dict[int, list[Followed]] = {}
        for led, leader, epoch in wanted:
            known = self._followed.get(led)
            if known is None or (known.leader, known.leader_epoch) != (leader, epoch):
                known = self._followed[led] = Followed(led, leader, epoch)
            by_leader.setdefault(leader, []).append(known)
        results = await asyncio.gather(
            *(self._fetch(leader, all_of_it) for leader, all_of_it in by_leader.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, WireError):
                _LOG.info("following: %s", result)
            elif isinstance(result, BaseException):
                raise result

    def forget(self, led: LedPartition) -> None:
        """It is led here now, or no longer wanted."""
        self._followed.pop(led, None)

    async def _fetch(self, leader: int, followed: list[Followed]) -> None:
        new = {(f.led.topic, f.led.partition): f for f in followed if f.end < 0}
        if new:
            current = {key: f.leader_epoch for key, f in new.items()}
            for key, (epochs, end) in (await epoch_lists(self._hub.destination, leader, current)).items():
                new[key].epochs, new[key].end = epochs, end
        ready = {(f.led.topic_id, f.led.partition): f for f in followed if f.end >= 0}
        if not ready:
            return
        connection = await self._hub.destination.broker(leader, _PURPOSE)
        answer = await connection.call(self._request(ready.values()))
        if answer.error_code is not ErrorCode.none:
            raise WireError(f"broker {leader} refused to be followed: {answer.error_code.name}")
        for topic in answer.responses:
            for part in topic.partitions:
                self._take(ready[topic.topic_id, int(part.partition_index)], part)

    def _take(self, followed: Followed, part: Any) -> None:
        led = followed.led
        if part.error_code is not ErrorCode.none:
            if part.error_code is not ErrorCode.not_leader_or_follower:
                _LOG.info("following %s-%d: %s", led.topic, led.partition, part.error_code.name)
            self._followed.pop(led, None)
            return
        for batch in headers(bytes(part.records or b"")):
            followed.epochs.begin(batch.leader_epoch, batch.base_offset)
            followed.end = max(followed.end, batch.next_offset)
        followed.high_watermark, followed.log_start = int(part.high_watermark), int(part.log_start_offset)
        if not led.leading:
            led.hand_over(
                log_end=followed.end,
                high_watermark=min(followed.high_watermark, followed.end),
                log_start=max(0, followed.log_start),
                epochs=EpochList(followed.epochs.entries),
            )

    def _request(self, followed: Iterable[Followed]) -> fetch.FetchRequest:
        topics: dict[uuid.UUID, list[fetch.FetchPartition]] = {}
        for one in followed:
            topics.setdefault(one.led.topic_id, []).append(
                fetch.FetchPartition(
                    partition=i32(one.led.partition),
                    current_leader_epoch=i32(one.leader_epoch),
                    fetch_offset=i64(one.end),
                    log_start_offset=i64(one.log_start),
                    partition_max_bytes=i32(_RESPONSE_BYTES),
                )
            )
        return fetch.FetchRequest(
            replica_state=fetch.ReplicaState(
                replica_id=BrokerId(self._hub.me), replica_epoch=i64(self._hub.broker_epoch)
            ),
            max_wait=_WAIT,
            min_bytes=i32(1),
            max_bytes=i32(_RESPONSE_BYTES),
            topics=tuple(fetch.FetchTopic(topic_id=t, partitions=tuple(parts)) for t, parts in topics.items()),
            forgotten_topics_data=(),
        )
