"""Producer ids, sequences, epochs and transactions in the log, and replicas: planted faults and clean twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from log_cases import SETTLED, Case, Found, Group, contract
from pyspark.sql import SparkSession

LAST = 2**31 - 1
ONE = Group("one", **contract("kafka-clean"))  # cases that need one cluster only
STRICT = Group("strict", **contract("cluster-mirror/strict"))
MM2 = Group("mm2", **contract("mm2-exactly-once"))
OURS = Group("ours", **{**SETTLED, "clusters": {"A": {}}}, **contract("kafka-clean"))
KEPT = Group("kept", **SETTLED, **contract("cluster-mirror/strict"))  # everything must arrive
CUT_OFF = Group("cut_off", **contract("cluster-mirror/strict"))  # a fault of the link is active
BROKEN_B = Group("broken_b", **contract("cluster-mirror/strict"))  # a fault of B is active
GROUPS = {g.name: g for g in (ONE, STRICT, MM2, OURS, KEPT, CUT_OFF, BROKEN_B)}


def of(pid: int, sequence: int = -1, epoch: int = 0, **columns: Any) -> dict[str, Any]:
    return {"producer_id": pid, "producer_epoch": epoch, "sequence": sequence, **columns}


def txn(pid: int, epoch: int = 0, **columns: Any) -> dict[str, Any]:
    return of(pid, epoch=epoch, transactional=True, **columns)


def end(pid: int, how: str = "COMMIT", epoch: int = 0, **columns: Any) -> dict[str, Any]:
    return txn(pid, epoch, control_type=how, **columns)


RESET = {"control_type": "PID_RESET"}

# -- replicas ---------------------------------------------------------------------------------------------------------


@ONE.case
def equal_replicas(c: Case) -> list[Found]:
    for broker in (1, 2, 3):
        c.log("A", (0, "a"), (1, "b"), broker=broker)
    return []


@ONE.case
def diverged_replicas(c: Case) -> list[Found]:
    c.log("A", (0, "x0"), (1, "x1"), (2, "x2"), broker=1)
    c.log("A", (0, "x0"), (1, "y1", {"leader_epoch": 2}), (2, "x2"), broker=2)
    return [("replica_divergence", 1, None)]


@ONE.case
def diverged_replicas_without_crcs(c: Case) -> list[Found]:
    none = {"crc": None, "crc_ok": None}
    c.log("A", (0, "x0", none), (1, "x1", none), broker=1)
    c.log("A", (0, "x0", none), (1, "y1", none), broker=2)
    return [("replica_divergence", 1, "x1")]


@ONE.case
def batch_missing_on_one_replica(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"), broker=1)
    c.log("A", (0, "a"), (2, "c"), broker=2)
    return [("replica_divergence", 1, None)]


@ONE.case
def above_the_high_watermark_replicas_may_differ(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), broker=1, hw=1)
    c.log("A", (0, "a"), (1, "z"), broker=2)
    return []


@ONE.case
def behind_and_trimmed_replicas(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), (2, "c"), broker=1)
    c.log("A", (0, "a"), (1, "b"), broker=2)
    c.log("A", (1, "b"), (2, "c"), broker=3, log_start=1)
    return []


@ONE.case
def dead_replica_that_had_left_the_isr(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b"), broker=1, leader=1)
    c.history.tables["log_ends"][-1]["isr"] = [1]
    c.log("A", (0, "a"), (1, "old"), broker=2)
    return []


@ONE.case
def bad_crc_on_one_replica(c: Case) -> list[Found]:
    c.log("A", (0, "a"), (1, "b", {"crc_ok": False}), broker=1)
    c.log("A", (0, "a"), (1, "b"), broker=2)
    return [("crc_invalid", 1, None)]


# -- sequences --------------------------------------------------------------------------------------------------------


@ONE.case
def contiguous_sequences(c: Case) -> list[Found]:
    """Two producers interleaved; one bumps its epoch and restarts at 0; one wraps; expired records are no gap."""
    c.log(
        "A",
        *((10, "a", of(5, 7)), (11, "b", of(6, LAST - 1)), (12, "c", of(5, 8)), (13, "d", of(6, LAST))),
        *((14, "e", of(6, 0)), (15, "f", of(5, 0, epoch=1)), (16, "g", of(5, 1, epoch=1)), (17, "h")),
    )
    return []


@ONE.case
def sequence_left_out(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 1)), (2, "d", of(5, 3)))
    return [("sequence_gap", 2, None)]


@ONE.case
def sequence_left_out_around_the_wrap(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, LAST)), (1, "b", of(5, 1)))
    return [("sequence_gap", 1, None)]


@ONE.case
def sequences_start_again_without_a_reset(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, 4)), (1, "b", of(5, 5)), (2, "c", of(5, 0)))
    return [("sequence_gap", 2, None)]


@ONE.case
def sequences_start_again_after_a_reset(c: Case) -> list[Found]:
    c.send("A", "a", "b", offset=0, process="p")
    c.send("A", "c", offset=3, process="q")
    c.log("A", (0, "a", of(5, 4)), (1, "b", of(5, 5)), (2, None, RESET), (3, "c", of(5, 0)))
    return []


@ONE.case
def gaps_of_compaction_are_legal(c: Case) -> list[Found]:
    c.row("configs", cluster="A", event="look", name="cleanup.policy", value="compact,delete")
    c.log("A", (0, "a", of(5, 0)), (7, "b", of(5, 7)))
    return []


@ONE.case
def one_batch_written_twice_leaves_nothing_out(c: Case) -> list[Found]:
    """`duplicate` reports it; one sequence with the same value twice is no collision."""
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 1)), (2, "b", of(5, 1)), (3, "c", of(5, 2)))
    return []


@ONE.case
def one_sequence_for_two_values(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 1)), (2, "c", of(5, 1)), (3, "d", of(5, 2)))
    return [("pid_collision", 2, "c")]


@ONE.case
def two_producers_under_one_id(c: Case) -> list[Found]:
    c.send("A", "a", "b", offset=0, process="p")
    c.send("A", "c", offset=2, process="q")
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 1)), (2, "c", of(5, 2)))
    return [("pid_collision", 2, "c")]


@ONE.case
def one_id_in_two_epochs_of_two_producers(c: Case) -> list[Found]:
    """Fencing: the same transactional id moves to another process with the next epoch."""
    c.send("A", "a", offset=0, process="p")
    c.send("A", "b", offset=1, process="q")
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 0, epoch=1)))
    return []


@ONE.case
def epoch_goes_back(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(5, 0, epoch=1)), (1, "b", of(5, 0, epoch=0)))
    return [("epoch_regressed", 1, None)]


@ONE.case
def coordinator_epoch_goes_back(c: Case) -> list[Found]:
    c.log(
        "A",
        *((0, "a", txn(5)), (1, None, end(5, coordinator_epoch=3))),
        *((2, "b", txn(5)), (3, None, end(5, coordinator_epoch=2))),
    )
    return [("epoch_regressed", 3, None)]


@ONE.case
def negative_id(c: Case) -> list[Found]:
    c.log("A", (0, "a", of(-7, 0)), (1, "b", of(-7, 1)))
    return [("pid_negative", 0, None)]


@STRICT.case
def mirrored_and_local_producer_share_an_id(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, process="p")
    c.log("A", (0, "a", of(5, 0)))
    c.state("STOPPED", 1, 1)
    c.send("B", "w", offset=1, process="q")
    c.log("B", (0, "a", of(5, 0)), (1, "w", of(5, 1)))
    return [("pid_collision", 1, "w")]


@STRICT.case
def a_reset_parts_them(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, process="p")
    c.log("A", (0, "a", of(5, 0)))
    c.state("STOPPED", 1, 1)
    c.send("B", "w", offset=2, process="q")
    c.log("B", (0, "a", of(5, 0)), (1, None, RESET), (2, "w", of(5, 0)))
    return []


@STRICT.case
def a_reset_parts_transactions_of_one_id_too(c: Case) -> list[Found]:
    """The new owner of the id begins at a lower epoch than the old one's markers."""
    c.log("A", (0, "a", txn(5, 2)), (1, None, end(5, epoch=3)))
    c.state("STOPPED", 2, 2)
    c.send("B", "w", offset=3, process="q")
    mirrored = ((0, "a", txn(5, 2)), (1, None, end(5, epoch=3)), (2, None, RESET))
    c.log("B", *mirrored, (3, "w", txn(5, 0)), (4, None, end(5, epoch=1)))
    return []


