"""The work of each state of a partition (see work_loop), for groups of partitions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirrors.reference.server.led_logs import LedLogs
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.preparing import Preparing
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.states import PartitionState
from mirrors.reference.server.stopping import Stopping
from mirrors.reference.server.work_loop import Work

_LOG = logging.getLogger(__name__)

S = PartitionState


class Stages:
    """See the module. PREPARING and STOPPING have classes of their own."""

    def __init__(self, lifecycle: Lifecycle, logs: LedLogs, *, preparing: Preparing, stopping: Stopping) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._logs = logs
        self.work: Mapping[PartitionState, Work] = {
            S.PREPARING: preparing.prepare,
            S.MIRRORING: self.mirror,
            S.PAUSING: self.pause,
            S.PAUSED: self.stay_paused,
            S.STOPPING: stopping.stop,
        }

    async def mirror(self, group: Sequence[Mirrored]) -> None:
        """MIRRORING: lead it (again) and forward the source's batches."""
        led = await self._logs.lead(group)
        for mirrored in led:
            await self._logs.resume(mirrored)
        self._logs.feed(led)
        self._logs.retry_unless_all(group, led, "leadership was not acquired in time")

    async def pause(self, group: Sequence[Mirrored]) -> None:
        """PAUSING: no more records than some follower has already."""
        led = await self._logs.lead(group)
        self._logs.hold(led)
        replicated = await self._logs.until_fully_replicated(led, self._hub.settings.drain_s)
        for mirrored in led:
            mirrored.led.feed = Feed.HELD
        paused = self._logs.still_in(S.PAUSING, led)
        await self._life.save([replace(self._life.record_of(m), state=S.PAUSED) for m in paused])
        _LOG.info("paused: %d partitions, %d of them fully replicated", len(led), len(replicated))

    async def stay_paused(self, group: Sequence[Mirrored]) -> None:
        """PAUSED: lead it (again), and give nothing."""
        for mirrored in group:
            mirrored.led.feed = Feed.HELD
        await self._logs.lead(group)

    async def hold(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Hold them for a take-over by another process; returns those that are fully replicated. The others go on."""
        self._logs.hold(group)
        replicated = await self._logs.until_fully_replicated(group, self._hub.settings.drain_s)
        self._logs.feed([mirrored for mirrored in group if mirrored not in replicated])
        return replicated
