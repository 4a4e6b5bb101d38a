"""Syncs groups' offsets from the source to the destination, for the partitions that this process mirrors.

Pure functions decide what is written; a switch's values are looked up in tables. Nothing is written for partitions
that are stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from harness.wire.frames import WireError
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.design import Design, GroupGuard, GroupOffsets, LeaderEpoch
from mirrors.reference.server.group_force import force_offsets
from mirrors.reference.server.group_wire import (
    NO_EPOCH,
    Committed,
    Group,
    GroupKind,
    Groups,
    TopicPartition,
    groups_of,
    offsets_of,
    write_offsets,
)
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import MirrorConfig
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.states import PartitionState
from mirrors.reference.server.topics import MIRRORED_STATES

_LOG = logging.getLogger(__name__)

_LAST_SYNC_S: Final = 10.0
STOPPED_NOW: Final = frozenset({PartitionState.STOPPING})


@dataclass(frozen=True, kw_only=True)
class Room:
    """The offset range of one partition's log on the destination. shift: source offset → destination offset."""

    log_start: int
    log_end: int
    shift: Callable[[int], int] = lambda offset: offset


@dataclass(frozen=True, kw_only=True)
class GroupChange:
    """One offset to be written. old: the destination's current offset, None when there is none."""

    group: str
    kind: GroupKind
    partition: TopicPartition
    old: int | None
    new: Committed
    source_offset: int
    state: str
    active: bool


def clamped(offset: int, room: Room) -> int:
    """Clamped into the log: a consumer that resumes there needs no auto.offset.reset."""
    return max(room.log_start, min(room.shift(offset), room.log_end))


OFFSET: Final[Mapping[GroupOffsets, Callable[[int, Room], int]]] = {
    GroupOffsets.CLAMPED: clamped,
    GroupOffsets.RAW: lambda offset, _: offset,
}
EPOCH: Final[Mapping[LeaderEpoch, Callable[[int], int]]] = {
    LeaderEpoch.REWRITE: lambda _: NO_EPOCH,  # the source's epochs mean nothing on the destination
    LeaderEpoch.PRESERVE: lambda epoch: epoch,
}
MAY_WRITE: Final[Mapping[GroupGuard, Callable[[Group | None, bool], bool]]] = {
    GroupGuard.INACTIVE_ONLY: lambda group, all_answered: all_answered if group is None else not group.active,
    GroupGuard.NONE: lambda _, __: True,
}
"""(the destination's group, whether all of its brokers listed their groups) → may it be written?"""


def wanted_groups(config: MirrorConfig, groups: Iterable[Group]) -> list[Group]:
    """Those that match the mirror's patterns."""
    include, exclude = re.compile(config.groups), re.compile(config.exclude_groups)
    return [g for g in groups if include.fullmatch(g.name) and not exclude.fullmatch(g.name)]


def is_due(old: int | None, new: int, *, last_written: int | None, guard: GroupGuard) -> bool:
    """Whether an offset is to overwrite another.

    Backwards only over what this mirror wrote itself: a greater one that somebody else committed on the destination
    stays.
    """
    if old == new:
        return False
    if old is None or new > old or guard is GroupGuard.NONE:
        return True
    return old == last_written


def group_changes(
    design: Design,
    groups: Iterable[Group],
    source: Mapping[tuple[str, GroupKind], Mapping[TopicPartition, Committed]],
    there: Groups,
    current: Mapping[tuple[str, GroupKind], Mapping[TopicPartition, Committed]],
    rooms: Mapping[TopicPartition, Room],
    written: Mapping[tuple[str, TopicPartition], int],
) -> list[GroupChange]:
    """The offsets to write. written: (group, partition) → what this mirror wrote last."""
    offset_of, epoch_of = OFFSET[design.group_offsets], EPOCH[design.leader_epoch]
    may_write = MAY_WRITE[design.group_guard]
    changes = []
    for group in groups:
        other = there.found.get(group.name)
        key = (group.name, group.kind)
        if not may_write(other, not there.silent) or (other is not None and key not in current):
            continue
        for partition, committed in source.get(key, {}).items():
            if partition not in rooms:
                continue
            old = current.get(key, {}).get(partition)
            new = Committed(
                offset=offset_of(committed.offset, rooms[partition]),
                leader_epoch=epoch_of(committed.leader_epoch),
                metadata=committed.metadata,
            )
            before = None if old is None else old.offset
            last = written.get((group.name, partition))
            if is_due(before, new.offset, last_written=last, guard=design.group_guard):
                changes.append(
                    GroupChange(
                        group=group.name,
                        kind=group.kind,
                        partition=partition,
                        old=before,
                        new=new,
                        source_offset=committed.offset,
                        state="Dead" if other is None else other.state,
                        active=other is not None and other.active,
                    )
                )
    return changes


