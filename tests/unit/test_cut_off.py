"""Faults that remove source records before the mirror has read them: where they act, and how a gap is recognized."""

from __future__ import annotations

import pytest

from harness.wire.batches import build, joined, transaction_marker
from nemeses import REGISTRY
from nemeses.base import Shape, Target
from nemeses.engine.schedule import draw
from nemeses.support.cut_off import gap_in

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000


def batch(offset: int, records: int = 1) -> bytes:
    return build([(b"k", b"v")] * records, base_offset=offset, timestamp_ms=NOW)


def shape(links: tuple[str, ...] | None) -> Shape:
    return Shape(brokers={"A": (1, 2, 3), "B": (1, 2, 3)}, topics=("t",), partitions=2, links=links)


@pytest.mark.parametrize("name", ["retention", "compaction"])
def test_they_act_on_the_source_alone(name: str) -> None:
    nemesis = REGISTRY[name]
    assert list(nemesis.targets(shape(None))) == list(nemesis.targets(shape(("A",)))) == [Target("A", "all")]
    assert not nemesis.targets(shape(("B",)))
    drawn = draw([name], shape(None), seed=1, load_s=60)
    assert {(s.nemesis, s.cluster, s.role, s.params["link"]) for s in drawn} == {(name, "link", "all", "A")}


def test_a_whole_log_has_no_gap() -> None:
    marker = transaction_marker(
        commit=True,
        base_offset=5,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW,
    )
    assert gap_in(joined([batch(2, 3), marker, batch(6)]), 2) is None
    assert gap_in(joined([batch(2, 3), batch(5)]), 4) is None  # a fetch begins with the batch that holds the offset
    assert gap_in(b"", 2) is None


def test_whole_batches_that_are_gone() -> None:
    assert gap_in(joined([batch(2), batch(9)]), 2) == (3, 8)
    assert gap_in(batch(9), 2) == (2, 8)


def test_a_batch_that_lost_records_keeps_its_bounds() -> None:
    whole = bytearray(batch(2, 4))
    whole[57:61] = (2).to_bytes(4, "big")  # the count of records, as a cleaner rewrites it
    assert gap_in(bytes(whole), 2) == (2, 5)
