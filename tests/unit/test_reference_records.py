"""Partition records that two parts of the mirror change at the same time: no change is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.model import PartitionKey, PartitionRecord, rebased
from mirrors.reference.server.states import PartitionState as S
from mirrors.reference.server.steps import CrashPoints

pytestmark = pytest.mark.unit

KEY = PartitionKey("A-B", "t", 0)
RECORD = PartitionRecord(
    key=KEY, state=S.MIRRORING, topic_id=uuid.UUID(int=1), source_topic_id=uuid.UUID(int=2), owner=100
)


class SlowStore:
    """Stores once it is allowed to, and keeps the order of requests."""

    def __init__(self) -> None:
        self.stored: list[PartitionRecord] = []
        self.free = asyncio.Event()

    async def put(self, records: Sequence[PartitionRecord]) -> None:
        await self.free.wait()
        self.stored += records


@pytest.mark.parametrize(
    ("known", "record", "now", "state"),
    [
        (S.MIRRORING, S.MIRRORING, S.STOPPING, S.STOPPING),
        (S.PREPARING, S.MIRRORING, S.STOPPING, S.STOPPING),
        (S.PREPARING, S.STOPPING, S.MIRRORING, S.STOPPING),
        (S.MIRRORING, S.FAILED, S.STOPPING, S.FAILED),
    ],
    ids=["not changed", "too late", "goes on from there", "fails anyway"],
)
def test_two_changes_of_a_record_are_both_kept(known: S, record: S, now: S, state: S) -> None:
    before = replace(RECORD, state=known)
    made = replace(before, state=record, source_epochs=((1, 0),))
    found = rebased(made, before, replace(before, state=now, error="why"))
    assert (found.state, found.source_epochs, found.error) == (state, ((1, 0),), "why")
    assert rebased(made, before, before) == made
    assert rebased(made, None, None) == made


def test_a_request_that_comes_while_a_record_is_being_stored_is_not_undone() -> None:
    async def body() -> None:
        store = SlowStore()
        unused: Any = SimpleNamespace(me=100, maybe_fenced=False, clock=lambda: 0.0)
        life = Lifecycle(unused, store, CrashPoints())  # type: ignore[arg-type]
        life.records[KEY] = RECORD
        epochs = asyncio.create_task(life.save([replace(RECORD, source_epochs=((3, 7),))]))
        await asyncio.sleep(0)
        stop = asyncio.create_task(life.request([KEY], S.STOPPING, from_states=[S.MIRRORING]))
        late = asyncio.create_task(life.save([replace(RECORD, shifts=((1, 2),))]))
        await asyncio.sleep(0)
        store.free.set()
        await asyncio.gather(epochs, stop, late)
        last = life.records[KEY]
        assert (last.state, last.source_epochs, last.shifts) == (S.STOPPING, ((3, 7),), ((1, 2),))
        assert store.stored[-1] == last

    asyncio.run(body())


@pytest.mark.parametrize(
    ("state", "carries_on"),
    [(S.MIRRORING, True), (S.PAUSED, True), (S.PAUSING, True), (S.PREPARING, False), (S.FAILED, False)],
)
def test_a_stop_mirrors_on_only_partitions_that_were_mirrored(state: S, carries_on: bool) -> None:
    async def body() -> None:
        store = SlowStore()
        store.free.set()
        hub: Any = SimpleNamespace(me=100, maybe_fenced=False, clock=lambda: 0.0)
        life = Lifecycle(hub, store, CrashPoints())  # type: ignore[arg-type]
        life.records[KEY] = replace(RECORD, state=state)
        await life.request([KEY], S.STOPPING, from_states=list(S))
        assert store.stored[-1].carry_on is carries_on
        assert PartitionRecord.from_bytes(store.stored[-1].to_bytes()) == store.stored[-1]

    asyncio.run(body())


def test_a_record_without_this_column_is_read() -> None:
    stored = RECORD.to_bytes().replace(b'"carry_on":false,', b"")
    assert b"carry_on" not in stored
    assert not PartitionRecord.from_bytes(stored).carry_on
