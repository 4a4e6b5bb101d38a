"""The life cycle of mirrored partitions: a loop that brings each partition's log to its recorded state.

States are records in the state topic. A request (start, stop, pause, resume) only changes records; the loop does the
work in groups of partitions and may be interrupted anywhere: after a restart the records say what to do, the
destination's metadata and the followers' logs say how far it got. The named steps are in `steps`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.server.design import Unclean
from mirrors.reference.server.epochs import EpochList, OffsetShifts
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.model import PartitionKey, PartitionRecord, rebased
from mirrors.reference.server.pace import poll_interval
from mirrors.reference.server.partition import Feed, LedPartition
from mirrors.reference.server.source import Mirrored, SourceLink
from mirrors.reference.server.stamping import Stamp
from mirrors.reference.server.state_store import StateStore
from mirrors.reference.server.states import PartitionState, allowed
from mirrors.reference.server.steps import CrashPoints

_LOG = logging.getLogger(__name__)

_TICK_S: Final = 0.2  # at the latest, without a poke
_BACK_OFF_S: Final = 1.0
_NOT_STORED_S: Final = 0.5
_NOT_FENCED_S: Final = 5.0
_NOT_FENCED_POLL_S: Final = 0.05

S = PartitionState
Work = Callable[[Sequence[Mirrored]], Any]
Listener = Callable[[PartitionRecord | None, PartitionRecord], None]

PLACED: Final = frozenset(S) - {S.STOPPED}
CARRYING: Final = frozenset({S.MIRRORING, S.PAUSING, S.PAUSED})
TO_BE_LED: Final = frozenset({S.PREPARING, S.MIRRORING, S.PAUSING, S.PAUSED, S.STOPPING})


class Lifecycle:
    """Records, their partitions, and the loop. work: the work of each state, set by the process."""

    def __init__(self, hub: Hub, store: StateStore, crash: CrashPoints) -> None:
        self.hub = hub
        self.store = store
        self.crash = crash
        self.records: dict[PartitionKey, PartitionRecord] = {}
        self.links: dict[str, SourceLink] = {}
        self.work: dict[PartitionState, Work] = {}
        self.listeners: list[Listener] = []
        self.poked = asyncio.Event()
        self.resumed: set[PartitionKey] = set()  # what was already mirrored when this process started
        self._mirrored: dict[PartitionKey, Mirrored] = {}
        self._busy: set[PartitionKey] = set()
        self._not_before: dict[PartitionKey, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._saving: dict[PartitionKey, asyncio.Future[None]] = {}

    # --- records -----------------------------------------------------------------------------------------------

    async def save(self, records: Sequence[PartitionRecord]) -> None:
        """Store records, then adopt them. Raises MirrorError when they cannot be stored, may be stale, or belong to
        another process.

        They are changes of the records as of the call: a change that is being stored meanwhile is not undone.
        """
        if not records:
            return
        if self.hub.maybe_fenced:
            raise MirrorError(self.hub.why_maybe_fenced)
        for record in records:
            now = self.records.get(record.key)
            if now is not None and now.owner != self.hub.me and record.owner != self.hub.me:
                raise MirrorError(f"{record.key.topic}-{record.key.partition} belongs to process {now.owner} now")
        known = {record.key: self.records.get(record.key) for record in records}
        while under_way := {self._saving[key] for key in known if key in self._saving}:
            await asyncio.wait(under_way)
        done = asyncio.get_running_loop().create_future()
        self._saving.update(dict.fromkeys(known, done))
        try:
            await self._save([rebased(record, known[record.key], self.records.get(record.key)) for record in records])
        finally:
            for key in known:
                del self._saving[key]
            done.set_result(None)

    async def until_not_fenced(self) -> None:
        """Wait while other processes may have taken over from this one. Raises MirrorError after 5 s."""
        deadline = self.hub.clock() + _NOT_FENCED_S
        while self.hub.maybe_fenced:
            if self.hub.clock() > deadline:
                raise MirrorError(self.hub.why_maybe_fenced)
            await asyncio.sleep(_NOT_FENCED_POLL_S)

    async def _save(self, records: Sequence[PartitionRecord]) -> None:
        await self.store.put(records)
        for record in records:
            old = self.records.get(record.key)
            self.records[record.key] = record
            if old is None or old.state is not record.state or old.error != record.error:
                was = "-" if old is None else old.state
                _LOG.info("%s-%d: %s -> %s %s", record.key.topic, record.key.partition, was, record.state, record.error)
            for listener in self.listeners:
                listener(old, record)

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
            carry_on = state is S.STOPPING and record.state in CARRYING
            wanted.append(replace(record, state=state, error="", step="", carry_on=carry_on))
        await self.save(wanted)
        self.poked.set()
        return len(wanted)

    @property
    def at_rest(self) -> bool:
        """Whether no partition is being worked on."""
        return not self._busy and not self._saving

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

    # --- the loop ----------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self._dispatch()
            except Exception:
                _LOG.exception("life cycle")
            self.poked.clear()
            try:
                async with asyncio.timeout(poll_interval(_TICK_S, len(self._mirrored))):
                    await self.poked.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Interrupt all work in progress."""
        tasks = [*self._tasks, *(m.inquiry for m in self._mirrored.values() if m.inquiry is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _dispatch(self) -> None:
        if self.hub.maybe_fenced:
            return
        now = self.hub.clock()
        groups: dict[PartitionState, list[Mirrored]] = {}
        for key, record in self.records.items():
            if record.owner != self.hub.me or key in self._busy or self._not_before.get(key, 0.0) > now:
                continue
            if record.state not in TO_BE_LED or key.mirror not in self.links:
                continue
            mirrored = self.attach(record)
            if self._settled(record, mirrored):
                continue
            groups.setdefault(record.state, []).append(mirrored)
        for state, group in groups.items():
            self.start(self.work[state], group)

    @staticmethod
    def _settled(record: PartitionRecord, mirrored: Mirrored) -> bool:
        if record.state is S.MIRRORING:  # an inquiry (`inquiry`) holds the feed, and may give up leadership
            led = mirrored.led  # held for another process that did not take it, or fed
            return mirrored.inquiry is not None or (led.leading and led.feed is Feed.SOURCE and led.limit is None)
        if record.state is S.PAUSED:
            return mirrored.led.leading
        return False

    def busy(self, key: PartitionKey) -> bool:
        """Whether a partition is being worked on."""
        return key in self._busy

    def start(self, work: Work, group: Sequence[Mirrored]) -> None:
        """Start work on these partitions; no other work on them starts meanwhile."""
        keys = [self.key_of(mirrored) for mirrored in group]
        self._busy.update(keys)

        async def working() -> None:
            try:
                await work(group)
            except (WireError, MirrorError, TimeoutError) as error:
                _LOG.warning("%d partitions (%s, …): %s", len(group), group[0].name, error)
                self._retry_later(keys)
            except Exception:
                _LOG.exception("%d partitions (%s, …)", len(group), group[0].name)
                self._retry_later(keys)
            finally:
                self._busy.difference_update(keys)
                self.poked.set()

        task = asyncio.create_task(working())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _retry_later(self, keys: Iterable[PartitionKey]) -> None:
        self._not_before.update(dict.fromkeys(keys, self.hub.clock() + _BACK_OFF_S))
        asyncio.get_running_loop().call_later(_BACK_OFF_S, self.poked.set)


def _cancel_inquiry(mirrored: Mirrored) -> None:
    """Cancel the inquiry into a refused offset, or the cut, that is in progress."""
    if mirrored.inquiry is not None:
        mirrored.inquiry.cancel()
