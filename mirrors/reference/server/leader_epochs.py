"""Raising the destination's leader epoch: to the source's, for preserved epochs (one policy per `epoch_bump` value), or
by any number, so that records after a cut can be told from those that were there before.

Followers drop batches whose epoch is above the leader epoch that they know. A leader epoch rises by one with every
change of leader: a real broker is elected, then this process again, as often as needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from harness.wire.frames import WireError
from mirrors.reference.server.design import EpochBump
from mirrors.reference.server.destination import elect_preferred, reassign_replicas
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.leadership import Leadership
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.settings import FIRST_MIRROR_ID
from mirrors.reference.server.source import Mirrored

_LOG = logging.getLogger(__name__)

_LEADER_S: Final = 10.0
_ROUNDS_AT_MOST: Final = 200


def never(_: Mirrored, __: int) -> bool:
    """Never, whatever the epoch is."""
    return False


def when_a_batch_has_it(mirrored: Mirrored, batch_epoch: int) -> bool:
    """A batch arrived with an epoch that followers would drop."""
    return batch_epoch > mirrored.led.leader_epoch


def when_the_source_has_it(mirrored: Mirrored, batch_epoch: int) -> bool:
    """The source's leader has the epoch already, whether a batch of it arrived or not."""
    leader = mirrored.link.leader(mirrored.led.topic, mirrored.led.partition)
    return max(batch_epoch, -1 if leader is None else leader[1]) > mirrored.led.leader_epoch


DUE: Final[Mapping[EpochBump, Callable[[Mirrored, int], bool]]] = {
    EpochBump.NONE: never,
    EpochBump.REACTIVE: when_a_batch_has_it,
    EpochBump.PROACTIVE: when_the_source_has_it,
}
"""Whether the leader epoch is to be raised before a batch of this epoch (-1: none) is forwarded."""


class LeaderEpochs:
    """Raises leader epochs by elections."""

    def __init__(self, hub: Hub, snapshots: MetadataSnapshots, leadership: Leadership) -> None:
        self._hub = hub
        self._snapshots = snapshots
        self._leadership = leadership

    async def raise_to(self, led: LedPartition, epoch: int) -> None:
        """Elect until the leader epoch is at least this. Raises WireError or TimeoutError."""
        for _ in range(_ROUNDS_AT_MOST):
            if led.leading and led.leader_epoch >= epoch:
                return
            await self.once([led])
        raise TimeoutError(f"{led.topic}-{led.partition}: the leader epoch stays below {epoch}")

    async def begin_epochs(self, partitions: Sequence[LedPartition]) -> None:
        """Raise leader epochs by any number. Raises WireError or TimeoutError when one does not begin."""
        before = {led: led.leader_epoch for led in partitions}
        for led in partitions:
            if not led.in_sync_followers:
                raise WireError(f"{led.topic}-{led.partition}: no follower is in sync, so no epoch can begin")
        await self.once(partitions)
        for led, epoch in before.items():
            if not led.leading or led.leader_epoch <= epoch:
                raise TimeoutError(f"{led.topic}-{led.partition}: no leader epoch above {epoch} began in time")

    async def once(self, partitions: Sequence[LedPartition]) -> None:
        """A real broker leads for a moment, then this process again: the leader epoch rises by two."""
        able = [led for led in partitions if led.leading and led.in_sync_followers]
        wanted = {}
        for led in able:
            real = [b for b in led.replicas if b < FIRST_MIRROR_ID]
            first = [b for b in real if b in led.isr][:1]
            wanted[led.topic, led.partition] = [*first, self._hub.me, *(b for b in real if b not in first)]
        refused = await reassign_replicas(self._hub.destination, wanted)
        refused.update(await elect_preferred(self._hub.destination, wanted))
        if refused:
            _LOG.info("elections for a higher epoch refused: %s", dict(list(refused.items())[:3]))
            raise WireError("elections for a higher epoch are refused")
        await self._snapshots.until(
            lambda meta: all((p := meta.partition(*key)) is not None and p.leader != self._hub.me for key in wanted),
            timeout_s=_LEADER_S,
            what="a real broker to lead for a moment",
        )
        await self._leadership.take(partitions, in_sync=lambda: None)
