"""mirror_loss, mirror_duplicate, mirror_reorder, retention_gap: planted faults and their clean twins."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_cases import SETTLED, Case, Found, Group, contract
from pyspark.sql import SparkSession

EXACT = Group("exact", **SETTLED, **contract("mm2-exactly-once"))  # everything must arrive, once
PARTS = Group("parts", **contract("mm2-exactly-once"))  # imported: maybe the run did not wait
KEEPS = Group("keeps", **contract("cluster-mirror/strict"))
REPEATS = Group("repeats", **contract("mm2-at-least-once"))
GROUPS = {group.name: group for group in (EXACT, PARTS, KEEPS, REPEATS)}
TXN = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
ABORT = {**TXN, "control_type": "ABORT"}


@EXACT.case
def renumbered_copy(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (5, "c"))
    c.log("B", (0, "a"), (1, "b"), (2, "c"))
    return []


@EXACT.case
def mirror_that_stopped_for_good(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (5, "c"))
    c.log("B", (0, "a"))
    return [("mirror_loss", 1, "b"), ("mirror_loss", 5, "c")]


@EXACT.case
def topic_that_the_destination_does_not_know(c: Case) -> list[Found]:
    c.log("A", (7, "x"))
    return [("mirror_loss", 7, "x")]


@EXACT.case
def destination_whose_log_was_not_captured(c: Case) -> list[Found]:
    c.log("A", (0, "a"))
    c.row("log_ends", cluster="B", partition=0, broker=-1, look=0)
    return []


@EXACT.case
def above_the_recorded_cut_is_lag(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    c.state("STOPPED", 3, 2)
    c.log("B", (0, "a"), (1, "c"), (2, "local"))
    return [("mirror_loss", 1, "b")]


@EXACT.case
def started_again_after_a_stop(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"))
    c.state("STOPPED", 1, 1, time_ns=5)
    c.state("MIRRORING", 1, 1, time_ns=6)
    c.log("B", (0, "a"))
    return [("mirror_loss", 1, "b")]


@EXACT.case
def paused_at_the_end_is_lag(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"))
    c.state("PAUSED", 1, 1)
    c.log("B", (0, "a"))
    return []


@EXACT.case
def records_deleted_on_the_destination(c: Case) -> list[Found]:
    """An administrator's delete_records moves the log start; the segment still holds the bytes."""
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.log("B", (0, "a"), (1, "b"), (2, "c"), log_start=2)
    return [("mirror_loss", 0, "a"), ("mirror_loss", 1, "b")]


@EXACT.case
def all_records_deleted_on_the_destination(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"))
    c.log("B", (0, "a"), (1, "b"), log_start=2)
    return [("mirror_loss", 0, "a"), ("mirror_loss", 1, "b")]


@EXACT.case
def records_that_the_destination_s_own_retention_deleted(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.log("B", (2, "c"))
    c.row("configs", cluster="B", event="look", name="retention.ms", value="1000", look=0)
    return []


@EXACT.case
def what_the_source_lost_itself(c: Case) -> list[Found]:
    """A lost x, which was acknowledged and mirrored, in an unclean election, and y, which was never mirrored."""
    c.send("A", "a", "x", "y", offset=0)
    c.log("A", (0, "a"), (1, "b"))
    c.log("B", (0, "a"), (1, "x"), (2, "b"))
    return []


@EXACT.case
def sent_again_after_a_loss_of_the_source(c: Case) -> list[Found]:
    """A lost x and v; the producer sent v again; B has both copies of v, the first in the order of the old log."""
    c.send("A", "a", "x", "v", "w", offset=0)
    c.log("A", (0, "a"), (1, "w"), (2, "v"), (3, "z"))
    c.log("B", (0, "a"), (1, "x"), (2, "v"), (3, "w"), (4, "v"), (5, "z"))
    return []


@EXACT.case
def three_copies_are_one_too_many_even_then(c: Case) -> list[Found]:
    c.send("A", "a", "x", "v", "w", offset=0)
    c.log("A", (0, "a"), (1, "w"), (2, "v"), (3, "z"))
    c.log("B", (0, "a"), (1, "x"), (2, "v"), (3, "w"), (4, "v"), (5, "z"), (6, "v"))
    return [("mirror_duplicate", 6, "v")]


@EXACT.case
def nothing_is_due_above_the_high_watermark(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), hw=1)
    c.log("B", (0, "a"))
    return []


@EXACT.case
def expired_and_carried(c: Case) -> list[Found]:
    c.send("A", "a", "b", offset=0)
    c.log("A", (0, "a"), (1, "b"), log_start=1)
    c.log("B", (0, "a"), (1, "b"))
    return []


@EXACT.case
def expired_and_never_carried_without_a_word(c: Case) -> list[Found]:
    c.send("A", "a", "b", "c", "d", offset=0)
    c.log("A", (3, "d"), log_start=3)
    c.log("B", (0, "a"), (1, "d"))
    return [("retention_gap", 1, "b")]


@EXACT.case
def expired_and_reported(c: Case) -> list[Found]:
    c.send("A", "a", "b", "c", offset=0)
    c.state("MIRRORING", error="gap: offsets 1 to 1 have expired on the source", time_ns=3)
    c.log("A", (2, "c"), log_start=2)
    c.log("B", (0, "a"), (1, "c"))
    return []


@EXACT.case
def compacted_away(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"key": "k"}), (1, "b", {"key": "k"}), (2, "c", {"key": "l"}))
    c.log("B", (1, "b", {"key": "k"}))
    c.row("configs", cluster="B", event="look", name="cleanup.policy", value="compact", look=0)
    return [("mirror_loss", 2, "c")]  # no later record has c's key


