"""What the states of a partition have in common: lead the logs of a group of partitions, feed, hold and cut them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from mirrors.reference.server.leader_epochs import LeaderEpochs
from mirrors.reference.server.leadership import Leadership
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.resuming import RESUME
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.states import PartitionState

_LOG = logging.getLogger(__name__)

CATCH_UP_S: Final = 15.0
_POLL_S: Final = 0.02


class LedLogs:
    """See the module. A group is any number of partitions that are worked on together."""

    def __init__(self, lifecycle: Lifecycle, leadership: Leadership, leader_epochs: LeaderEpochs) -> None:
        self._life = lifecycle
        self._reached = lifecycle.crash.reached
        self._hub = lifecycle.hub
        self._leadership = leadership
        self._leader_epochs = leader_epochs

    async def lead(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Acquire leadership; returns those that are led."""
        by_led = {mirrored.led: mirrored for mirrored in group}
        self._reached("prepare.place")
        found = await self._leadership.take(list(by_led), in_sync=lambda: self._reached("prepare.in_sync"))
        return [by_led[led] for led in found]

    async def resume(self, mirrored: Mirrored) -> None:
        """Where mirroring was interrupted by a restart of this process, resume as the design says."""
        if mirrored.resumed:
            mirrored.resumed = False
            await RESUME[self._hub.design.resume](mirrored)
            await self._life.save_source_epochs([mirrored])

    def still_in(self, state: PartitionState, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Those that are still in this state: no other state was requested, and they did not fail."""
        return [m for m in group if self._life.record_of(m).state is state]

    def feed(self, group: Sequence[Mirrored]) -> None:
        """Forward the source's records."""
        for mirrored in group:
            mirrored.led.limit = None
            mirrored.led.feed = Feed.SOURCE
        self._hub.wake()

    def hold(self, group: Sequence[Mirrored]) -> None:
        """Stop feeding; followers may still get what another one of them has."""
        for mirrored in group:
            record, limits = self._life.record_of(mirrored), [mirrored.led.log_end]
            if record.last_mirrored >= 0:  # an interrupted stop: records of the mirror's own may follow it
                limits.append(record.last_mirrored)
            if record.cut is not None:  # outstanding: what follows it is not the source's
                limits.append(record.cut)
            mirrored.led.limit = min(limits)
            mirrored.led.feed = Feed.SOURCE
            for cursor in self._hub.sessions.of(mirrored.led):
                if cursor.next_offset > mirrored.led.log_end:
                    cursor.rewind()
        self._hub.wake()

    async def await_inquiries(self, group: Sequence[Mirrored]) -> None:
        """Wait for cuts that are under way. Bounded."""
        inquiries = [m.inquiry for m in group if m.inquiry is not None]
        if inquiries:
            _, pending = await asyncio.wait(inquiries, timeout=CATCH_UP_S)
            if pending:
                raise TimeoutError(f"waited {CATCH_UP_S:g} s for cuts of {len(pending)} partitions that are under way")

    async def until_known(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Wait until the followers' fetches show where the log ends; returns those where they do."""
        deadline = self._hub.clock() + CATCH_UP_S
        while self._hub.clock() < deadline and any(m.led.high_watermark is None for m in group):
            self._hub.raise_if_maybe_fenced()
            await asyncio.sleep(_POLL_S)
        return [m for m in group if m.led.high_watermark is not None]

    async def until_fully_replicated(self, group: Sequence[Mirrored], timeout_s: float) -> list[Mirrored]:
        """Wait until partitions are fully replicated; returns those that are."""
        deadline = self._hub.clock() + timeout_s
        while self._hub.clock() < deadline and not all(m.led.fully_replicated for m in group):
            self._hub.raise_if_maybe_fenced()
            await asyncio.sleep(_POLL_S)
        return [m for m in group if m.led.fully_replicated]

    async def cut(self, ends: Mapping[Mirrored, int], why: str) -> None:
        """Cut logs that are longer, in a leader epoch of their own: it lets a follower that is down now, and comes back
        when a real broker leads, tell the new records from the cut ones."""
        longer = [m for m, end in ends.items() if m.led.log_end > end]
        own_epochs = [m.led for m in longer if m.led.own_epochs and not m.led.epoch_is_fresh]
        if own_epochs:
            for led in own_epochs:
                led.feed = Feed.HELD
                self._hub.rewind(led)
            await self._leader_epochs.begin_epochs(own_epochs)
        for mirrored in longer:
            led, end = mirrored.led, ends[mirrored]
            _LOG.warning("%s: cut from %d to %d: %s", mirrored.name, led.log_end, end, why)
            self._hub.truncate(led, end)

    async def begin_epochs_after(self, last: Mapping[Mirrored, int]) -> None:
        """Begin a leader epoch where the current one has source records: the mirror's own records get a later one.

        last: partition → source epoch of its last record. For preserved epochs. Raises WireError or TimeoutError.
        """
        equal = [mirrored for mirrored, epoch in last.items() if mirrored.led.leader_epoch <= epoch]
        if not equal:
            return
        for mirrored in equal:
            mirrored.led.feed = Feed.HELD
            self._hub.rewind(mirrored.led)
        await self._leader_epochs.begin_epochs([mirrored.led for mirrored in equal])
        self.hold(equal)

    def retry_unless_all(self, group: Sequence[Mirrored], done: Sequence[Mirrored], why: str) -> None:
        """Raises TimeoutError, so that the work is tried again, when some are not done."""
        missing = [mirrored.name for mirrored in group if mirrored not in done]
        if missing:
            raise TimeoutError(f"{len(missing)} partitions ({missing[0]}, …) are tried again: {why}")
