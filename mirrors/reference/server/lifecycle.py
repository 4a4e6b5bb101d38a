"""The life cycle of mirrored partitions: states, and the partitions that this process has.

States are records in the state topic. A request (start, stop, pause, resume) only changes records; the work loop brings
each partition's log to its recorded state (see work_loop).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.core.errors import MirrorError
from mirrors.reference.server.design import Unclean
from mirrors.reference.server.epochs import EpochList, OffsetShifts
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.partition import Feed, LedPartition
from mirrors.reference.server.records import PartitionRecords
from mirrors.reference.server.source import Mirrored, SourceLink
from mirrors.reference.server.stamping import Stamp
from mirrors.reference.server.state_store import StateStore
from mirrors.reference.server.states import PartitionState, allowed
from mirrors.reference.server.steps import CrashPoints

_LOG = logging.getLogger(__name__)

_NOT_STORED_S: Final = 0.5

S = PartitionState

PLACED: Final = frozenset(S) - {S.STOPPED}
BEING_MIRRORED: Final = frozenset({S.MIRRORING, S.PAUSING, S.PAUSED})


class Lifecycle(PartitionRecords):
    """Changes of state, and the partitions of the records that belong to this process.

    poked: set when the work loop may have something to do. busy: partitions that it is working on. resumed: what was
    already mirrored when this process started.
    """

    def __init__(self, hub: Hub, store: StateStore, crash: CrashPoints) -> None:
        super().__init__(hub, store)
        self.crash = crash
        self.links: dict[str, SourceLink] = {}
        self.poked = asyncio.Event()
        self.busy: set[PartitionKey] = set()
        self.resumed: set[PartitionKey] = set()
        self._mirrored: dict[PartitionKey, Mirrored] = {}

    # --- states ------------------------------------------------------------------------------------------------

    async def request(self, keys: Iterable[PartitionKey], state: PartitionState, *, from_states: Iterable[S]) -> int:
        """Request another state. Raises MirrorError, and changes nothing, when one of them cannot go there."""
        await self.until_not_fenced()
        wanted, accepted = [], frozenset(from_states)
        for key in keys:
            record = self.records[key]
            if record.state is state:
                continue
            if record.state not in accepted or not allowed(record.state, state):
                raise MirrorError(
                    f"{key.topic}-{key.partition} of mirror {key.mirror} is {record.state}; it cannot become {state}"
                )
            carry_on = state is S.STOPPING and record.state in BEING_MIRRORED
            wanted.append(replace(record, state=state, error="", step="", carry_on=carry_on))
        await self.save(wanted)
        self.poked.set()
        return len(wanted)

    @property
    def at_rest(self) -> bool:
        """Whether no partition is being worked on."""
        return not self.busy and not self._saving

    def renew(self, stored: Mapping[PartitionKey, PartitionRecord]) -> bool:
        """Adopt the records of the state topic, whatever was known before. False: not now, work is in progress.

        For a process that others may have considered dead.
        """
        if not self.at_rest:
            return False
        for key in self.records.keys() - stored.keys():
            self.detach(key)
        for key, record in stored.items():
            if record != self.records.get(key):
                if record.owner == self.hub.me:
                    self.restart(key, record.topic_id)
                else:
                    self.detach(key)
                self.resumed.add(key)
        self.records.clear()
        self.records.update(stored)
        self.poked.set()
        return True

    async def fail(self, mirrored: Mirrored, why: str) -> None:
        """A partition cannot continue; its followers get no more records."""
        mirrored.led.feed = Feed.HELD
        key = self.key_of(mirrored)
        await self.save([replace(self.records[key], state=S.FAILED, error=why)])

    def key_of(self, mirrored: Mirrored) -> PartitionKey:
        """The key of a partition's record."""
        return PartitionKey(mirrored.link.mirror, mirrored.led.topic, mirrored.led.partition)

    def record_of(self, mirrored: Mirrored) -> PartitionRecord:
        """The record of a partition."""
        return self.records[self.key_of(mirrored)]

    @property
    def leads_anything(self) -> bool:
        """Whether a partition is placed on this process by its record."""
        return any(r.owner == self.hub.me and r.state in PLACED for r in self.records.values())

    def mirrored(self, key: PartitionKey) -> Mirrored | None:
        """A partition that this process has; None when another process has it."""
        return self._mirrored.get(key)

    # --- partitions --------------------------------------------------------------------------------------------

    def attach(self, record: PartitionRecord) -> Mirrored:
        """The partition of a record, held: followers get nothing until its state says so."""
        key = record.key
        known = self._mirrored.get(key)
        if known is not None and known.led.topic_id == record.topic_id:
            return known
        if known is not None:
            self.hub.remove(known.led)
        link, design = self.links[key.mirror], self.hub.design
        stamp = Stamp.of(
            leader_epoch=design.leader_epoch,
            producer_ids=design.producer_ids,
            gaps=design.gaps,
            source_cluster=link.cluster_id,
        )
        led = self.hub.partitions.get((record.topic_id, key.partition))
        if led is None:
            led = LedPartition(me=self.hub.me, topic=key.topic, partition=key.partition, topic_id=record.topic_id)
            if record.empty:
                led.hand_over(log_end=0, high_watermark=0, log_start=0, epochs=EpochList())
        led.own_epochs = stamp.rewrite_epochs
        made = Mirrored(led=led, link=link, source_topic_id=record.source_topic_id, stamp=stamp)
        for epoch, start in record.source_epochs:
            made.source_epochs.begin(epoch, start)
        for start, source in record.shifts:
            led.shifts.begin(start, source)
        made.check_epochs = design.unclean is Unclean.RECONCILE
        made.resumed = key in self.resumed
        self._mirrored[key] = made
        self.hub.add(led, made)
        return made

    def detach(self, key: PartitionKey) -> None:
        """Drop it: another process has it, or it is gone."""
        known = self._mirrored.pop(key, None)
        if known is not None:
            _cancel_inquiry(known)
            self.hub.remove(known.led)

    def restart(self, key: PartitionKey, topic_id: uuid.UUID) -> None:
        """Forget how it was mirrored. Where it is led here already, its followers stay known: they do not name it again
        in their fetches while the leader is the same."""
        known = self._mirrored.get(key)
        if known is None or known.led.topic_id != topic_id or not known.led.leading:
            self.detach(key)
            return
        del self._mirrored[key]
        _cancel_inquiry(known)
        self.hub.forget_source(known.led)
        known.led.feed, known.led.limit, known.led.shifts = Feed.HELD, None, OffsetShifts()
        self.hub.rewind(known.led)

    async def save_source_epochs(self, group: Sequence[Mirrored]) -> bool:
        """Store where the source's epochs began. False: not stored, so no record of the new epochs may be forwarded."""
        records = []
        for mirrored in group:
            record = self.records.get(self.key_of(mirrored))
            if record is None or record.owner != self.hub.me:
                return False
            epochs, shifts = mirrored.source_epochs.entries, mirrored.led.shifts.entries
            records.append(replace(record, source_epochs=epochs, shifts=shifts))
        try:
            await self.save(records)
        except MirrorError as error:
            _LOG.warning("source epochs of %d partitions (%s, …): %s", len(group), group[0].name, error)
            await asyncio.sleep(_NOT_STORED_S)  # the records that brought them are fetched again
            return False
        return True


def _cancel_inquiry(mirrored: Mirrored) -> None:
    """Cancel the inquiry into a refused offset, or the cut, that is in progress."""
    if mirrored.inquiry is not None:
        mirrored.inquiry.cancel()