@KEEPS.case
def aborted_and_compacted_away(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"key": "k"}), (1, "x", {"key": "l", **TXN}), (2, None, ABORT), (3, "b", {"key": "k"}))
    c.log("B", (2, None, ABORT), (3, "b", {"key": "k"}))
    c.row("configs", cluster="B", event="look", name="cleanup.policy", value="compact", look=0)
    return []


@EXACT.case
def expired_on_the_source_and_compacted_on_the_destination(c: Case) -> list[Found]:
    c.send("A", "a", "b", "c", offset=0)
    c.log("A", (2, "c", {"key": "k"}), log_start=2)
    c.log("B", (2, "c", {"key": "k"}), log_start=0)
    c.row("configs", cluster="B", event="look", name="cleanup.policy", value="compact", look=0)
    return []


@EXACT.case
def replay(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    c.log("B", (0, "a"), (1, "b"), (2, "c"), (3, "b"), (4, "c"), (5, "d"))
    return [("mirror_duplicate", 3, "b"), ("mirror_duplicate", 4, "c")]


@EXACT.case
def swapped(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    c.log("B", (0, "a"), (1, "c"), (2, "b"), (3, "d"))
    return [("mirror_reorder", 1, "c")]


@EXACT.case
def twice_on_the_source_and_twice_on_the_destination(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "b"))
    c.log("B", (0, "a"), (1, "b"), (2, "b"))
    return []


@EXACT.case
def twice_on_the_source_and_once_on_the_destination(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "b"), (3, "c"))
    c.log("B", (0, "a"), (1, "b"), (2, "c"))
    return [("mirror_loss", 2, "b")]


