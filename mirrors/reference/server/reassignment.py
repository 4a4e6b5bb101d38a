"""Partitions change hands while both processes are alive: a process that joins later, or comes back, gets its share.

A process with too many holds a partition until it is fully replicated, writes the other process into the record and
asks the controller to put it in this one's place. The other one finds itself among the replicas, reads the record,
follows this one until it is in sync, and is elected. Until then this process stays leader and gives no records, so the
topic is never without a leader that refuses writes. Each step is repeated until it has taken effect; if a process dies
meanwhile, its partitions are taken over as usual (see sharing).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from harness.wire.metadata import Metadata
from mirrors.reference.server.destination import reassign_replicas
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.settings import FIRST_MIRROR_ID
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.work_loop import WorkLoop

_LOG = logging.getLogger(__name__)

Hold = Callable[[Sequence[Mirrored]], Awaitable[list[Mirrored]]]
"""Give these partitions no more records; returns those that are fully replicated."""

_LOAD_S: Final = 1.0  # between reads of the state topic


class Reassignment:
    """See the module."""

    def __init__(self, lifecycle: Lifecycle, loop: WorkLoop, *, hold: Hold) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._loop = loop
        self._hold = hold
        self._loaded_at = -_LOAD_S

    def give(self, leaving: Mapping[int, Sequence[PartitionKey]]) -> None:
        """Begin to hand these partitions over. leaving: process → the partitions it gets."""
        for process, keys in leaving.items():
            group = [m for m in map(self._life.mirrored, keys) if m is not None and m.led.leading]
            if group:
                self._loop.start(partial(self._give, process=process), group)

    async def push(self, meta: Metadata) -> None:
        """Move leadership of handed-over partitions to their new owners, and drop what moved. Raises WireError."""
        wanted = {}
        for key, record in self._life.records.items():
            mirrored = self._life.mirrored(key)
            if mirrored is None:
                continue
            if record.owner != self._hub.me and not mirrored.led.leading:
                self._life.detach(key)
                continue
            part = meta.partition(key.topic, key.partition)
            if not mirrored.led.leading or part is None or part.leader != self._hub.me:
                continue
            if [b for b in part.replicas if b >= FIRST_MIRROR_ID] != [record.owner]:
                real = [b for b in part.replicas if b < FIRST_MIRROR_ID]
                wanted[key.topic, key.partition] = [record.owner, *real]
        refused = await reassign_replicas(self._hub.destination, wanted)
        if refused:
            _LOG.info("handing over refused: %s", dict(list(refused.items())[:3]))

    async def adopt(self, meta: Metadata) -> None:
        """Start on what another process has handed to this one. Raises WireError or MirrorError."""
        now = self._hub.clock()
        if now - self._loaded_at < _LOAD_S or not self._placed_unasked(meta):
            return
        self._loaded_at = now
        await self.take_in((await self._life.store.load())[0])

    async def take_in(self, stored: Mapping[PartitionKey, PartitionRecord]) -> None:
        """Take over the partitions that records of the state topic assign to this process."""
        mine = [record for key, record in stored.items() if record.owner == self._hub.me and not self._have(key)]
        for record in mine:
            self._life.records[record.key] = record
        self._life.resumed.update(record.key for record in mine)
        if mine:
            self._life.poked.set()
            _LOG.info("%d partitions were handed to this process", len(mine))

    def _have(self, key: PartitionKey) -> bool:
        known = self._life.records.get(key)
        return known is not None and known.owner == self._hub.me

    def _placed_unasked(self, meta: Metadata) -> bool:
        """Whether this process is a replica of a partition of a mirrored topic that it does not know."""
        return any(
            self._hub.me in part.replicas and (name, part.partition) not in self._hub.by_name
            for name in self._hub.expected_topics
            if name in meta.topics
            for part in meta.topics[name].partitions.values()
        )

    async def _give(self, group: Sequence[Mirrored], *, process: int) -> None:
        replicated = await self._hold(group)
        records = [self._life.record_of(mirrored) for mirrored in replicated]
        await self._life.save([replace(record, owner=process, fence=record.fence + 1) for record in records])
        _LOG.info("%d of %d partitions are handed to process %d", len(replicated), len(group), process)
