"""Moves partitions that the controller placed on this broker, though no mirror asked for it, to real brokers.

The controller takes any live broker for the replicas of a new topic. Coordinators' topics are therefore created before
this broker registers; other topics' partitions are led and held here until they are reassigned.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from harness.wire.cluster import GROUP, SHARE, TRANSACTION, Cluster
from harness.wire.frames import WireError
from harness.wire.metadata import Metadata
from mirrors.reference.server.destination import reassign_replicas
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.periodic import keep
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

_EVERY_S: Final = 0.2
_GRACE_S: Final = 10.0  # time for this process to learn of a topic that another one created for both
_CREATE_S: Final = 20.0
_COORDINATED: Final = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state", SHARE: "__share_group_state"}
_SHARE_KEY: Final = "mirror:AAAAAAAAAAAAAAAAAAAAAQ:0"  # group:topic ID:partition


async def create_coordinator_topics(cluster: Cluster) -> None:
    """Have the brokers create their coordinators' topics before this process is a broker. Bounded."""
    async with asyncio.timeout(_CREATE_S):
        for kind, topic in _COORDINATED.items():
            while topic not in (await cluster.metadata((topic,))).topics:
                try:
                    await cluster.coordinator_of(_SHARE_KEY if kind == SHARE else "mirror", kind)
                except WireError as error:
                    if "UNSUPPORTED" in str(error).upper() or "INVALID" in str(error).upper():
                        _LOG.info("no %s: %s", topic, error)
                        break
                await asyncio.sleep(_EVERY_S)


class Strays:
    """Moves strays away. The ISR keeper first lets the new replica join the in-sync set here."""

    def __init__(self, hub: Hub, snapshots: MetadataSnapshots) -> None:
        self._hub = hub
        self._snapshots = snapshots
        self._since: dict[LedPartition, float] = {}

    async def keep(self) -> None:
        """Until cancelled."""
        await keep("strays", _EVERY_S, self._move)

    async def _move(self) -> None:
        meta = self._snapshots.last
        if meta is None or not self._snapshots.strays:
            return
        left, wanted = [], {}
        for led in self._snapshots.strays:
            topic = meta.topics.get(led.topic)
            part = None if topic is None or topic.topic_id != led.topic_id else topic.partitions.get(led.partition)
            if led.topic in self._hub.expected_topics:
                continue  # another process created it for this one as well
            if part is None or self._hub.me not in part.replicas:
                self._hub.remove(led)
                continue
            left.append(led)
            since = self._since.setdefault(led, self._hub.clock())
            if any(b >= FIRST_MIRROR_ID and b != self._hub.me for b in meta.brokers) and (
                self._hub.clock() - since < _GRACE_S
            ):
                continue
            wanted[led.topic, led.partition] = _real_replicas(meta, led, part.replicas)
        self._snapshots.strays[:] = left
        refused = await reassign_replicas(self._hub.destination, wanted)
        if refused:
            _LOG.info("strays stay: %s", dict(list(refused.items())[:3]))
        if wanted:
            self._hub.refresh_now.set()


def _real_replicas(meta: Metadata, led: LedPartition, replicas: tuple[int, ...]) -> list[int]:
    """Its real replicas, and another real broker in this one's place."""
    kept = [b for b in replicas if b < FIRST_MIRROR_ID]
    others = sorted(b for b in meta.brokers if b < FIRST_MIRROR_ID and b not in kept)
    missing = len(replicas) - len(kept)
    start = led.partition % len(others) if others else 0
    return kept + (others[start:] + others[:start])[:missing]
