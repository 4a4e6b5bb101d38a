"""Snapshots of the destination's metadata: which partitions this process leads, with which epoch and ISR.

A real broker learns that from the metadata log; this one asks a real broker, every half second (less often with many
partitions, see pace) and at once when a follower knows more. Partitions that the controller placed on this broker
though no mirror asked for it (it takes any live broker for new topics) are held, and reported to `strays`, which moves
them away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from harness.wire.frames import WireError
from harness.wire.metadata import Metadata, PartitionMeta, TopicMeta
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.pace import poll_interval
from mirrors.reference.server.partition import LedPartition

_LOG = logging.getLogger(__name__)

_EVERY_S: Final = 0.5
_LEAST_BETWEEN_S: Final = 0.05
_GONE_S: Final = 2.0  # brokers that have just started may not know a partition yet
_ISR_DELAY_S: Final = 1.0  # other brokers learn of an in-sync set later than the requester


class MetadataSnapshots:
    """Keeps the hub's partitions as the controller has them. strays: called with those that no mirror asked for."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.last: Metadata | None = None
        self.strays: list[LedPartition] = []
        self._asking: asyncio.Task[Metadata] | None = None
        self._missed_since: dict[LedPartition, float] = {}

    async def snapshot(self) -> Metadata:
        """Take a snapshot. A caller during a pending request waits for the next one. Raises WireError."""
        if self._asking is not None:
            await asyncio.wait({self._asking})
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._take())
        return await asyncio.shield(self._asking)

    async def _take(self) -> Metadata:
        asked_at = self._hub.clock()
        found = await self._hub.destination.metadata()
        self.last = found
        self._hub.cluster_id = found.cluster_id
        for led in list(self._hub.partitions.values()):
            meta = found.topics.get(led.topic)
            part = None if meta is None or meta.topic_id != led.topic_id else meta.partitions.get(led.partition)
            self._take_in(led, part, asked_at)
        if self._missed_since:
            there = set(self._hub.partitions.values())
            self._missed_since = {led: since for led, since in self._missed_since.items() if led in there}
        self._find_strays(found)
        return found

    async def keep(self) -> None:
        """Take snapshots until cancelled."""
        while True:
            self._hub.refresh_now.clear()
            try:
                await self.snapshot()
            except WireError as error:
                _LOG.warning("destination metadata: %s", error)
            await asyncio.sleep(_LEAST_BETWEEN_S)
            try:
                async with asyncio.timeout(poll_interval(_EVERY_S, len(self._hub.partitions))):
                    await self._hub.refresh_now.wait()
            except TimeoutError:
                continue

    async def until(self, condition: Callable[[Metadata], bool], *, timeout_s: float, what: str) -> Metadata:
        """Take snapshots until a condition holds. Raises TimeoutError naming what was waited for."""
        deadline = self._hub.clock() + timeout_s
        while True:
            try:
                found = await self.snapshot()
                if condition(found):
                    return found
            except WireError as error:
                _LOG.info("destination metadata: %s", error)
            if self._hub.clock() > deadline:
                raise TimeoutError(f"waited {timeout_s:g} s for {what}")
            await asyncio.sleep(_LEAST_BETWEEN_S * 2)

    def _take_in(self, led: LedPartition, part: PartitionMeta | None, asked_at: float) -> None:
        if part is None:
            if led.leading and asked_at - self._missed_since.setdefault(led, asked_at) < _GONE_S:
                return
        else:
            self._missed_since.pop(led, None)
            if part.leader_epoch < led.leader_epoch:
                return  # an older answer
        if part is None or part.leader != self._hub.me:
            if led.leading:
                _LOG.info("%s-%d: led by %s now", led.topic, led.partition, None if part is None else part.leader)
                led.stand_down(-1 if part is None else part.leader_epoch)
                self._hub.recheck(led)
                self._hub.reactions.poke()
            if part is not None:
                led.isr, led.replicas = frozenset(part.isr), part.replicas
            return
        before = (led.isr, led.high_watermark)
        known = led.leading and part.leader_epoch == led.leader_epoch and asked_at < led.isr_at + _ISR_DELAY_S
        isr = led.isr if known else part.isr
        if led.lead(epoch=part.leader_epoch, isr=isr, replicas=part.replicas, now=self._hub.clock()):
            _LOG.info("%s-%d: led here at epoch %d, isr %s", led.topic, led.partition, part.leader_epoch, part.isr)
            self._hub.rewind(led)
            self._hub.changed(led)
        elif before != (led.isr, led.high_watermark):
            self._hub.changed(led)

    def _find_strays(self, found: Metadata) -> None:
        for name, topic in found.topics.items():
            if name in self._hub.expected_topics:
                continue
            for part in topic.partitions.values():
                if self._hub.me in part.replicas and (topic.topic_id, part.partition) not in self._hub.partitions:
                    self._adopt(topic, part)

    def _adopt(self, topic: TopicMeta, part: PartitionMeta) -> None:
        led = LedPartition(me=self._hub.me, topic=topic.name, partition=part.partition, topic_id=topic.topic_id)
        self._hub.add(led)
        self.strays.append(led)
        self._take_in(led, part, self._hub.clock())
        _LOG.info("%s-%d was placed here by the controller; it will be moved away", topic.name, part.partition)
