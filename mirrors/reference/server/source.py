"""The source of one mirror: its cluster, its partitions' leaders, and their offsets."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4 import request as epoch_ends
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from harness.wire.metadata import TopicMeta
from mirrors.reference.server.epochs import EpochList
from mirrors.reference.server.pace import poll_interval
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.reading import listed_offset
from mirrors.reference.server.stamping import Stamp

_LOG = logging.getLogger(__name__)
_REFRESH_S: Final = 1.0
_LEAST_BETWEEN_S: Final = 0.1
_PREFERRED_S: Final = 60.0  # how long a read replica that a leader named is used before the leader is asked again


@dataclass(slots=True)
class SourceView:
    """The source leader's last answer. Offsets are the source's own, -1 before its first answer."""

    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1

    @property
    def known(self) -> bool:
        """Whether it has answered yet."""
        return self.high_watermark >= 0


@dataclass(slots=True, eq=False, kw_only=True)
class Mirrored:
    """A partition that this process leads, and its source."""

    led: LedPartition
    link: SourceLink
    source_topic_id: uuid.UUID
    stamp: Stamp
    source_epochs: EpochList = field(default_factory=EpochList)
    view: SourceView = field(default_factory=SourceView)
    check_epochs: bool = True  # send the epoch of the last record, so that the source reports where its log diverged
    resumed: bool = False  # it was mirrored before this process started, and has not resumed yet
    inquiry: asyncio.Task[None] | None = None  # finds out why the source refused an offset

    @property
    def name(self) -> str:
        """For logs."""
        return f"{self.led.topic}-{self.led.partition}"


class SourceLink:
    """One mirror's link to its source cluster."""

    def __init__(self, mirror: str, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.mirror = mirror
        self.cluster = cluster
        self.cluster_id = ""
        self.topics: dict[str, TopicMeta] = {}
        self.refreshed_at: float | None = None
        self.down: str | None = "not asked yet"
        self.version = 0  # rises when `leader` may answer something else
        self._clock = clock
        self._stale = asyncio.Event()
        self._preferred: dict[tuple[str, int], tuple[int, float]] = {}

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """(broker to fetch from, leader epoch), None without a leader."""
        meta = self.topics.get(topic)
        found = None if meta is None else meta.partitions.get(partition)
        if found is None or found.leader is None:
            return None
        preferred = self._preferred.get((topic, partition))
        if preferred is not None and self._clock() < preferred[1]:
            return preferred[0], found.leader_epoch
        return found.leader, found.leader_epoch

    def prefer(self, topic: str, partition: int, broker: int) -> None:
        """The leader named a preferred read replica."""
        self._preferred[topic, partition] = (broker, self._clock() + _PREFERRED_S)
        self.version += 1

    def distrust(self, topic: str, partition: int) -> None:
        """The known leader of a partition is wrong: refresh soon."""
        if self._preferred.pop((topic, partition), None) is not None:
            self.version += 1
        self._stale.set()

    @property
    def partitions(self) -> int:
        """How many partitions the source has, over all topics."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def age_s(self) -> float:
        """Seconds since the source listed its topics; infinite before that, or if the last request failed."""
        return math.inf if self.refreshed_at is None or self.down else self._clock() - self.refreshed_at

    async def refresh(self) -> None:
        """Fetch the metadata of all topics now. Raises WireError."""
        try:
            found = await self.cluster.metadata()
        except WireError as error:
            self.down = str(error)
            raise
        if found.topics != self.topics:
            self.version += 1
        self.cluster_id, self.topics, self.down = found.cluster_id, dict(found.topics), None
        self.refreshed_at = self._clock()

    async def keep_fresh(self) -> None:
        """Refresh each second, less often with many partitions, and soon after a call of `distrust`.

        Runs until it is cancelled."""
        while True:
            self._stale.clear()
            try:
                await self.refresh()
            except WireError as error:
                _LOG.info("mirror %s: source metadata: %s", self.mirror, error)
            await asyncio.sleep(_LEAST_BETWEEN_S)
            try:
                async with asyncio.timeout(poll_interval(_REFRESH_S, self.partitions)):
                    await self._stale.wait()
            except TimeoutError:
                continue

    async def offset(self, topic: str, partition: int, which: int) -> int:
        """The source leader's EARLIEST or LATEST offset. Raises WireError."""
        broker, epoch = self._leader_or_error(topic, partition)
        found = await listed_offset(self.cluster, broker, topic, partition, which, leader_epoch=epoch)
        if found.error_code is not ErrorCode.none:
            self.distrust(topic, partition)
            raise WireError(f"offsets of {topic}-{partition} at the source: {found.error_code.name}")
        return int(found.offset)

    async def epoch_end(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """(largest epoch not above, its end) in the source leader's log; (-1, -1) when it has none. WireError."""
        broker, current = self._leader_or_error(topic, partition)
        return await ask_epoch_end(self.cluster, broker, topic, partition, epoch=epoch, current=current)

    def _leader_or_error(self, topic: str, partition: int) -> tuple[int, int]:
        meta = self.topics.get(topic)
        found = None if meta is None else meta.partitions.get(partition)
        if found is None or found.leader is None:
            self.distrust(topic, partition)
            raise WireError(f"{topic}-{partition} has no leader at the source")
        return found.leader, found.leader_epoch


async def ask_epoch_end(
    cluster: Cluster, broker: int, topic: str, partition: int, *, epoch: int, current: int
) -> tuple[int, int]:
    """OffsetForLeaderEpoch at a leader: (largest epoch not above, its end offset). Raises WireError."""
    part = epoch_ends.OffsetForLeaderPartition(
        partition=i32(partition), current_leader_epoch=i32(current), leader_epoch=i32(epoch)
    )
    request = epoch_ends.OffsetForLeaderEpochRequest(
        replica_id=BrokerId(-1),
        topics=(epoch_ends.OffsetForLeaderTopic(topic=TopicName(topic), partitions=(part,)),),
    )
    found = (await cluster.call_broker(broker, request)).topics[0].partitions[0]
    if found.error_code is not ErrorCode.none:
        raise WireError(f"epochs of {topic}-{partition} at broker {broker}: {found.error_code.name}")
    return int(found.leader_epoch), int(found.end_offset)