@STRICT.case
def local_write_taken_for_a_mirrored_one(c: Case) -> list[Found]:
    c.send("A", "a", "b", offset=0, process="p")
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(5, 1)))
    c.state("STOPPED", 2, 2)
    c.send("B", "w", offset=0, process="q", producer_id=5, producer_epoch=0, sequence=0)
    c.log("B", (0, "a", of(5, 0)), (1, "b", of(5, 1)))
    return [("pid_swallowed", 0, "w")]


@STRICT.case
def local_write_taken_for_one_that_came_over_two_mirrors(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, process="p")
    for cluster in ("A", "B", "C"):
        c.log(cluster, (0, "a", of(5, 0)))
    c.send("C", "w", offset=0, process="q", producer_id=5, producer_epoch=0, sequence=0)
    return [("pid_swallowed", 0, "w")]


@STRICT.case
def local_write_at_its_own_offset(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, process="p")
    c.log("A", (0, "a", of(5, 0)))
    c.state("STOPPED", 1, 1)
    c.send("B", "w", offset=1, process="q")
    c.log("B", (0, "a", of(5, 0)), (1, "w", of(1000, 0)))
    return []


@MM2.case
def the_mirror_s_own_producer_carries_records_of_many(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, process="p")
    c.send("A", "b", offset=1, process="q")
    c.log("A", (0, "a", of(5, 0)), (1, "b", of(6, 0)))
    c.log("B", (0, "a", of(9, 0)), (1, "b", of(9, 1)))
    return []


