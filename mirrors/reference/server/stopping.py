"""STOPPING: end a partition's log where its followers agree, and hand it to a real broker, writable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from harness.wire.frames import WireError
from mirrors.reference.server.closing import APPEND_AT_STOP, CUT_AT_STOP, PID_RESET
from mirrors.reference.server.destination import reassign_replicas
from mirrors.reference.server.finishing import STOP_AT, Finishing
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.led_logs import CATCH_UP_S, LedLogs
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.settings import FIRST_MIRROR_ID
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.states import PartitionState

_LEADER_S: Final = 15.0

S = PartitionState
LastSync = Callable[[Iterable[str]], Awaitable[None]]
"""Sync the groups of these mirrors a last time, for the partitions that are being stopped."""


class Stopping:
    """See the module. guard: keeps topics read-only while the process is dead."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        snapshots: MetadataSnapshots,
        logs: LedLogs,
        *,
        guard: Guard,
        last_sync: LastSync,
    ) -> None:
        self._life = lifecycle
        self._reached = lifecycle.crash.reached
        self._hub = lifecycle.hub
        self._snapshots = snapshots
        self._logs = logs
        self._guard = guard
        self._last_sync = last_sync
        self._finishing = Finishing(lifecycle, feed=logs.feed)

    async def stop(self, group: Sequence[Mirrored]) -> None:
        """STOPPING: end the log and hand it to a real broker, writable."""
        life = self._life
        handed_over = await self._handed_over(group)
        await self._finish_stop(handed_over)
        group = [m for m in group if m not in handed_over]
        await self._logs.await_inquiries(group)
        led = [m for m in await self._logs.lead(group) if m.led.high_watermark is not None]
        await self._carry_on(led)
        self._logs.hold(led)
        self._reached("stop.hold")
        await self._logs.until_fully_replicated(led, self._hub.settings.drain_s)
        uneven = {m: m.led.high_watermark or 0 for m in led if _uneven(m)}
        await self._logs.cut(uneven, "all in-sync followers have it")
        replicated = await self._logs.until_fully_replicated(led, CATCH_UP_S)
        self._reached("stop.leveled")
        on_stop, reset = self._hub.design.on_stop, PID_RESET[self._hub.design.pid_reset_record]
        ends = await asyncio.gather(*(CUT_AT_STOP[on_stop](self._hub, m.led) for m in replicated))
        await self._logs.cut(dict(zip(replicated, ends, strict=True)), "no transaction is open there")
        replicated = await self._logs.until_fully_replicated(replicated, CATCH_UP_S)
        self._reached("stop.cut")
        await self._last_sync(sorted({life.key_of(m).mirror for m in replicated}))
        await self._store_offsets(replicated)
        self._reached("stop.offset_stored")
        if self._hub.settings.mirroring_api:
            await self._logs.begin_epochs_after({m: life.record_of(m).last_mirrored_epoch for m in replicated})
        await asyncio.gather(*(APPEND_AT_STOP[on_stop](self._hub, m.led) for m in replicated))
        self._reached("stop.transactions")
        replicated = await self._logs.until_fully_replicated(replicated, CATCH_UP_S)
        await asyncio.gather(*(reset(self._hub, m, life.record_of(m).last_mirrored) for m in replicated))
        self._reached("stop.reset_record")
        closed = await self._logs.until_fully_replicated(replicated, CATCH_UP_S)
        self._reached("stop.tail_leveled")
        await self._hand_to_real_brokers(closed)
        self._reached("stop.led_elsewhere")
        await self._finish_stop(closed)
        self._logs.retry_unless_all(group, closed, "in-sync followers did not catch up in time")

    async def _carry_on(self, group: Sequence[Mirrored]) -> None:
        """First mirror what the source has decided, for partitions that were mirrored until the stop."""
        records = self._life.record_of
        able = [m for m in group if (r := records(m)).carry_on and r.cut is None and r.last_mirrored < 0]
        for mirrored in able:
            await self._logs.resume(mirrored)
        self._reached("stop.carry_on")
        await STOP_AT[self._hub.design.stop_at](self._finishing, able)
        await self._logs.await_inquiries(group)

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


def _uneven(mirrored: Mirrored) -> bool:
    """One in-sync follower has more of the source than another, which cannot catch up any more: the shortest counts."""
    led = mirrored.led
    return not led.fully_replicated and led.high_watermark is not None and led.high_watermark < led.log_end
