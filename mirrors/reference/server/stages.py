"""The work of each state of a partition: prepare, mirror, pause, stop. Groups of partitions, step by step."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.wire.frames import WireError
from mirrors.reference.server.closing import APPEND_AT_STOP, CUT_AT_STOP, PID_RESET
from mirrors.reference.server.destination import reassign_replicas
from mirrors.reference.server.finishing import STOP_AT, Finishing
from mirrors.reference.server.following import epoch_lists
from mirrors.reference.server.leader_epochs import LeaderEpochs
from mirrors.reference.server.leadership import Leadership
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.resuming import RESUME
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.state_store import FIRST_MIRROR_ID
from mirrors.reference.server.states import PartitionState

_LOG = logging.getLogger(__name__)

_CATCH_UP_S: Final = 15.0
_LEADER_S: Final = 15.0
_POLL_S: Final = 0.02

S = PartitionState
Guard = Callable[[Sequence[str], bool], Awaitable[None]]
"""(topics, on): make them read-only while this process is dead, or writable again."""


LastSync = Callable[[Iterable[str]], Awaitable[None]]
"""Sync the groups of these mirrors a last time, for the partitions that are being stopped."""


class Stages:
    """Registers its work with the life cycle. guard: keeps topics read-only while the process is dead."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        snapshots: MetadataSnapshots,
        leadership: Leadership,
        leader_epochs: LeaderEpochs,
        *,
        guard: Guard,
        last_sync: LastSync,
    ) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._snapshots = snapshots
        self._guard = guard
        self._last_sync = last_sync
        self._leadership = leadership
        self._leader_epochs = leader_epochs
        self._finishing = Finishing(lifecycle, feed=self._feed)
        lifecycle.work = {
            S.PREPARING: self.prepare,
            S.MIRRORING: self.mirror,
            S.PAUSING: self.pause,
            S.PAUSED: self.stay_paused,
            S.STOPPING: self.stop,
        }

    # --- states ------------------------------------------------------------------------------------------------

    async def prepare(self, group: Sequence[Mirrored]) -> None:
        """PREPARING: lead the partition, truncate it to where it agrees with the source, then mirror."""
        life = self._life
        for mirrored in group:
            mirrored.led.feed, mirrored.resumed = Feed.HELD, False
        await self._guard(sorted({m.led.topic for m in group}), True)
        led = await self._until_known(await self._lead(group))
        self._reached("prepare.led")
        cuts = {m: cut for m in led if (cut := life.record_of(m).cut) is not None and m.led.log_end > cut}
        await self._report_discarded(cuts)
        await self._cut(cuts, "the rest is to be mirrored over")
        self._reached("prepare.cut")
        replicated = await self._until_fully_replicated(led, _CATCH_UP_S)
        self._reached("prepare.leveled")
        await self._learn_source_epochs(replicated)
        await life.save(
            [
                replace(
                    life.record_of(m),
                    state=S.MIRRORING,
                    cut=None,
                    empty=False,
                    last_mirrored=-1,
                    last_mirrored_epoch=-1,
                    source_epochs=m.source_epochs.entries,
                )
                for m in self._still(S.PREPARING, replicated)
            ]
        )
        self._reached("prepare.stored")
        self._feed(self._still(S.MIRRORING, replicated))
        self._retry_unless_all(
            group, replicated, "leadership was not acquired, or in-sync followers did not catch up, in time"
        )

    async def mirror(self, group: Sequence[Mirrored]) -> None:
        """MIRRORING: lead it (again) and forward the source's batches."""
        led = await self._lead(group)
        for mirrored in led:
            await self._resume(mirrored)
        self._feed(led)
        self._retry_unless_all(group, led, "leadership was not acquired in time")

    async def _resume(self, mirrored: Mirrored) -> None:
        if mirrored.resumed:
            mirrored.resumed = False
            await RESUME[self._hub.design.resume](mirrored)
            await self._life.save_source_epochs([mirrored])

    async def pause(self, group: Sequence[Mirrored]) -> None:
        """PAUSING: no more records than some follower has already."""
        led = await self._lead(group)
        self._hold(led)
        replicated = await self._until_fully_replicated(led, self._hub.settings.drain_s)
        for mirrored in led:
            mirrored.led.feed = Feed.HELD
        paused = self._still(S.PAUSING, led)
        await self._life.save([replace(self._life.record_of(m), state=S.PAUSED) for m in paused])
        _LOG.info("paused: %d partitions, %d of them fully replicated", len(led), len(replicated))

    async def stay_paused(self, group: Sequence[Mirrored]) -> None:
        """PAUSED: lead it (again), and give nothing."""
        for mirrored in group:
            mirrored.led.feed = Feed.HELD
        await self._lead(group)

    async def hold(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Hold them for a take-over by another process; returns those that are fully replicated. The others go on."""
        self._hold(group)
        replicated = await self._until_fully_replicated(group, self._hub.settings.drain_s)
        self._feed([mirrored for mirrored in group if mirrored not in replicated])
        return replicated

    async def stop(self, group: Sequence[Mirrored]) -> None:
        """STOPPING: end the log and hand it to a real broker, writable."""
        life = self._life
        handed_over = await self._handed_over(group)
        await self._finish_stop(handed_over)
        group = [m for m in group if m not in handed_over]
        await self._await_inquiries(group)
        led = [m for m in await self._lead(group) if m.led.high_watermark is not None]
        await self._carry_on(led)
        self._hold(led)
        self._reached("stop.hold")
        await self._until_fully_replicated(led, self._hub.settings.drain_s)
        await self._cut({m: m.led.high_watermark or 0 for m in led if _uneven(m)}, "all in-sync followers have it")
        replicated = await self._until_fully_replicated(led, _CATCH_UP_S)
        self._reached("stop.leveled")
        on_stop, reset = self._hub.design.on_stop, PID_RESET[self._hub.design.pid_reset_record]
        ends = await asyncio.gather(*(CUT_AT_STOP[on_stop](self._hub, m.led) for m in replicated))
        await self._cut(dict(zip(replicated, ends, strict=True)), "no transaction is open there")
        replicated = await self._until_fully_replicated(replicated, _CATCH_UP_S)
        self._reached("stop.cut")
        await self._last_sync(sorted({life.key_of(m).mirror for m in replicated}))
        await self._store_offsets(replicated)
        self._reached("stop.offset_stored")
        await asyncio.gather(*(APPEND_AT_STOP[on_stop](self._hub, m.led) for m in replicated))
        self._reached("stop.transactions")
        replicated = await self._until_fully_replicated(replicated, _CATCH_UP_S)
        await asyncio.gather(*(reset(self._hub, m, life.record_of(m).last_mirrored) for m in replicated))
        self._reached("stop.reset_record")
        closed = await self._until_fully_replicated(replicated, _CATCH_UP_S)
        self._reached("stop.tail_leveled")
        await self._hand_to_real_brokers(closed)
        self._reached("stop.led_elsewhere")
        await self._finish_stop(closed)
        self._retry_unless_all(group, closed, "in-sync followers did not catch up in time")

    async def _carry_on(self, group: Sequence[Mirrored]) -> None:
        """First mirror what the source has decided, for partitions that were mirrored until the stop."""
        records = self._life.record_of
        able = [m for m in group if (r := records(m)).carry_on and r.cut is None and r.last_mirrored < 0]
        for mirrored in able:
            await self._resume(mirrored)
        self._reached("stop.carry_on")
        await STOP_AT[self._hub.design.stop_at](self._finishing, able)
        await self._await_inquiries(group)

    async def _handed_over(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Those of an interrupted stop that real brokers lead already: clients may write, the log stays as it is."""
        meta = await self._snapshots.snapshot()
        found = []
        for mirrored in group:
            part = meta.partition(mirrored.led.topic, mirrored.led.partition)
            stored = self._life.record_of(mirrored).last_mirrored >= 0
            if (
                stored
                and part is not None
                and part.leader is not None
                and all(b < FIRST_MIRROR_ID for b in part.replicas)
            ):
                found.append(mirrored)
        return found

    async def _finish_stop(self, group: Sequence[Mirrored]) -> None:
        life = self._life
        if not group:
            return
        await self._guard(sorted({m.led.topic for m in group}), False)
        self._reached("stop.unguarded")
        now = int(time.time() * 1000)
        await life.save([replace(life.record_of(m), state=S.STOPPED, stopped_at_ms=now) for m in group])
        self._reached("stop.stored")
        for mirrored in group:
            life.detach(life.key_of(mirrored))

    # --- parts of them -----------------------------------------------------------------------------------------

    async def _lead(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        by_led = {mirrored.led: mirrored for mirrored in group}
        self._reached("prepare.place")
        found = await self._leadership.take(list(by_led), in_sync=lambda: self._reached("prepare.in_sync"))
        return [by_led[led] for led in found]

    async def _report_discarded(self, cuts: Mapping[Mirrored, int]) -> None:
        """Record what a cut discards before it is made: a crash in between must not hide it."""
        records = []
        for mirrored, cut in cuts.items():
            said = f"offsets {cut} to {mirrored.led.log_end - 1} of this log are discarded, to mirror over them"
            records.append(replace(self._life.record_of(mirrored), error=said))
        await self._life.save(records)

    def _still(self, state: PartitionState, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Those that are still in this state: no other state was requested, and they did not fail."""
        return [m for m in group if self._life.record_of(m).state is state]

    def _feed(self, group: Sequence[Mirrored]) -> None:
        for mirrored in group:
            mirrored.led.limit = None
            mirrored.led.feed = Feed.SOURCE
        self._hub.wake()

    async def _await_inquiries(self, group: Sequence[Mirrored]) -> None:
        """Wait for cuts that are under way. Bounded."""
        inquiries = [m.inquiry for m in group if m.inquiry is not None]
        if inquiries:
            _, pending = await asyncio.wait(inquiries, timeout=_CATCH_UP_S)
            if pending:
                raise TimeoutError(f"waited {_CATCH_UP_S:g} s for cuts of {len(pending)} partitions that are under way")

    def _hold(self, group: Sequence[Mirrored]) -> None:
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

    async def _until_known(self, group: Sequence[Mirrored]) -> list[Mirrored]:
        """Wait until the followers' fetches show where the log ends; returns those where they do."""
        deadline = self._hub.clock() + _CATCH_UP_S
        while self._hub.clock() < deadline and any(m.led.high_watermark is None for m in group):
            self._hub.raise_if_maybe_fenced()
            await asyncio.sleep(_POLL_S)
        return [m for m in group if m.led.high_watermark is not None]

    async def _until_fully_replicated(self, group: Sequence[Mirrored], timeout_s: float) -> list[Mirrored]:
        """Wait until partitions are fully replicated; returns those that are."""
        deadline = self._hub.clock() + timeout_s
        while self._hub.clock() < deadline and not all(m.led.fully_replicated for m in group):
            self._hub.raise_if_maybe_fenced()
            await asyncio.sleep(_POLL_S)
        return [m for m in group if m.led.fully_replicated]

    async def _cut(self, ends: Mapping[Mirrored, int], why: str) -> None:
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

    async def _store_offsets(self, group: Sequence[Mirrored]) -> None:
        """The last mirrored offset, to which a failback cuts. An interrupted stop keeps its own."""
        records = []
        for mirrored in group:
            record = self._life.record_of(mirrored)
            if record.last_mirrored < 0:
                # What an outstanding cut would discard is not the source's.
                end = mirrored.led.log_end if record.cut is None else min(mirrored.led.log_end, record.cut)
                source = mirrored.led.shifts.source(end)
                epoch = mirrored.source_epochs.before(source)
                records.append(replace(record, last_mirrored=end, last_mirrored_epoch=epoch))
        await self._life.save(records)

    async def _hand_to_real_brokers(self, group: Sequence[Mirrored]) -> None:
        wanted = {}
        for mirrored in group:
            led = mirrored.led
            real = [b for b in led.replicas if b < FIRST_MIRROR_ID]
            able = [b for b in real if b in led.isr]
            wanted[led.topic, led.partition] = [*able, *(b for b in real if b not in able)]
        refused = await reassign_replicas(self._hub.destination, wanted)
        if refused:
            raise WireError(f"reassignments to real brokers are refused: {dict(list(refused.items())[:3])}")
        self._reached("stop.reassigned")
        await self._snapshots.until(
            lambda meta: all(
                (part := meta.partition(*key)) is not None
                and part.leader is not None
                and part.leader < FIRST_MIRROR_ID
                and self._hub.me not in part.replicas
                for key in wanted
            ),
            timeout_s=_LEADER_S,
            what=f"real brokers to lead {len(wanted)} stopped partitions",
        )

    async def _learn_source_epochs(self, group: Sequence[Mirrored]) -> None:
        """For partitions that have records, and are mirrored for the first time: both logs agree below the end."""
        by_leader: dict[tuple[object, int], dict[tuple[str, int], tuple[Mirrored, int]]] = {}
        for mirrored in group:
            if mirrored.led.log_end == 0 or mirrored.source_epochs.entries:
                continue
            leader = mirrored.link.leader(mirrored.led.topic, mirrored.led.partition)
            if leader is None:
                raise WireError(f"{mirrored.name} has no leader at the source")
            part = by_leader.setdefault((mirrored.link, leader[0]), {})
            part[mirrored.led.topic, mirrored.led.partition] = (mirrored, leader[1])
        for (_, broker), parts in by_leader.items():
            cluster = next(iter(parts.values()))[0].link.cluster
            found = await epoch_lists(cluster, broker, {key: epoch for key, (_, epoch) in parts.items()})
            if missing := sorted(parts.keys() - found.keys()):
                topic, partition = missing[0]
                raise WireError(f"{topic}-{partition}: broker {broker} of the source does not report its epochs now")
            for key, (epochs, _) in found.items():
                mirrored = parts[key][0]
                for epoch, start in epochs.entries:
                    if start < mirrored.led.log_end:
                        mirrored.source_epochs.begin(epoch, start)

    def _retry_unless_all(self, group: Sequence[Mirrored], done: Sequence[Mirrored], why: str) -> None:
        missing = [mirrored.name for mirrored in group if mirrored not in done]
        if missing:
            raise TimeoutError(f"{len(missing)} partitions ({missing[0]}, …) are tried again: {why}")

    def _reached(self, step: str) -> None:
        self._life.crash.reached(step)


def _uneven(mirrored: Mirrored) -> bool:
    """One in-sync follower has more of the source than another, which cannot catch up any more: the shortest counts."""
    led = mirrored.led
    return not led.fully_replicated and led.high_watermark is not None and led.high_watermark < led.log_end