# -- transactions -----------------------------------------------------------------------------------------------------


@ONE.case
def transactions_one_after_the_other(c: Case) -> list[Found]:
    for name, offset in (("T1", 0), ("T2", 3)):
        c.send("A", f"{name}a", f"{name}b", offset=offset, txn=name)
        c.end("txn_commit", "A", name)
    c.log(
        "A",
        *((0, "T1a", txn(5)), (1, "T1b", txn(5)), (2, None, end(5))),
        *((3, "T2a", txn(5)), (4, "T2b", txn(5)), (5, None, end(5))),
    )
    return []


@ONE.case
def epochs_that_grow_with_every_transaction(c: Case) -> list[Found]:
    """Transaction version 2: a marker has the epoch of the next transaction's records."""
    c.log("A", (0, "a", txn(5, 0)), (1, None, end(5, epoch=1)), (2, "b", txn(5, 1)), (3, None, end(5, epoch=2)))
    return []


@ONE.case
def hanging_transaction(c: Case) -> list[Found]:
    c.send("A", "q0", offset=0, txn="T1")
    c.end("txn_abort", "A", "T1")
    c.send("A", "q1", offset=2, txn="T1", end="info")
    c.log("A", (0, "q0", txn(3)), (1, None, end(3, "ABORT")), (2, "q1", txn(3)), (3, "n"), lso=2)
    return [("late_write", 2, "q1"), ("lso_wrong", 2, None)]


@ONE.case
def late_write_that_the_next_transaction_closed(c: Case) -> list[Found]:
    c.send("A", "q0", offset=0, txn="T1")
    c.end("txn_abort", "A", "T1")
    c.send("A", "q1", offset=2, txn="T1", end="info")
    c.log("A", (0, "q0", txn(3)), (1, None, end(3, "ABORT")), (2, "q1", txn(3)), (3, None, end(3)))
    return [("late_write", 2, "q1")]


@ONE.case
def late_write_of_a_fenced_epoch(c: Case) -> list[Found]:
    c.log(
        "A", (0, "a", txn(3, 0)), (1, None, end(3, "ABORT", epoch=1)), (2, "z", txn(3, 0)), (3, None, end(3, epoch=1))
    )
    return [("late_write", 2, "z")]


@ONE.case
def committed_without_a_marker(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, txn="T1")
    c.end("txn_commit", "A", "T1")
    c.log("A", (0, "a", txn(3)), lso=0)
    return [("marker_missing", 0, None)]


@ONE.case
def still_open_and_undecided(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, txn="T1")
    c.log("A", (0, "a", txn(3)), lso=0)
    return []


@ONE.case
def read_committed_sees_beyond_an_open_transaction(c: Case) -> list[Found]:
    c.send("A", "a", offset=0, txn="T1")
    c.log("A", (0, "a", txn(3)), (1, "b"))
    return [("lso_wrong", 0, None)]


def looked(c: Case, *, stable: int, high: int, epoch: int = 0) -> None:
    """An earlier snapshot of the leader."""
    ends = {"log_start": 0, "log_end": high, "high_watermark": high, "last_stable": stable}
    c.row("log_ends", cluster="A", partition=0, broker=-1, look=-1, leader_epoch=epoch, time_ns=1, **ends)


