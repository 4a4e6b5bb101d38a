"""The records of mirrored partitions that one process has, stored before they count."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from harness.core.errors import MirrorError
from mirrors.reference.server.fencing import RetriableError
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.model import PartitionKey, PartitionRecord, rebased
from mirrors.reference.server.state_store import StateStore

_LOG = logging.getLogger(__name__)

_NOT_FENCED_S: Final = 5.0
_NOT_FENCED_POLL_S: Final = 0.05

Listener = Callable[[PartitionRecord | None, PartitionRecord], None]


class PartitionRecords:
    """Records by key, of all processes. listeners: called with the old and the new one when a record has changed."""

    def __init__(self, hub: Hub, store: StateStore) -> None:
        self.hub = hub
        self.store = store
        self.records: dict[PartitionKey, PartitionRecord] = {}
        self.listeners: list[Listener] = []
        self._saving: dict[PartitionKey, asyncio.Future[None]] = {}

    async def save(self, records: Sequence[PartitionRecord]) -> None:
        """Store records, then adopt them. Raises MirrorError when they cannot be stored, may be stale, or belong to
        another process.

        They are changes of the records as of the call: a change that is being stored meanwhile is not undone.
        """
        if not records:
            return
        if self.hub.maybe_fenced:
            raise RetriableError(self.hub.why_maybe_fenced)
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
        """Wait while other processes may have taken over from this one. Raises RetriableError after 5 s."""
        deadline = self.hub.clock() + _NOT_FENCED_S
        while self.hub.maybe_fenced:
            if self.hub.clock() > deadline:
                raise RetriableError(self.hub.why_maybe_fenced)
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
