"""offset_identity, gap_identity, unclean_divergence, topic_id, stop_cut, failback: planted faults and clean twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from log_cases import SETTLED, Case, Found, Group, contract
from pyspark.sql import SparkSession

STRICT = Group("strict", **contract("cluster-mirror/strict"))
RESET = Group("reset", **contract("cluster-mirror/kip-2026-07"))
TRUNCATE = Group("truncate", **contract("cluster-mirror/kip-2026-05"))
MAPPED = Group("mapped", **contract("cluster-mirror/strict", mirror_options={"producer_ids": "positive_region"}))
UNCLEAN = Group("unclean", **SETTLED, **contract("cluster-mirror/strict"))
NOT_PROMISED = Group("not_promised", **contract("mm2-at-least-once"))
GROUPS = {g.name: g for g in (STRICT, RESET, TRUNCATE, MAPPED, UNCLEAN, NOT_PROMISED)}


def of(pid: int, sequence: int = -1, **columns: Any) -> dict[str, Any]:
    """Columns of a record written by this producer."""
    return {"producer_id": pid, "producer_epoch": 0, "sequence": sequence, **columns}


def txn(pid: int, **columns: Any) -> dict[str, Any]:
    return of(pid, transactional=True, **columns)


def end(pid: int, how: str) -> dict[str, Any]:
    return txn(pid, control_type=how)


RESET_RECORD = {"control_type": "PID_RESET", "leader_epoch": 11}


@STRICT.case
def equal_logs_with_gaps(c: Case) -> list[Found]:
    records = ((0, "a", of(5, 0)), (2, "b", of(5, 1)), (3, None, end(5, "COMMIT")), (9, "c"))
    c.log("A", *records)
    c.log("B", *records)
    return []


@STRICT.case
def leader_epochs_may_be_rewritten(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"leader_epoch": 3}), (1, "b", {"leader_epoch": 4}))
    c.log("B", (0, "a", {"leader_epoch": 7}), (1, "b", {"leader_epoch": 7}))
    return []


@STRICT.case
def renumbered(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (2, "b"), (5, "c"))
    c.log("B", (0, "a"), (1, "b"), (5, "c"))
    return [("gap_identity", 1, "b"), ("gap_identity", 2, "b")]


@STRICT.case
def control_record_left_out(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, None, {"control_type": "TYPE_9"}), (2, "b"))
    c.log("B", (0, "a"), (2, "b"))
    return [("gap_identity", 1, None)]


@STRICT.case
def local_write_in_a_gap(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (2, "b"))
    c.log("B", (0, "a"), (1, "local"), (2, "b"))
    return [("gap_identity", 1, "local")]


@STRICT.case
def other_sequence(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 1)), (2, "c"))
    c.log("B", (0, "a", of(5, 0)), (1, "b", of(6, 0)), (2, "c"))
    return [("offset_identity", 1, None)]


@STRICT.case
def other_crc(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"crc": 1}), (1, "b"))
    c.log("B", (0, "a", {"crc": 2}), (1, "b"))
    return [("offset_identity", 0, None)]


@STRICT.case
def other_control_type(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5)), (1, None, end(5, "COMMIT")), (2, "b"))
    c.log("B", (0, "a", txn(5)), (1, None, end(5, "ABORT")), (2, "b"))
    return [("offset_identity", 1, None), ("transaction_outcome", 0, "a")]


@STRICT.case
def unequal_records_without_crcs(c: Case) -> list[Found]:
    unknown = {"crc": None, "crc_ok": None}
    c.log("A", (0, "a", unknown), (1, "b", {**unknown, "key": "k"}), (2, "c", unknown))
    c.log("B", (0, "a", unknown), (1, "b", {**unknown, "key": "l"}), (2, "c", unknown))
    return [("offset_identity", 1, "b")]


@STRICT.case
def beyond_the_cut_the_logs_are_their_own(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.state("STOPPED", 1, 1)
    c.log("B", (0, "a"), (1, "local"), (2, "more"))
    return []


@STRICT.case
def each_side_has_its_own_log_start(c: Case) -> list[Found]:
    c.log("A", (5, "f"), (6, "g"), log_start=5)
    c.log("B", (0, "a"), (5, "f"), (6, "g"))
    return []


@STRICT.case
def compaction_is_each_broker_s_own(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"key": "k"}), (1, "b", {"key": "k"}), (2, "c", {"key": "l"}))
    c.log("B", (1, "b", {"key": "k"}), (2, "c", {"key": "l"}))
    c.row("configs", cluster="B", event="look", name="cleanup.policy", value="compact")
    return []


@STRICT.case
def a_gap_of_compaction_was_closed(c: Case) -> list[Found]:
    """Each cleaner removes other records; a record that both logs hold must have one offset."""
    c.log("A", (0, "a", {"key": "k"}), (4, "b", {"key": "l"}), (6, "d", {"key": "n"}))
    c.log("B", (0, "a", {"key": "k"}), (1, "b", {"key": "l"}), (3, "d", {"key": "n"}), (4, "e", {"key": "m"}))
    c.row("configs", cluster="A", event="look", name="cleanup.policy", value="compact")
    return [("gap_identity", 1, "b"), ("gap_identity", 3, "d"), ("offset_identity", 4, "e")]


@STRICT.case
def topic_ids_differ(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"topic_id": "x"}))
    c.log("B", (0, "a", {"topic_id": "y"}))
    return [("topic_id", None, None)]


@STRICT.case
def topic_ids_are_equal(c: Case) -> list[Found]:
    c.log("A", (0, "a", {"topic_id": "x"}))
    c.log("B", (0, "a", {"topic_id": "x"}))
    return []


@NOT_PROMISED.case
def nobody_promised_offsets(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, 0)), (2, "b", of(5, 1)))
    c.log("B", (0, "a"), (1, "b"))
    return []


@UNCLEAN.case
def the_destination_kept_what_the_source_lost(c: Case) -> list[Found]:
    c.history.row("faults", fault_id=1, name="unclean-election", cluster="A", action="bit", time_ns=1)
    c.log("A", (0, "a"), (1, "c"), (2, "d"))
    c.log("B", (0, "a"), (1, "x"), (2, "y"))
    return [("unclean_divergence", 1, None)]


@UNCLEAN.case
def the_destination_is_longer_than_the_source_s_new_log(c: Case) -> list[Found]:
    c.log("A", (0, "a"))
    c.log("B", (0, "a"), (1, "x"))
    return [("unclean_divergence", 1, None)]


@UNCLEAN.case
def the_mirror_says_that_it_failed(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "c"))
    c.log("B", (0, "a"), (1, "x"))
    c.state("FAILED", error="diverged")
    return []


@UNCLEAN.case
def reconciled(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "c"))
    c.log("B", (0, "a"), (1, "c"))
    return []


# -- the stop ---------------------------------------------------------------------------------------------------------


@STRICT.case
def open_transaction_is_aborted_once_at_the_stop(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", txn(5)), lso=1)
    c.state("STOPPED", 2, 2)
    c.send("B", "w", offset=4)
    c.log("B", (0, "a"), (1, "x", txn(5)), (2, None, end(5, "ABORT")), (3, None, RESET_RECORD), (4, "w"))
    return []


@STRICT.case
def open_transaction_is_left_open_at_the_stop(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", txn(5)), lso=1)
    c.state("STOPPED", 2, 2)
    c.log("B", (0, "a"), (1, "x", txn(5)), (2, None, RESET_RECORD), lso=1)
    return [("stop_cut", 1, None)]


@STRICT.case
def aborted_twice(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", txn(5)), lso=1)
    c.state("STOPPED", 2, 2)
    c.log("B", (0, "a"), (1, "x", txn(5)), (2, None, end(5, "ABORT")), (3, None, end(5, "ABORT")))
    return [("stop_cut", 1, None)]


@STRICT.case
def reset_before_the_marker(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", txn(5)), lso=1)
    c.state("STOPPED", 2, 2)
    c.send("B", "w", offset=4)
    c.log("B", (0, "a"), (1, "x", txn(5)), (2, None, RESET_RECORD), (3, None, end(5, "ABORT")), (4, "w"))
    return [("stop_cut", 2, None)]


@STRICT.case
def a_local_transaction_without_records_is_aborted_after_the_reset(c: Case) -> list[Found]:
    """Its records were dropped as duplicates; its marker was not written by the stop."""
    c.log("A", (0, "a"), (1, "x", txn(5)), (2, None, end(5, "COMMIT")))
    c.state("STOPPED", 3, 3)
    c.send("B", "w", offset=5)
    c.log(
        "B",
        (0, "a"),
        (1, "x", txn(5)),
        (2, None, end(5, "COMMIT")),
        (3, None, RESET_RECORD),
        (4, None, end(5, "ABORT")),
        (5, "w"),
    )
    return []


@STRICT.case
def short_of_the_recorded_cut(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.state("STOPPED", 3, 3)
    c.log("B", (0, "a"), (1, "b"))
    return [("stop_cut", 2, None)]


@STRICT.case
def mirrored_above_the_recorded_cut(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"))
    c.state("STOPPED", 2, 2)
    c.log("B", (0, "a"), (1, "b"), (2, "c"))
    return [("stop_cut", 2, "c")]


@RESET.case
def local_writes_without_a_reset(c: Case) -> list[Found]:
    c.log("A", (0, "a"))
    c.state("STOPPED", 1, 1)
    c.send("B", "w", offset=1)
    c.log("B", (0, "a"), (1, "w"))
    return [("stop_cut", 1, None)]


@RESET.case
def local_writes_after_a_reset(c: Case) -> list[Found]:
    c.log("A", (0, "a"))
    c.state("STOPPED", 1, 1)
    c.send("B", "w", offset=2)
    c.log("B", (0, "a"), (1, None, RESET_RECORD), (2, "w"))
    return []


@RESET.case
def local_transactions_that_are_aborted_are_local_writes(c: Case) -> list[Found]:
    c.log("A", (0, "a"))
    c.state("STOPPED", 1, 1)
    c.send("B", "w", offset=2, txn="T")
    c.end("txn_abort", "B", "T")
    c.log("B", (0, "a"), (1, None, RESET_RECORD), (2, "w", txn(7)), (3, None, end(7, "ABORT")))
    return []


@TRUNCATE.case
def not_truncated_to_the_last_stable_offset(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", txn(5)), lso=1)
    c.state("STOPPED", 2, 2)
    c.log("B", (0, "a"), (1, "x", txn(5)), (2, None, end(5, "ABORT")))
    return [("stop_cut", 1, None)]


@TRUNCATE.case
def truncated_to_the_last_stable_offset(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "x", txn(5)), lso=1)
    c.state("STOPPED", 1, 1)
    c.log("B", (0, "a"))
    return []


# -- failback ---------------------------------------------------------------------------------------------------------


@STRICT.case
def failed_back_and_reported(c: Case) -> list[Found]:
    c.send("A", "a", "b", "old", offset=0)
    c.state("STOPPED", 2, 2, time_ns=1)
    c.send("B", "w", offset=2)
    c.state("MIRRORING", cluster="A", error="1 record above the cut was discarded", time_ns=2)
    c.log("A", (0, "a"), (1, "b"), (2, "w"))
    c.log("B", (0, "a"), (1, "b"), (2, "w"))
    return []


@STRICT.case
def failed_back_without_a_word(c: Case) -> list[Found]:
    c.send("A", "a", "b", "old", offset=0)
    c.state("STOPPED", 2, 2, time_ns=1)
    c.send("B", "w", offset=2)
    c.state("MIRRORING", cluster="A", time_ns=10**15)
    c.log("A", (0, "a"), (1, "b"), (2, "w"))
    c.log("B", (0, "a"), (1, "b"), (2, "w"))
    return [("failback", 2, "old")]


@STRICT.case
def failed_back_without_truncation(c: Case) -> list[Found]:
    c.send("A", "a", "b", "old", offset=0)
    c.state("STOPPED", 2, 2, time_ns=1)
    c.send("B", "w", "v", offset=2)
    c.state("MIRRORING", cluster="A", time_ns=2)
    c.log("A", (0, "a"), (1, "b"), (2, "old"), (3, "v"))
    c.log("B", (0, "a"), (1, "b"), (2, "w"), (3, "v"))
    return [("failback", 2, None)]


# -- rewritten producer ids -------------------------------------------------------------------------------------------


@MAPPED.case
def rewritten_alike(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5, crc=1)), (1, None, end(5, "COMMIT")), (2, "b"))
    c.log("B", (0, "a", txn(77, crc=2)), (1, None, end(77, "COMMIT")), (2, "b"))
    return []


@MAPPED.case
def marker_not_rewritten(c: Case) -> list[Found]:
    """The transaction on B then has no marker with its own id."""
    c.log("A", (0, "a", txn(5)), (1, None, end(5, "COMMIT")), (2, "b"))
    c.log("B", (0, "a", txn(77)), (1, None, end(5, "COMMIT")), (2, "b"), lso=0)
    return [("pid_negative", 0, None), ("marker_missing", 0, None)]


@pytest.mark.parametrize(("group", "case"), [(g, c) for g, group in GROUPS.items() for c in group.cases])
def test_case(group: str, case: str, spark: SparkSession, tmp_path: Path) -> None:
    GROUPS[group].check(case, spark, tmp_path)
