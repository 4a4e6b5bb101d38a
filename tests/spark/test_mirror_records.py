"""mirror_loss, mirror_duplicate, mirror_reorder on literal histories: planted faults and their clean twins."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Find
from literal import History

from checkers.mirror_records import CHECKER

MM2: dict[str, Any] = {"test": {"contract": "mm2-exactly-once"}, "topic_map": {"t": "A.t"}}
KEEPS: dict[str, Any] = {"test": {"contract": "cluster-mirror/strict"}}
SETTLED: dict[str, Any] = {
    "source": "shatter",
    "clusters": {"A": {}, "B": {}},
    "phases": [{"name": "settle", "start_ns": 0}],
}


def found(find: Find, h: History) -> list[tuple[Any, ...]]:
    return [(r["kind"], r["cluster"], r["topic"], r["offset"], r["value"]) for r in find(CHECKER, h)]


def stopped(h: History, source: int | None, destination: int | None = None, topic: str = "t", **columns: Any) -> None:
    columns = {"cluster": "B", "topic": topic, "partition": 0, "state": "STOPPED", **columns}
    h.row("mirror_states", source_offset=source, destination_offset=destination, **columns)


def sends(h: History, *values: str, cluster: str = "A") -> None:
    for offset, value in enumerate(values):
        h.send("p", cluster, "t", 0, value, offset=offset)


def test_renumbered_copy_is_clean(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (5, "c"), broker=1, look=1)
    h.log("B", "A.t", 0, (0, "a"), (1, "b"), (2, "c"), broker=1, look=1)
    assert found(find, h) == []


def test_settled_run_must_have_carried_everything(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (5, "c"), broker=1, look=1)
    h.log("B", "A.t", 0, (0, "a"), broker=1, look=1)
    assert found(find, h) == [("mirror_loss", "B", "A.t", 1, "b"), ("mirror_loss", "B", "A.t", 5, "c")]


def test_topic_that_the_destination_does_not_know_was_never_carried(find: Find) -> None:
    h = History(**SETTLED, test={"contract": "mm2-at-least-once"}, topic_map={"t": "t", "u": "u"})
    h.log("A", "t", 0, (0, "a"), broker=1, look=1)
    h.log("A", "u", 0, (7, "x"), broker=1, look=1)
    h.log("B", "t", 0, (0, "a"), broker=1, look=1)
    assert found(find, h) == [("mirror_loss", "B", "u", 7, "x")]


def test_destination_whose_log_was_not_captured_is_not_judged(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), broker=1, look=1)
    h.row("log_ends", cluster="B", topic="A.t", partition=0, broker=-1, look=1)
    assert found(find, h) == []


def test_hole_below_the_last_carried_record(find: Find) -> None:
    h = History(**KEEPS)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    h.log("B", "t", 0, (0, "a"), (2, "c"))
    assert found(find, h) == [("mirror_loss", "B", "t", 1, "b")]


def test_offsets_are_sparse(find: Find) -> None:
    base = 10**12
    h = History(**KEEPS)
    h.log("A", "t", 0, (base, "a"), (base + 10**9, "b"), (base + 2 * 10**9, "c"))
    h.log("B", "t", 0, (base, "a"), (base + 2 * 10**9, "c"))
    assert found(find, h) == [("mirror_loss", "B", "t", base + 10**9, "b")]


def test_above_the_recorded_cut_is_lag(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"), (3, "d"), broker=1, look=1)
    stopped(h, 3, 2, topic="A.t")
    h.log("B", "A.t", 0, (0, "a"), (1, "c"), (2, "local"), broker=1, look=1)
    assert found(find, h) == [("mirror_loss", "B", "A.t", 1, "b")]


def test_stop_without_offsets_ends_at_the_last_carried_record(find: Find) -> None:
    h = History(**KEEPS)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"))
    stopped(h, None)
    h.log("B", "t", 0, (0, "a"), (1, "b"), (3, "local"))
    assert found(find, h) == []


def test_mirror_started_again_after_a_stop_is_not_stopped(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), broker=1, look=1)
    stopped(h, 1, 1, topic="A.t", time_ns=5)
    stopped(h, 1, 1, topic="A.t", state="MIRRORING", time_ns=6)
    h.log("B", "A.t", 0, (0, "a"), broker=1, look=1)
    assert found(find, h) == [("mirror_loss", "B", "A.t", 1, "b")]


def test_lag_0_after_the_acknowledgement_makes_it_loss(find: Find) -> None:
    h = History(**KEEPS)
    sends(h, "a", "b")
    state = {"cluster": "B", "topic": "t", "partition": 0, "state": "MIRRORING"}
    h.row("mirror_states", **state, lag=0, time_ns=h.now + 1)
    h.send("p", "A", "t", 0, "late", offset=2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "late"))
    h.log("B", "t", 0, (0, "a"))
    assert found(find, h) == [("mirror_loss", "B", "t", 1, "b")]


def test_records_deleted_on_the_destination_are_lost(find: Find) -> None:
    """An administrator's delete_records moves the log start; the segment still holds the bytes."""
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"), broker=1, look=1)
    h.log("B", "A.t", 0, (0, "a"), (1, "b"), (2, "c"), broker=1, look=1, log_start=2)
    assert found(find, h) == [("mirror_loss", "B", "A.t", 0, "a"), ("mirror_loss", "B", "A.t", 1, "b")]


