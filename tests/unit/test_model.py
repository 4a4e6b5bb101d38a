"""Invariants of the model of two clusters and a mirror, checked without the judge."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

sys.path.insert(0, str(Path(__file__).parents[1]))

from random import Random

from model.example import Example, simulate
from model.generated import drawn_plans, plans, sort_of_plans
from model.logs import Batch, Partition, open_transactions, visible
from model.mutations.catalogue import MUTATIONS
from model.mutations.victim import Victim
from model.plan import Plan
from model.table import PAGE, page

pytestmark = pytest.mark.unit
quick = settings(
    max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def victim(example: Example) -> Victim:
    return Victim(example.world, Random(0))


def partitions(example: Example) -> list[tuple[Partition, Partition]]:
    return list(zip(example.world.a.partitions, example.world.b.partitions, strict=True))


def content(b: Batch) -> tuple[object, ...]:
    return (b.base, b.last, b.records, b.pid, b.pepoch, b.seq, b.control, b.crc)


@quick
@given(plans(recreated=False))
def test_acknowledged_records_are_at_their_offsets(plan: Plan) -> None:
    example = simulate(plan)
    v = victim(example)
    for letter in "AB":
        for part in v.cluster(letter).partitions:
            held = {r.offset: r.value for _, r in visible(part.log.batches, committed=True, below=part.hw)}
            for fate in v.sure(letter):
                kept = fate.offset >= part.start and not _discarded(example, letter, fate.partition, fate.offset)
                if fate.partition == part.number and kept and not plan.compacted:
                    assert held.get(fate.offset) == fate.value


def _discarded(example: Example, letter: str, partition: int, offset: int) -> bool:
    """Whether a failback truncated A below it."""
    return letter == "A" and example.plan.scenario == "failback" and offset >= example.world.cuts[partition]


@quick
@given(plans())
def test_offsets_are_used_once_and_replicas_are_equal(plan: Plan) -> None:
    for pair in partitions(simulate(plan)):
        for part in pair:
            batches = part.log.batches
            assert all(one.last < two.base for one, two in pairwise(batches))
            assert all(b.crc == b.checksum for b in batches)
            assert part.hw == part.end
            for replica in part.replicas.values():
                assert [content(b) for b in replica.batches] == [content(b) for b in batches]


@quick
@given(plans(compacted=False))
def test_below_the_cut_the_destination_is_the_source(plan: Plan) -> None:
    example = simulate(plan)
    for a, b in partitions(example):
        stopped = plan.scenario != "steady"
        end = example.world.cuts[b.number] if stopped else b.end
        if plan.scenario == "failback":
            assert [content(x) for x in a.log.batches if x.base >= end] == [
                content(x) for x in b.log.batches if x.base >= end
            ]
        low = max(a.start, b.start)
        below = [[content(x) for x in part.log.batches if low <= x.base and x.last < end] for part in (a, b)]
        assert below[0] == below[1]
        if stopped:
            assert all(example.world.book.name("B-") in (r.value or "") for r in _data(b, end))
            assert plan.on_stop == "abort" or not open_transactions([x for x in b.log.batches if x.base < end])
        else:
            assert b.end == a.end
        assert not open_transactions(b.log.batches)


def _data(part: Partition, above: int) -> list[object]:
    return [r for x in part.log.batches if x.base >= above and x.control is None for r in x.records]


@quick
@given(plans(mirror="mm2", compacted=False, scenario="steady", trouble=("link", "pauses"), resends=False))
def test_mirror_maker_copies_everything_in_order(plan: Plan) -> None:
    for a, b in partitions(simulate(plan)):
        source = [r.value for _, r in visible(a.log.batches, committed=False, below=a.hw)]
        copies = [r.value for _, r in visible(b.log.batches, committed=False, below=b.hw)]
        assert list(dict.fromkeys(copies)) == source


@quick
@given(plans(mirror="mm2", exactly_once=True, compacted=False, scenario="steady", trouble=("link", "pauses")))
def test_exactly_once_copies_committed_records_once_and_in_order(plan: Plan) -> None:
    for a, b in partitions(simulate(plan)):
        source = [r.value for _, r in visible(a.log.batches, committed=True, below=a.hw)]
        copies = [r.value for _, r in visible(b.log.batches, committed=True, below=b.hw)]
        assert copies == source
        assert not open_transactions(b.log.batches)


@quick
@given(plans(recreated=True))
def test_a_recreated_topic_begins_at_0_with_another_id(plan: Plan) -> None:
    again = simulate(plan).world.recreated
    assert again is not None
    assert len({part.topic_id for life in again.lives for part in life.partitions}) == len(again.lives)
    assert all(part.log.batches[0].base == 0 for life in again.lives for part in life.partitions if part.log.batches)


def test_some_workers_are_killed_within_a_transaction() -> None:
    logs = [p.log.batches for plan in sort_of_plans("eos") for p in simulate(plan).world.b.partitions]
    assert sum(any(b.control == "ABORT" for b in log) for log in logs) > 30


def test_a_plan_makes_the_same_tables_each_time() -> None:
    for plan in drawn_plans(20):
        assert simulate(plan).tables == simulate(plan).tables


def test_plans_are_many_and_always_the_same() -> None:
    drawn = drawn_plans(500)
    assert len(set(drawn)) == 500
    drawn_plans.cache_clear()
    assert drawn_plans(500) == drawn


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_changes_what_is_stored(name: str) -> None:
    mutation = MUTATIONS[name]
    for example in mutation.bitten(2, first=0):
        untouched = simulate(example.plan, int(example.prefix[1:5]), letter="m")
        assert example.tables != untouched.tables


def test_the_page_lists_all_mutations() -> None:
    assert page(text := PAGE.read_text(encoding="utf-8")) == text, "PYTHONPATH=tests:. python -m model.table writes it"
