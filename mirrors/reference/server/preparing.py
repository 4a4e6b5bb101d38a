"""PREPARING: lead a partition, cut its log to where it agrees with the source, then mirror."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.wire.frames import WireError
from mirrors.reference.server.following import epoch_lists
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.led_logs import CATCH_UP_S, LedLogs
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.states import PartitionState

S = PartitionState


class Preparing:
    """See the module. guard: keeps topics read-only while the process is dead."""

    def __init__(self, lifecycle: Lifecycle, logs: LedLogs, *, guard: Guard) -> None:
        self._life = lifecycle
        self._reached = lifecycle.crash.reached
        self._logs = logs
        self._guard = guard

    async def prepare(self, group: Sequence[Mirrored]) -> None:
        """PREPARING: lead the partition, truncate it to where it agrees with the source, then mirror."""
        life = self._life
        for mirrored in group:
            mirrored.led.feed, mirrored.resumed = Feed.HELD, False
        await self._guard(sorted({m.led.topic for m in group}), True)
        led = await self._logs.until_known(await self._logs.lead(group))
        self._reached("prepare.led")
        cuts = {m: cut for m in led if (cut := life.record_of(m).cut) is not None and m.led.log_end > cut}
        await self._report_discarded(cuts)
        await self._logs.cut(cuts, "the rest is to be mirrored over")
        self._reached("prepare.cut")
        replicated = await self._logs.until_fully_replicated(led, CATCH_UP_S)
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
                for m in self._logs.still_in(S.PREPARING, replicated)
            ]
        )
        self._reached("prepare.stored")
        self._logs.feed(self._logs.still_in(S.MIRRORING, replicated))
        self._logs.retry_unless_all(
            group, replicated, "leadership was not acquired, or in-sync followers did not catch up, in time"
        )

    async def _report_discarded(self, cuts: Mapping[Mirrored, int]) -> None:
        """Record what a cut discards before it is made: a crash in between must not hide it."""
        records = []
        for mirrored, cut in cuts.items():
            said = f"offsets {cut} to {mirrored.led.log_end - 1} of this log are discarded, to mirror over them"
            records.append(replace(self._life.record_of(mirrored), error=said))
        await self._life.save(records)

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
