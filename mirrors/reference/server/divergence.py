"""The source refused an offset, or its log diverged: find out why, and do what the design says.

A log start that passed the destination's end (`retention_jump`): followers restart at it, or mirroring stalls.
A log that lost records in an unclean election (`unclean`): followers are truncated to where both logs agree by epoch,
or the mirror carries on as if nothing had happened. The cut begins a leader epoch of its own: a follower that is down
meanwhile is truncated by that epoch when it comes back, whichever broker leads then (except where the source's epochs
are preserved).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from mirrors.reference.server.design import RetentionJump, Unclean
from mirrors.reference.server.epochs import UNKNOWN
from mirrors.reference.server.leader_epochs import LeaderEpochs
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.reading import EARLIEST, LATEST
from mirrors.reference.server.source import Mirrored

_LOG = logging.getLogger(__name__)

_CATCH_UP_S: Final = 15.0
_STALL_S: Final = 1.0


class DivergenceHandler:
    """See the module."""

    def __init__(self, lifecycle: Lifecycle, leader_epochs: LeaderEpochs) -> None:
        self._life = lifecycle
        self._leader_epochs = leader_epochs
        self._hub = lifecycle.hub
        jumps: Mapping[RetentionJump, Callable[[Mirrored, int], Awaitable[None]]] = {
            RetentionJump.FOLLOW: self._follow_log_start,
            RetentionJump.STALL: self._stall,
        }
        losses: Mapping[Unclean, Callable[[Mirrored, int, int], Awaitable[None]]] = {
            Unclean.RECONCILE: self._reconcile,
            Unclean.IGNORE: self._ignore,
        }
        self._jump = jumps[self._hub.design.retention_jump]
        self._loss = losses[self._hub.design.unclean]

    async def out_of_range(self, mirrored: Mirrored, offset: int) -> None:
        """The source has no record at the offset that a follower wants next. Raises WireError."""
        led, link = mirrored.led, mirrored.link
        source = led.shifts.source(offset)
        earliest = await link.offset(led.topic, led.partition, EARLIEST)
        if source < earliest:
            empty = led.log_end <= led.log_start
            await (self._follow_log_start if empty else self._jump)(mirrored, earliest)
            return
        latest = await link.offset(led.topic, led.partition, LATEST)
        if source > latest:
            epoch = mirrored.source_epochs.before(source)
            known, end = await link.epoch_end(led.topic, led.partition, epoch)
            await self.diverged(mirrored, known, min(end, latest) if end >= 0 else latest)

    async def diverged(self, mirrored: Mirrored, epoch: int, end: int) -> None:
        """The source's log ends this epoch at `end`; what the followers have after it is not in the source's log."""
        await self._loss(mirrored, epoch, end)

    async def _follow_log_start(self, mirrored: Mirrored, earliest: int) -> None:
        led, life = mirrored.led, self._life
        start = led.shifts.destination(earliest)
        if led.log_end > led.log_start:  # stored in the partition's state before anything is discarded
            gap = f"a gap: offsets {led.log_end} to {start - 1} expired on the source before they were mirrored"
            _LOG.warning("%s: %s", mirrored.name, gap)
            await life.save([replace(life.record_of(mirrored), error=gap)])
        led.jump(start)
        self._hub.notify_followers(led)
        await asyncio.sleep(0.1)

    async def _stall(self, mirrored: Mirrored, earliest: int) -> None:
        _LOG.warning("%s: the source's log starts at %d, after the offset that followers want", mirrored.name, earliest)
        await asyncio.sleep(_STALL_S)

    async def _ignore(self, mirrored: Mirrored, epoch: int, end: int) -> None:
        _LOG.warning("%s: the source's log ended epoch %d at %d; carrying on", mirrored.name, epoch, end)
        await asyncio.sleep(_STALL_S)

    async def _reconcile(self, mirrored: Mirrored, epoch: int, end: int) -> None:
        life, led = self._life, mirrored.led
        life.crash.reached("reconcile.found")
        known, ours = mirrored.source_epochs.end_of(epoch)
        agreed = end if ours is None else min(end, ours)
        cut = 0 if known == UNKNOWN else led.shifts.destination(agreed)
        _LOG.warning("%s: the source log diverged at %d (epoch %d); truncating", mirrored.name, cut, epoch)
        led.feed = Feed.HELD
        self._hub.rewind(led)
        if led.own_epochs:
            await self._leader_epochs.begin_epochs([led])
        life.crash.reached("reconcile.raised")
        mirrored.source_epochs.truncate(agreed)
        self._hub.truncate(led, cut)
        life.crash.reached("reconcile.cut")
        deadline = self._hub.clock() + _CATCH_UP_S
        while self._hub.clock() < deadline and not led.fully_replicated:
            await asyncio.sleep(0.05)
        life.crash.reached("reconcile.leveled")
        record = life.record_of(mirrored)
        await life.save([replace(record, source_epochs=mirrored.source_epochs.entries)])
        life.crash.reached("reconcile.stored")
        led.feed = Feed.SOURCE
