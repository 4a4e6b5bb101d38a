"""The processes that share one destination: which are alive, which partitions each should have, what others stored.

Processes are brokers with ids from 100 on; those that the controller has unfenced are alive. A new partition goes to
the live process with the highest hash of (mirror, topic, partition, process), see `owner`.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.model import PartitionKey
from mirrors.reference.server.settings import FIRST_MIRROR_ID


def owner(key: PartitionKey, live: Iterable[int]) -> int:
    """The live process that a partition goes to: rendezvous hashing. Raises ValueError when none is alive."""
    return max(live, key=lambda process: _weight(key, process))


def _weight(key: PartitionKey, process: int) -> bytes:
    text = f"{key.mirror}/{key.topic}/{key.partition}/{process}"
    return blake2b(text.encode(), digest_size=8).digest()


class Peers:
    """The processes of one destination, as this one sees them."""

    def __init__(self, lifecycle: Lifecycle, snapshots: MetadataSnapshots) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._snapshots = snapshots
        self._alone = True  # no other process has ever been seen

    def live(self) -> frozenset[int]:
        """Processes that the controller has unfenced; this one always."""
        meta = self._snapshots.last
        others = () if meta is None else (b for b in meta.brokers if b >= FIRST_MIRROR_ID)
        found = frozenset({self._hub.me, *others})
        self._alone = self._alone and len(found) == 1
        return found

    @property
    def alone(self) -> bool:
        """Whether this process has never seen another one: nobody else has written anything."""
        self.live()
        return self._alone and all(record.owner == self._hub.me for record in self._life.records.values())

    async def learn(self) -> None:
        """Read what other processes have done. Raises WireError or MirrorError."""
        if self.alone:
            return
        stored, _ = await self._life.store.load()
        for key, record in stored.items():
            if record.owner != self._hub.me and self._life.mirrored(key) is None:
                self._life.records[key] = record

    def owners(self, mirror: str, topic: str, partitions: int) -> list[int]:
        """The leader of each partition of a topic: its owner while that is alive."""
        live = self.live()
        found = []
        for partition in range(partitions):
            key = PartitionKey(mirror, topic, partition)
            known = self._life.records.get(key)
            found.append(known.owner if known is not None and known.owner in live else owner(key, live))
        return found
