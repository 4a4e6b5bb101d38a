"""Several processes share one destination's partitions: who leads which, and who takes over from one that died.

Processes are brokers from id 100 on; those that the controller has unfenced are alive. A new partition goes to the
live process with the highest hash of (mirror, topic, partition, process); a partition whose process is gone goes to
the highest among the others, and stays there when the first one comes back. Only the owner writes a partition's
record, so the state topic needs no locks: who takes over reads it first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from harness.mirrors.reference.lifecycle import Lifecycle
from harness.mirrors.reference.looking import Looking
from harness.mirrors.reference.model import PartitionKey
from harness.mirrors.reference.periodic import keep
from harness.mirrors.reference.state_store import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_GONE_S: Final = 2.0  # a process is missed for so long before its partitions are taken over


def owner(key: PartitionKey, live: Iterable[int]) -> int:
    """The live process that a partition goes to: rendezvous hashing. Raises ValueError when none lives."""
    return max(live, key=lambda process: _weight(key, process))


def _weight(key: PartitionKey, process: int) -> bytes:
    text = f"{key.mirror}/{key.topic}/{key.partition}/{process}"
    return blake2b(text.encode(), digest_size=8).digest()


class Sharing:
    """Takes over from processes that are gone."""

    def __init__(self, lifecycle: Lifecycle, looking: Looking) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._looking = looking
        self._missed_since: dict[int, float] = {}

    def live(self) -> frozenset[int]:
        """Processes that the controller has unfenced; this one always."""
        meta = self._looking.last
        others = () if meta is None else (b for b in meta.brokers if b >= FIRST_MIRROR_ID)
        return frozenset({self._hub.me, *others})

    def owners(self, mirror: str, topic: str, partitions: int) -> list[int]:
        """Who leads each partition of a topic: its owner while that lives."""
        live = self.live()
        found = []
        for partition in range(partitions):
            key = PartitionKey(mirror, topic, partition)
            known = self._life.records.get(key)
            found.append(known.owner if known is not None and known.owner in live else owner(key, live))
        return found

    async def keep(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(_EVERY_S)
        await keep("sharing", _EVERY_S, self._look)

    async def _look(self) -> None:
        now, live = self._hub.clock(), self.live()
        meta = self._looking.last
        if meta is None or self._hub.me not in meta.brokers:
            return  # fenced: others will think that this one is gone
        owners = {record.owner for record in self._life.records.values()} | set(self._missed_since)
        for process in owners - live:
            since = self._missed_since.setdefault(process, now)
            if now - since >= _GONE_S:
                await self._take_over(process, live)
                del self._missed_since[process]
        for process in live & set(self._missed_since):
            del self._missed_since[process]

    async def _take_over(self, process: int, live: frozenset[int]) -> None:
        stored, _ = await self._life.store.load()
        mine = []
        for key, record in stored.items():
            if record.owner == process and owner(key, live) == self._hub.me:
                mine.append(replace(record, owner=self._hub.me))
            elif record.owner != self._hub.me:
                self._life.records[key] = record
                self._life.detach(key)
        self._hub.expected_topics.update(key.topic for key in stored)
        self._life.resumed.update(record.key for record in mine)
        await self._life.save(mine)
        self._life.poked.set()
        _LOG.info("process %d is gone: %d of its partitions are ours now", process, len(mine))