@ONE.case
def read_committed_saw_beyond_a_transaction_that_was_open_then(c: Case) -> list[Found]:
    looked(c, stable=2, high=2)
    c.log("A", (0, "a", txn(3)), (1, "b"), (2, None, end(3)))
    return [("lso_wrong", 0, None)]


@ONE.case
def read_committed_stopped_at_the_transaction_while_it_was_open(c: Case) -> list[Found]:
    looked(c, stable=0, high=2)
    c.log("A", (0, "a", txn(3)), (1, "b"), (2, None, end(3)))
    return []


@ONE.case
def a_transaction_of_a_later_leader_epoch_was_not_there_at_the_look(c: Case) -> list[Found]:
    looked(c, stable=2, high=2)
    later = {"leader_epoch": 1}
    c.log("A", (0, "a", txn(3, **later)), (1, "b", later), (2, None, {**end(3), **later}))
    return []


@STRICT.case
def marker_lost_by_the_mirror(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5)), (1, None, end(5)), (2, "b"))
    c.log("B", (0, "a", txn(5)), (2, "b"), lso=0)
    return [("marker_missing", 0, None)]


@STRICT.case
def negated_ids_hide_open_transactions_from_brokers(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5)), lso=0)
    c.log("B", (0, "a", txn(-7)))
    return [("pid_negative", 0, None), ("lso_wrong", 0, None), ("offset_identity", 0, None)]


@STRICT.case
def aborted_on_the_source_visible_on_the_destination(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5)), (1, None, end(5, "ABORT")), (2, "b"))
    c.log("B", (0, "a", txn(5)), (1, None, end(5, "COMMIT")), (2, "b"))
    return [("aborted_set", 0, "a"), ("offset_identity", 1, None)]


@STRICT.case
def committed_on_the_source_after_the_stop(c: Case) -> list[Found]:
    c.send("A", "x", offset=16, txn="T1")
    c.state("STOPPED")
    c.end("txn_commit", "A", "T1")
    c.log("A", (16, "x", txn(2)), (17, None, end(2)), log_start=16)
    c.log("B", (16, "x", txn(2)), (17, None, end(2, "ABORT")), (18, None, RESET), log_start=16)
    return [("transaction_outcome", 16, "x")]


def stopped_between(c: Case, *, begun_before: bool = True, fault: str | None = None, late_s: float = 0.0) -> None:
    """A transaction with records below the cut and its COMMIT above it on A, which B aborts at the stop."""
    if fault is not None:
        c.history.row("faults", fault_id=1, name="link-partition", cluster=fault, action="inject")
    if begun_before:
        c.send("A", "x", offset=0, txn="T1")
    target = [{"action": "target", "topic": c.topic}]
    c.history.event("admin", "invoke", "mirror_stop", target, cluster="B", time_ns=c.history.now)
    if not begun_before:
        c.send("A", "x", offset=0, txn="T1")
    c.history.event("admin", "ok", "mirror_stop", target, cluster="B", time_ns=c.history.now)
    c.state("STOPPED", 1, 1)
    if late_s:
        at = c.history.now + int(late_s * 1e9)
        for type_ in ("invoke", "ok"):
            c.history.event("p", type_, "txn_commit", cluster="A", txn=c.name("T1"), time_ns=at)
    else:
        c.end("txn_commit", "A", "T1")
    c.log("A", (0, "x", txn(2)), (1, None, end(2)))
    c.log("B", (0, "x", txn(2)), (1, None, end(2, "ABORT")), (2, None, RESET))


@STRICT.case
def a_stop_aborts_what_had_begun_and_the_source_commits(c: Case) -> list[Found]:
    stopped_between(c)
    return [("transaction_outcome", 0, "x")]


@STRICT.case
def what_begins_after_the_stop_was_asked_for_is_lag(c: Case) -> list[Found]:
    stopped_between(c, begun_before=False)
    return []


@STRICT.case
def what_is_committed_long_after_the_stop_is_lag(c: Case) -> list[Found]:
    stopped_between(c, late_s=5)
    return []


@STRICT.case
def what_a_reader_had_seen_before_the_stop_had_begun(c: Case) -> list[Found]:
    """The send's acknowledgement came later."""
    c.history.poll("r", "A", c.topic, 0, (0, c.name("x")))
    stopped_between(c, begun_before=False)
    return [("transaction_outcome", 0, "x")]


