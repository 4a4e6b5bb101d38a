"""Keeps the in-sync sets of the partitions that this process leads, by AlterPartition at the controller."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Final

from kio.schema.alter_partition.v3 import request as alter
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32, i64

from harness.wire.frames import WireError
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.isr import EpochSearch, differs, wanted_isr
from mirrors.reference.server.pace import poll_interval
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.periodic import keep

_LOG = logging.getLogger(__name__)

_EVERY_S: Final = 0.3
_REFUSED_S: Final = 1.0
_ROUNDS: Final = 40  # tries for the partition epoch before the next check


class IsrKeeper:
    """See the module."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._searches: dict[LedPartition, EpochSearch] = {}
        self._refused: dict[LedPartition, tuple[frozenset[int] | None, float]] = {}

    async def keep(self) -> None:
        """Until cancelled."""
        await keep("in-sync sets", self._pause, self._check, hurry=self._hub.replicated_now)

    def _pause(self) -> float:
        """Seconds until the next check: short while a set changes or something waits for followers."""
        hub = self._hub
        waiting = any(led.leading and (led.joining or led.cuts) for led in hub.partitions.values())
        return _EVERY_S if waiting else min(poll_interval(_EVERY_S, len(hub.partitions)), hub.settings.lag_s / 4)

    async def _check(self) -> None:
        self._touch()
        await self._change()

    def _touch(self) -> None:
        """Count incremental fetches for every partition of the session: at the log end they name none of them."""
        for session in self._hub.sessions:
            for cursor in session.cursors.values():
                if cursor.partition is not None:
                    cursor.partition.still_at(session.follower, cursor.offset, session.fetched_at)

    async def _change(self) -> None:
        hub = self._hub
        now, lag = hub.clock(), hub.settings.lag_s
        wanted = {led: wanted_isr(led, now=now, lag_s=lag) for led in hub.partitions.values() if led.leading}
        changes = {led: isr for led, isr in wanted.items() if differs(led, isr) and self._due(led, isr, now)}
        for led, isr in changes.items():
            led.joining |= isr - led.isr
            self._searches.setdefault(led, EpochSearch()).start(led.partition_epoch)
        for _ in range(_ROUNDS):
            if not changes:
                return
            changes = await self._ask(changes)
        for led in changes:
            led.joining = frozenset()

    def _due(self, led: LedPartition, isr: frozenset[int], now: float) -> bool:
        """Whether it is time to ask: a refused change is not asked again at once."""
        refused, at = self._refused.get(led, (None, 0.0))
        return refused != isr or now - at > _REFUSED_S

    async def _ask(self, changes: Mapping[LedPartition, frozenset[int]]) -> dict[LedPartition, frozenset[int]]:
        """One AlterPartition for all; returns those whose partition epoch was wrong, to be asked again."""
        by_key = {(led.topic_id, led.partition): led for led in changes}
        answer = await self._hub.destination.call_controller(self._request(changes))
        if answer.error_code is not ErrorCode.none:
            raise WireError(f"AlterPartition: {answer.error_code.name}")
        again = {}
        for topic in answer.topics:
            for part in topic.partitions:
                led = by_key[topic.topic_id, int(part.partition_index)]
                search = self._searches[led]
                if part.error_code is ErrorCode.none:
                    led.joining = frozenset()
                    led.isr_at = self._hub.clock()
                    led.set_isr(int(b) for b in part.isr)
                    self._hub.changed(led)
                    led.partition_epoch = int(part.partition_epoch)
                    _LOG.info("%s-%d: in-sync set is %s", led.topic, led.partition, sorted(led.isr))
                elif search.refused(part.error_code):
                    again[led] = changes[led]
                else:
                    led.joining = frozenset()
                    led.partition_epoch = 0
                    self._refused[led] = (changes[led], self._hub.clock())
                    self._hub.refresh_now.set()
                    _LOG.info("%s-%d: in-sync set refused: %s", led.topic, led.partition, part.error_code.name)
        return again

    def _request(self, changes: Mapping[LedPartition, frozenset[int]]) -> alter.AlterPartitionRequest:
        topics: dict[uuid.UUID, list[alter.PartitionData]] = {}
        for led, isr in changes.items():
            topics.setdefault(led.topic_id, []).append(
                alter.PartitionData(
                    partition_index=i32(led.partition),
                    leader_epoch=i32(led.leader_epoch),
                    new_isr_with_epochs=tuple(self._member(led, broker) for broker in sorted(isr)),
                    leader_recovery_state=i8(0),
                    partition_epoch=i32(self._searches[led].guess),
                )
            )
        return alter.AlterPartitionRequest(
            broker_id=BrokerId(self._hub.me),
            broker_epoch=i64(self._hub.broker_epoch),
            topics=tuple(alter.TopicData(topic_id=t, partitions=tuple(parts)) for t, parts in topics.items()),
        )

    def _member(self, led: LedPartition, broker: int) -> alter.BrokerState:
        state = led.followers.get(broker)
        epoch = self._hub.broker_epoch if broker == led.me else -1 if state is None else state.broker_epoch
        return alter.BrokerState(broker_id=BrokerId(broker), broker_epoch=i64(epoch))
