"""Acquiring leadership: new topics are created with this process as first replica; existing partitions are taken over
from their real leader: this process is made the first replica, follows until it is in sync, and is elected.

Each step is derived from the destination's metadata and repeated until it has taken effect: after a crash at any point
the same calls lead to the same result.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from harness.wire.frames import WireError
from harness.wire.metadata import Metadata, PartitionMeta
from mirrors.reference.server.destination import (
    add_partitions,
    create_topic,
    elect_preferred,
    reassign_replicas,
)
from mirrors.reference.server.epochs import EpochList
from mirrors.reference.server.following import Following
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

_TAKE_OVER_S: Final = 15.0
_ROUND_S: Final = 0.02  # between two rounds


class Leadership:
    """See the module. in_sync: called when partitions are about to be elected (a named step)."""

    def __init__(self, hub: Hub, snapshots: MetadataSnapshots) -> None:
        self._hub = hub
        self._snapshots = snapshots
        self._following = Following(hub)

    def placement(self, meta: Metadata, partition: int, *, copies: int) -> list[int]:
        """Replicas of a new partition: this process, then real brokers, rotated by partition."""
        real = sorted(b for b in meta.brokers if b < FIRST_MIRROR_ID)
        if not real:
            raise WireError("the destination has no broker that could hold a replica")
        return [self._hub.me, *(real[(partition + n) % len(real)] for n in range(min(copies, len(real))))]

    async def create(
        self, topic: str, partitions: int, configs: Mapping[str, str], owners: Sequence[int]
    ) -> frozenset[int]:
        """Create a topic, or the partitions that it lacks; returns the new ones. Raises WireError.

        owners: the process that leads each. Own new partitions are registered before their followers ask for them.
        """
        meta = await self._hub.destination.metadata()
        existing = meta.topics.get(topic)
        copies = self._hub.settings.replicas
        placed = {p: [owners[p], *self.placement(meta, p, copies=copies)[1:]] for p in range(partitions)}
        if existing is None:
            made = await create_topic(self._hub.destination, topic, placed, configs)
            if made is None:
                return frozenset()
            self._expect(topic, made, placed)
            return frozenset(placed)
        if len(existing.partitions) < partitions:
            missing = {p: placed[p] for p in range(len(existing.partitions), partitions)}
            self._expect(topic, existing.topic_id, missing)
            await add_partitions(self._hub.destination, topic, partitions, list(missing.values()))
            return frozenset(missing)
        return frozenset()

    def _expect(self, topic: str, topic_id: uuid.UUID, placed: Mapping[int, Sequence[int]]) -> None:
        for partition, replicas in placed.items():
            if replicas[0] == self._hub.me:
                led = LedPartition(me=self._hub.me, topic=topic, partition=partition, topic_id=topic_id)
                led.hand_over(log_end=0, high_watermark=0, log_start=0, epochs=EpochList())
                self._hub.add(led)

    async def take(self, partitions: Sequence[LedPartition], *, in_sync: Callable[[], None]) -> list[LedPartition]:
        """Acquire leadership of these partitions; returns those that are led when the time is up."""
        hub = self._hub
        deadline = hub.clock() + _TAKE_OVER_S
        elected_at: dict[LedPartition, float] = {}
        announced = False
        while True:
            hub.raise_if_maybe_fenced()
            try:
                meta = await self._snapshots.snapshot()
                missing = [led for led in partitions if not led.leading]
                if not missing or hub.clock() > deadline:
                    break
                await self._place(meta, missing)
                await self._follow(meta, missing)
                able = self._electable(meta, missing, elected_at)
                if able:
                    if not announced:
                        in_sync()
                        announced = True
                    await self._following.round(self._real_leaders(meta, able))
                    refused = await elect_preferred(hub.destination, [(led.topic, led.partition) for led in able])
                    elected_at.update(dict.fromkeys(able, hub.clock()))
                    if refused:
                        _LOG.info("elections refused: %s", dict(list(refused.items())[:3]))
            except WireError as error:
                _LOG.info("acquiring leadership: %s", error)
                if hub.clock() > deadline:
                    break
            await asyncio.sleep(_ROUND_S)
        for led in partitions:
            self._following.forget(led)
        return [led for led in partitions if led.leading]

    async def _place(self, meta: Metadata, missing: Sequence[LedPartition]) -> None:
        """Make this process the first replica."""
        wanted = {}
        for led in missing:
            part = _part(meta, led)
            if part is None:
                continue
            real = [b for b in part.replicas if b < FIRST_MIRROR_ID]
            if part.replicas != (self._hub.me, *real):
                wanted[led.topic, led.partition] = [self._hub.me, *real]
        refused = await reassign_replicas(self._hub.destination, wanted)
        if refused:
            _LOG.info("reassignments refused: %s", dict(list(refused.items())[:3]))

    async def _follow(self, meta: Metadata, missing: Sequence[LedPartition]) -> None:
        await self._following.round(self._real_leaders(meta, missing))

    def _real_leaders(self, meta: Metadata, missing: Sequence[LedPartition]) -> list[tuple[LedPartition, int, int]]:
        found = []
        for led in missing:
            part = _part(meta, led)
            if part is not None and part.leader is not None and part.leader != self._hub.me:
                found.append((led, part.leader, part.leader_epoch))
        return found

    def _electable(
        self, meta: Metadata, missing: Sequence[LedPartition], elected_at: Mapping[LedPartition, float]
    ) -> list[LedPartition]:
        now = self._hub.clock()
        able = []
        for led in missing:
            part = _part(meta, led)
            if part is None or self._hub.me not in part.isr or part.replicas[:1] != (self._hub.me,):
                continue
            if now - elected_at.get(led, -1.0) > 0.5:
                able.append(led)
        return able


def _part(meta: Metadata, led: LedPartition) -> PartitionMeta | None:
    topic = meta.topics.get(led.topic)
    return None if topic is None or topic.topic_id != led.topic_id else topic.partitions.get(led.partition)