def test_records_that_the_destination_s_own_retention_deleted_are_not(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"), broker=1, look=1)
    h.log("B", "A.t", 0, (2, "c"), broker=1, look=1)
    h.row("configs", cluster="B", topic="A.t", event="look", name="retention.ms", value="1000", look=1)
    assert found(find, h) == []


def test_expired_on_the_source_is_not_loss(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    sends(h, "a", "b")
    h.log("A", "t", 0, (0, "a"), (1, "b"), broker=1, look=1, log_start=1)
    h.log("B", "A.t", 0, (0, "b"), broker=1, look=1)
    assert found(find, h) == []


def test_what_the_source_lost_itself_is_not_the_mirror_s(find: Find) -> None:
    """x was acknowledged and carried, then lost by A's unclean election; y never came to B either."""
    h = History(**SETTLED, **MM2)
    sends(h, "a", "x", "y")
    h.log("A", "t", 0, (0, "a"), (1, "b"), broker=1, look=1)
    h.log("B", "A.t", 0, (0, "a"), (1, "x"), (2, "b"), broker=1, look=1)
    assert found(find, h) == []


def test_what_was_sent_again_after_a_loss_of_the_source_is_no_duplicate(find: Find) -> None:
    """A lost x, v; the producer sent v again; B had both copies of v and the order of the old log."""
    h = History(**SETTLED, **MM2)
    sends(h, "a", "x", "v", "w")
    h.log("A", "t", 0, (0, "a"), (1, "w"), (2, "v"), (3, "z"), broker=1, look=1)
    h.log("B", "A.t", 0, (0, "a"), (1, "x"), (2, "v"), (3, "w"), (4, "v"), (5, "z"), broker=1, look=1)
    assert found(find, h) == []


def test_above_the_high_watermark_nothing_is_due(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), broker=1, look=1, hw=1)
    h.log("B", "A.t", 0, (0, "a"), broker=1, look=1)
    assert found(find, h) == []


TXN = {"producer_id": 9, "producer_epoch": 0, "transactional": True}


@pytest.mark.parametrize(("contract", "lost"), [("mm2-exactly-once", False), ("cluster-mirror/strict", True)])
def test_aborted_data_is_due_only_where_it_is_carried(find: Find, contract: str, lost: bool) -> None:
    h = History(test={"contract": contract})
    h.log("A", "t", 0, (0, "a"), (1, "x", TXN), (2, None, {**TXN, "control_type": "ABORT"}), (3, "b"))
    h.log("B", "t", 0, (0, "a"), (3, "b"))
    assert found(find, h) == ([("mirror_loss", "B", "t", 1, "x")] if lost else [])


def test_copies_that_the_mirror_aborted_itself_do_not_count(find: Find) -> None:
    """MM2 with exactly-once was killed in a transaction: its first copy of b is aborted on B, the second counts."""
    h = History(**MM2)
    end = {**TXN, "control_type": "ABORT"}
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"))
    h.log("B", "A.t", 0, (0, "a"), (1, "b", TXN), (2, None, end), (3, "b"), (4, "c"))
    assert found(find, h) == []
    lost = History(**MM2)
    lost.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"))
    lost.log("B", "A.t", 0, (0, "a"), (1, "b", TXN), (2, None, end), (3, "c"))
    assert found(find, lost) == [("mirror_loss", "B", "A.t", 1, "b")]


def test_compacted_away_is_not_loss(find: Find) -> None:
    h = History(**SETTLED, **MM2)
    h.log("A", "t", 0, (0, "a", {"key": "k"}), (1, "b", {"key": "k"}), (2, "c", {"key": "l"}), broker=1, look=1)
    h.log("B", "A.t", 0, (1, "b", {"key": "k"}), broker=1, look=1)
    h.row("configs", cluster="B", topic="A.t", event="look", name="cleanup.policy", value="compact", look=1)
    assert found(find, h) == [("mirror_loss", "B", "A.t", 2, "c")], "c has no successor of its key"


def test_replayed_records_are_duplicates_but_in_order(find: Find) -> None:
    h = History(**MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    h.log("B", "A.t", 0, (0, "a"), (1, "b"), (2, "c"), (3, "b"), (4, "c"), (5, "d"))
    assert found(find, h) == [("mirror_duplicate", "B", "A.t", 3, "b"), ("mirror_duplicate", "B", "A.t", 4, "c")]


def test_twice_on_the_source_is_twice_on_the_destination(find: Find) -> None:
    h = History(**MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "b"))
    h.log("B", "A.t", 0, (0, "a"), (1, "b"), (2, "b"))
    assert found(find, h) == []
    once = History(**MM2)
    once.log("A", "t", 0, (0, "a"), (1, "b"), (2, "b"), (3, "c"))
    once.log("B", "A.t", 0, (0, "a"), (1, "b"), (2, "c"))
    assert found(find, once) == [("mirror_loss", "B", "A.t", 2, "b")]


def test_swapped_records_are_reordered(find: Find) -> None:
    h = History(**MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    h.log("B", "A.t", 0, (0, "a"), (1, "c"), (2, "b"), (3, "d"))
    assert found(find, h) == [("mirror_reorder", "B", "A.t", 1, "c")]


def test_partitions_and_topics_are_not_mixed_up(find: Find) -> None:
    h = History(**KEEPS)
    for topic in ("t", "u"):
        for partition in (0, 1):
            h.log("A", topic, partition, (0, f"{topic}{partition}a"), (1, f"{topic}{partition}b"))
            h.log("B", topic, partition, (0, f"{topic}{partition}a"), (1, f"{topic}{partition}b"))
    assert found(find, h) == []


def test_value_in_another_partition_is_lost_from_its_own(find: Find) -> None:
    h = History(**MM2)
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"))
    h.log("A", "t", 1, (0, "x"))
    h.log("B", "A.t", 0, (0, "a"), (1, "c"))
    h.log("B", "A.t", 1, (0, "x"), (1, "b"))
    assert found(find, h) == [("mirror_loss", "B", "A.t", 1, "b")]


def test_acknowledged_sends_stand_for_a_log_that_was_not_captured(find: Find) -> None:
    h = History(**KEEPS)
    sends(h, "a", "b", "c", "d")
    h.log("B", "t", 0, (0, "a"), (2, "c"))
    assert found(find, h) == [("mirror_loss", "B", "t", 1, "b")]


def test_chain_of_three_clusters(find: Find) -> None:
    h = History(clusters={"A": {}, "B": {}, "C": {}}, test={"contract": "mm2-exactly-once"},
                topic_maps={"B": {"t": "A.t"}, "C": {"t": "B.A.t"}})  # fmt: skip
    h.log("A", "t", 0, (0, "a"), (1, "b"), (2, "c"))
    h.log("B", "A.t", 0, (0, "a"), (1, "b"), (2, "c"))
    h.log("C", "B.A.t", 0, (0, "a"), (1, "c"))
    assert found(find, h) == [("mirror_loss", "C", "B.A.t", 1, "b")]


def test_nothing_to_compare(find: Find) -> None:
    h = History(**KEEPS)
    h.log("A", "t", 0, (0, "a"))
    assert found(find, h) == []
