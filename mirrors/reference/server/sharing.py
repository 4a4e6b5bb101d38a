"""Several processes share one destination's partitions: which takes over from one that died, and which gets a share.

A partition whose process is gone goes to its owner among the others (see peers). Once the set of live processes is
stable for some seconds, each gets its share by the hash (see reassignment). Only the owner writes a partition's record,
so the state topic needs no locks: a process that takes over reads the record first, and raises the fencing token (see
fencing).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.peers import Peers, owner
from mirrors.reference.server.periodic import keep
from mirrors.reference.server.reassignment import Reassignment
from mirrors.reference.server.states import PartitionState

_LOG = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_STALE_S: Final = 0.1  # while nothing may be done because the records are stale
_GONE_S: Final = 2.0  # how long a process is missing before its partitions are taken over
_SETTLED_S: Final = 5.0  # how long the live processes must be the same before partitions move between them


def leaving(
    records: Mapping[PartitionKey, PartitionRecord], *, me: int, live: Iterable[int]
) -> dict[int, list[PartitionKey]]:
    """What this process has and another live one should have: process → partitions. Mirrored ones only."""
    found: dict[int, list[PartitionKey]] = {}
    alive = list(live)
    if alive == [me]:
        return found
    for key, record in records.items():
        if record.owner == me and record.state is PartitionState.MIRRORING:
            to = owner(key, alive)
            if to != me:
                found.setdefault(to, []).append(key)
    return found


class Sharing:
    """Takes over from processes that are gone, and gives to those that have less than their share."""

    def __init__(
        self, lifecycle: Lifecycle, snapshots: MetadataSnapshots, peers: Peers, reassignment: Reassignment
    ) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._snapshots = snapshots
        self._peers = peers
        self._reassignment = reassignment
        self._met: set[int] = (
            set()
        )  # processes that were alive: they may have partitions that this one has not heard of
        self._missed_since: dict[int, float] = {}
        self._together: tuple[frozenset[int], float] = (frozenset(), 0.0)  # the live processes, and since when

    async def keep(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(self._pause())
        await keep("sharing", self._pause, self._check)

    def _pause(self) -> float:
        return _STALE_S if self._hub.records_are_stale else _EVERY_S

    async def _check(self) -> None:
        now, live = self._hub.clock(), self._peers.live()
        meta = self._snapshots.last
        if meta is None or self._hub.me not in meta.brokers:
            return  # fenced: others will consider this one gone
        if self._hub.records_are_stale:
            # A process that considered it dead may be about to take over from it.
            early = not self._peers.alone and now - self._hub.suspected_at < _GONE_S + _EVERY_S
            if early or not await self._renew():
                return
        self._met |= live - {self._hub.me}
        owners = {record.owner for record in self._life.records.values()} | set(self._missed_since) | self._met
        for process in owners - live:
            since = self._missed_since.setdefault(process, now)
            if now - since >= _GONE_S:
                await self._take_over(process, live)
                del self._missed_since[process]
                self._met.discard(process)
        for process in live & set(self._missed_since):
            del self._missed_since[process]
        await self._reassignment.adopt(meta)
        self._share(now, live)
        await self._reassignment.push(meta)

    async def _renew(self) -> bool:
        """Others may have taken over from this process: read the stored records again."""
        suspicions = self._hub.suspicions
        if not self._life.at_rest or not self._life.renew((await self._life.store.load())[0]):
            return False
        if self._hub.suspicions != suspicions:  # it happened again meanwhile
            return False
        self._hub.expected_topics.update(key.topic for key in self._life.records)
        self._hub.records_are_stale = False
        _LOG.info("records were read again: other processes may have considered this one dead")
        return True

    def _share(self, now: float, live: frozenset[int]) -> None:
        """Give others their share once no process came or went for a while."""
        if live != self._together[0] or self._missed_since:
            self._together = (live, now)
        elif now - self._together[1] >= _SETTLED_S:
            wanted = leaving(self._life.records, me=self._hub.me, live=live)
            self._reassignment.give({to: [key for key in keys if self._fed(key)] for to, keys in wanted.items()})

    def _fed(self, key: PartitionKey) -> bool:
        mirrored = self._life.mirrored(key)
        return mirrored is not None and mirrored.led.feed is Feed.SOURCE and key not in self._life.busy

    async def _take_over(self, process: int, live: frozenset[int]) -> None:
        stored, _ = await self._life.store.load()
        if process in (await self._snapshots.snapshot()).brokers:
            return  # it is back
        await self._reassignment.take_in(stored)
        mine = []
        for key, record in stored.items():
            if record.owner == process and owner(key, live) == self._hub.me:
                mine.append(replace(record, owner=self._hub.me, fence=record.fence + 1))
                held = self._life.mirrored(key)
                if held is not None:  # it was being handed to that process
                    held.led.feed = Feed.HELD
            elif record.owner != self._hub.me:
                self._life.records[key] = record
                self._life.detach(key)
        self._hub.expected_topics.update(key.topic for key in stored)
        self._life.resumed.update(record.key for record in mine)
        await self._life.save(mine)
        self._life.poked.set()
        _LOG.info("process %d is gone: %d of its partitions belong to this process now", process, len(mine))