class GroupSync:
    """The task around it."""

    def __init__(self, mirrors: Mirrors, lifecycle: Lifecycle, audit: AuditLog, guard: Guard) -> None:
        self._mirrors = mirrors
        self._life = lifecycle
        self._audit = audit
        self._guard = guard
        self._one_at_a_time = asyncio.Lock()
        self._written: dict[tuple[str, TopicPartition], int] = {}

    async def sync_all(self) -> None:
        """Every mirror once. Raises WireError."""
        for config in list(self._mirrors.configs.values()):
            await self.sync(config)

    async def sync(self, config: MirrorConfig, states: Collection[PartitionState] = MIRRORED_STATES) -> None:
        """One mirror once, for its partitions in these states. Raises WireError.

        One at a time: another sync's older snapshot of the source would revert what this one wrote.
        """
        async with self._one_at_a_time:
            await self._sync(config, states)

    async def sync_last(self, mirrors: Iterable[str]) -> None:
        """Part of a stop, when the log end is known and nobody else writes yet: syncs the offsets that groups committed
        until now, if the source can still be asked."""
        for name in mirrors:
            with contextlib.suppress(WireError, TimeoutError):
                async with asyncio.timeout(_LAST_SYNC_S):
                    await self.sync(self._mirrors.configs[name], STOPPED_NOW)

    async def _sync(self, config: MirrorConfig, states: Collection[PartitionState]) -> None:
        if not any(True for _ in self._led(config.name, states)):
            return
        source, destination = self._life.links[config.name].cluster, self._life.hub.destination
        wanted = wanted_groups(config, (await groups_of(source)).found.values())
        if not wanted:
            return
        committed = await offsets_of(source, wanted)
        there = await groups_of(destination)
        names = {group.name for group in wanted}
        current = await offsets_of(destination, [g for g in there.found.values() if g.name in names])
        # The log end is read last: what a group has read is there by then, and what is stopped by then is skipped.
        rooms = self._rooms(config.name, states)
        changes = group_changes(self._life.hub.design, wanted, committed, there, current, rooms, self._written)
        for key in dict.fromkeys((change.group, change.kind) for change in changes):
            # A stop waits for a write that began before it; no write begins after it.
            async with self._guard.changing:
                left = self._rooms(config.name, states)
                ours = [c for c in changes if (c.group, c.kind) == key and c.partition in left]
                if ours:
                    await self._write(config.name, ours)

    def _led(self, mirror: str, states: Collection[PartitionState]) -> Iterator[LedPartition]:
        """Partitions of one mirror in these states whose high watermark this process knows."""
        for key, record in self._life.records.items():
            if key.mirror == mirror and record.state in states:
                found = self._life.mirrored(key)
                if found is not None and found.led.leading and found.led.high_watermark is not None:
                    yield found.led

    def _rooms(self, mirror: str, states: Collection[PartitionState]) -> dict[TopicPartition, Room]:
        return {
            (led.topic, led.partition): Room(
                log_start=led.sent_log_start, log_end=led.high_watermark or 0, shift=led.shifts.destination
            )
            for led in self._led(mirror, states)
        }

    async def _write(self, mirror: str, changes: list[GroupChange]) -> None:
        """Write one group's offsets."""
        group, kind = changes[0].group, changes[0].kind
        cluster = self._life.hub.destination
        offsets = {change.partition: change.new for change in changes}
        try:
            if changes[0].active and kind is GroupKind.CONSUMER:
                refused = await force_offsets(cluster, group, offsets)
            else:
                refused = await write_offsets(cluster, group, kind, offsets)
        except WireError as error:
            _LOG.info("offsets of group %s: %s", group, error)
            return
        for change in changes:
            if change.partition in refused:
                _LOG.info("offset of group %s, %s-%d: %s", group, *change.partition, refused[change.partition])
                continue
            self._written[group, change.partition] = change.new.offset
            self._audit.add(
                EventKind.GROUP,
                mirror,
                group=group,
                group_kind=str(kind),
                state=change.state,
                members=int(change.active),  # a lower bound
                topic=change.partition[0],
                partition=change.partition[1],
                old=change.old,
                offset=change.new.offset,
                source_offset=change.source_offset,
                leader_epoch=change.new.leader_epoch,
            )
