"""Which process should own which partition, and which partitions a process hands over."""

from __future__ import annotations

import uuid

import pytest

from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.sharing import leaving, owner
from mirrors.reference.server.states import PartitionState

pytestmark = pytest.mark.unit

KEYS = [PartitionKey("AB", "t", partition) for partition in range(200)]


def record(key: PartitionKey, owned_by: int, state: PartitionState = PartitionState.MIRRORING) -> PartitionRecord:
    return PartitionRecord(
        key=key,
        state=state,
        topic_id=uuid.UUID(int=1),
        source_topic_id=uuid.UUID(int=2),
        source_cluster="a",
        owner=owned_by,
    )


def test_one_that_joins_takes_only_what_becomes_its_own() -> None:
    before = {key: owner(key, (100, 101)) for key in KEYS}
    after = {key: owner(key, (100, 101, 102)) for key in KEYS}
    assert all(after[key] in (before[key], 102) for key in KEYS)
    assert 40 < sum(one == 102 for one in after.values()) < 95


def test_each_process_hands_over_others_partitions_once() -> None:
    records = {key: record(key, 100) for key in KEYS}
    given = leaving(records, me=100, live=(100, 101))
    assert set(given) == {101}
    assert 70 < len(given[101]) < 130
    for key in given[101]:
        records[key] = record(key, 101)
    assert leaving(records, me=100, live=(100, 101)) == {}
    assert leaving(records, me=101, live=(100, 101)) == {}


@pytest.mark.parametrize("state", [s for s in PartitionState if s is not PartitionState.MIRRORING])
def test_partitions_that_are_not_mirroring_stay(state: PartitionState) -> None:
    records = {key: record(key, 100, state) for key in KEYS}
    assert leaving(records, me=100, live=(100, 101)) == {}


def test_a_process_alone_keeps_everything() -> None:
    assert leaving({key: record(key, 100) for key in KEYS}, me=100, live=(100,)) == {}