@STRICT.case
def a_marker_below_the_cut_leaves_no_excuse(c: Case) -> list[Found]:
    """It began after the stop was requested, but its commit was mirrored, as an abort."""
    target = [{"action": "target", "topic": c.topic}]
    c.history.event("admin", "invoke", "mirror_stop", target, cluster="B", time_ns=c.history.now)
    c.send("A", "x", offset=0, txn="T1")
    c.end("txn_commit", "A", "T1")
    c.history.event("admin", "ok", "mirror_stop", target, cluster="B", time_ns=c.history.now)
    c.state("STOPPED", 2, 2)
    c.log("A", (0, "x", txn(2)), (1, None, end(2)))
    c.log("B", (0, "x", txn(2)), (1, None, end(2, "ABORT")), (2, None, RESET))
    return [("transaction_outcome", 0, "x"), ("offset_identity", 1, None)]


@CUT_OFF.case
def what_a_source_that_was_cut_off_commits_is_lag(c: Case) -> list[Found]:
    stopped_between(c, fault="link")
    return []


@BROKEN_B.case
def a_fault_of_the_destination_excuses_nothing(c: Case) -> list[Found]:
    stopped_between(c, fault="B")
    return [("transaction_outcome", 0, "x")]


@STRICT.case
def transaction_over_two_partitions_cut_in_two(c: Case) -> list[Found]:
    c.send("A", "x", offset=0, txn="T1")
    c.send("A", "y", offset=0, txn="T1", partition=1)
    c.end("txn_commit", "A", "T1")
    for partition, value in enumerate("xy"):
        c.log("A", (0, value, txn(2)), (1, None, end(2)), partition=partition)
    c.state("STOPPED", 2, 2)
    c.state("STOPPED", 0, 0, partition=1)
    c.log("B", (0, "x", txn(2)), (1, None, end(2)))
    c.log("B", partition=1)
    return [("cross_partition", "B", 1, 0, "y")]


@STRICT.case
def transaction_over_two_partitions_carried_whole(c: Case) -> list[Found]:
    c.send("A", "x", offset=0, txn="T1")
    c.send("A", "y", offset=0, txn="T1", partition=1)
    c.end("txn_commit", "A", "T1")
    for cluster in "AB":
        for partition, value in enumerate("xy"):
            c.log(cluster, (0, value, txn(2)), (1, None, end(2)), partition=partition)
    c.state("STOPPED", 2, 2)
    c.state("STOPPED", 2, 2, partition=1)
    return []


@KEPT.case
def the_last_marker_never_came(c: Case) -> list[Found]:
    """Everything must arrive, and the marker is the last batch of the source."""
    c.log("A", (0, "a", txn(5)), (1, None, end(5)))
    c.log("B", (0, "a", txn(5)), lso=0)
    return [("marker_missing", 0, None)]


@OURS.case
def left_open_for_too_long(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5, timestamp=1_000_000)), lso=0)
    c.row("batches", cluster="A", broker=9, partition=9, base_offset=0, last_offset=0, timestamp=1_200_000, look=0)
    return [("marker_missing", 0, None)]


@OURS.case
def open_within_its_timeout(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5, timestamp=1_190_000)), lso=0)
    return []


@OURS.case
def marker_long_after_the_data(c: Case) -> list[Found]:
    c.log("A", (0, "a", txn(5, timestamp=900_000)), (1, None, end(5, "ABORT", timestamp=1_100_000)))
    return [("marker_missing", 0, None)]


@OURS.case
def stalled_last_stable_offset(c: Case) -> list[Found]:
    look = {"cluster": "A", "partition": 0, "broker": 1, "leader": 1, "look": 0, "log_start": 0, "log_end": 9}
    for seconds in (0, 60, 120):
        c.row("log_ends", **look, high_watermark=9, last_stable=4, time_ns=seconds * 10**9)
    c.log("A", (0, "a"), (8, "b", txn(4)), (9, None, end(4)), broker=1)
    c.history.tables["log_ends"][-1]["time_ns"] = 130 * 10**9
    return [("lso_wrong", 4, None)]


@pytest.mark.parametrize(("group", "case"), [(g, c) for g, group in GROUPS.items() for c in group.cases])
def test_case(group: str, case: str, spark: SparkSession, tmp_path: Path) -> None:
    GROUPS[group].check(case, spark, tmp_path)