@EXACT.case
def moved_to_another_partition(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.log("A", (0, "x"), partition=1)
    c.log("B", (0, "a"), (1, "c"))
    c.log("B", (0, "x"), (1, "b"), partition=1)
    return [("mirror_loss", "B", 0, 1, "b")]


@EXACT.case
def aborted_data_is_dropped(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", TXN), (2, None, ABORT), (3, "b"))
    c.log("B", (0, "a"), (1, "b"))
    return []


@EXACT.case
def aborted_data_becomes_visible(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", TXN), (2, None, ABORT), (3, "b"))
    c.log("B", (0, "a"), (1, "x"), (2, "b"))
    return [("aborted_set", 1, "x")]


@EXACT.case
def copies_that_the_mirror_aborted_itself(c: Case) -> list[Found]:
    """MM2 with exactly-once was killed in a transaction: its first copy of b is aborted on B, the second counts."""
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.log("B", (0, "a"), (1, "b", TXN), (2, None, ABORT), (3, "b"), (4, "c"))
    return []


@EXACT.case
def only_an_aborted_copy(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.log("B", (0, "a"), (1, "b", TXN), (2, None, ABORT), (3, "c"))
    return [("mirror_loss", 1, "b")]


@PARTS.case
def the_tail_of_an_unfinished_history_is_lag(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.log("B", (0, "a"), (1, "b"))
    return []


@PARTS.case
def a_hole_in_it_is_not(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"), (3, "d"))
    c.log("B", (0, "a"), (1, "c"))
    return [("mirror_loss", 1, "b")]


@REPEATS.case
def uncommitted_reading_carries_aborted_data(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", TXN), (2, None, ABORT), (3, "b"))
    c.log("B", (0, "a"), (1, "b"))
    return [("mirror_loss", 1, "x")]


@KEEPS.case
def sparse_hole(c: Case) -> list[Found]:
    base = 10**12
    c.log("A", (base, "a"), (base + 10**9, "b"), (base + 2 * 10**9, "c"))
    c.log("B", (base, "a"), (base + 2 * 10**9, "c"))
    return [("mirror_loss", base + 10**9, "b")]


@KEEPS.case
def stop_without_offsets(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.state("STOPPED")
    c.log("B", (0, "a"), (1, "b"), (3, "local"))
    return []


@KEEPS.case
def lag_0_after_the_acknowledgement(c: Case) -> list[Found]:
    c.send("A", "a", "b", offset=0)
    c.state("MIRRORING", lag=0, time_ns=c.history.now + 1)
    c.send("A", "late", offset=2)
    c.log("A", (0, "a"), (1, "b"), (2, "late"))
    c.log("B", (0, "a"))
    return [("mirror_loss", 1, "b")]


@KEEPS.case
def lag_0_of_a_mirror_that_waits_at_an_open_transaction(c: Case) -> list[Found]:
    c.send("A", "a", "b", offset=0)
    c.state("MIRRORING", 1, 1, lag=0, time_ns=c.history.now + 1)
    c.log("A", (0, "a"), (1, "b"))
    c.log("B", (0, "a"))
    return []


@KEEPS.case
def acknowledged_sends_stand_for_a_log_that_was_not_captured(c: Case) -> list[Found]:
    c.send("A", "a", "b", "c", "d", offset=0)
    c.log("B", (0, "a"), (2, "c"))
    return [("mirror_loss", 1, "b")]


@KEEPS.case
def aborted_data_is_kept(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", TXN), (2, None, ABORT), (3, "b"))
    c.log("B", (0, "a"), (1, "x", TXN), (2, None, ABORT), (3, "b"))
    return []


@KEEPS.case
def the_source_s_log_start_passed_the_destination_s_end(c: Case) -> list[Found]:
    """Only snapshots show it: no acknowledgements are known, and B restarted at A's log start."""
    c.row("log_ends", cluster="B", partition=0, log_start=0, log_end=3, broker=5, leader=5, time_ns=100)
    c.row("log_ends", cluster="A", partition=0, log_start=6, log_end=9, broker=5, leader=5, time_ns=200)
    c.log("A", (6, "a"), (7, "b"), broker=5, leader=5, look=1)
    c.log("B", (6, "a"), (7, "b"), broker=5, leader=5, look=1)
    return [("retention_gap", 3, None)]


@KEEPS.case
def carried_between_two_looks_and_expired_then(c: Case) -> list[Found]:
    c.row("log_ends", cluster="B", partition=0, log_start=0, log_end=1, broker=5, leader=5, time_ns=100)
    c.row("log_ends", cluster="A", partition=0, log_start=2, log_end=3, broker=5, leader=5, time_ns=200)
    c.log("A", (2, "c"), broker=5, leader=5, look=1)
    c.log("B", (0, "a"), (1, "b"), (2, "c"), broker=5, leader=5, look=1)
    return []


@KEEPS.case
def expired_above_the_cut(c: Case) -> list[Found]:
    c.row("log_ends", cluster="B", partition=0, log_start=0, log_end=1, broker=5, leader=5, time_ns=100)
    c.row("log_ends", cluster="A", partition=0, log_start=2, log_end=3, broker=5, leader=5, time_ns=200)
    c.state("STOPPED", 1, 1)
    c.log("A", (2, "c"), broker=5, leader=5, look=1)
    c.log("B", (0, "a"), broker=5, leader=5, look=1)
    return []


@pytest.mark.parametrize(("group", "case"), [(g, c) for g, group in GROUPS.items() for c in group.cases])
def test_case(group: str, case: str, spark: SparkSession, tmp_path: Path) -> None:
    GROUPS[group].check(case, spark, tmp_path)
