"""The workload `append` under faults on a real pair: its history while brokers die and logs are truncated."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.clusters.pair import RunningTopology
from harness.core.wait import wait_until
from nemeses.base import FaultSpec
from nemeses.engine.conductor import Conductor
from nemeses.engine.outcomes import FaultState
from workloads.base import Endpoint
from workloads.clients.kafka_config import producer_config

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves a test's neighbours out of sight
from append_run import (
    APPEND,
    acknowledged,
    acknowledgements,
    assert_complete,
    bare_read,
    check_well_formed,
    polled,
    recording,
    running,
)


@pytest.mark.parametrize("producer", ["idempotent", "transactional"])
def test_a_broker_killed_in_the_middle_loses_nothing_that_was_acknowledged(
    pair: RunningTopology, run_dir: Path, topic: str, producer: str
) -> None:
    a = pair.clusters["A"]
    with recording(pair, run_dir, topic, producer=producer, topics=1, processes=8) as run:
        with running(run) as load:
            wait_until(lambda: load.counts().ok_sends >= 30, timeout_s=60, what="30 acknowledged sends")
            leader = a.partitions(f"{topic}-append-0")[0].leader
            assert leader is not None
            a.brokers[leader].kill()
            time.sleep(3)
            before = load.counts().ok_sends
            a.brokers[leader].start()
            wait_until(lambda: load.counts().ok_sends >= before + 30, timeout_s=60, what="30 sends after the kill")
        a.await_full_isr(timeout_s=60)
        reads = list(APPEND.final_reads(run.context, timeout_s=60))
        log, visible = bare_read(run, "A"), bare_read(run, "A", isolation="read_committed")
    ops = run.ops()
    check_well_formed(ops)
    assert_complete(reads)
    assert len(set(log.values())) == len(log)  # idempotence: retries left no duplicates
    if producer == "idempotent":
        assert acknowledged(ops).items() <= log.items()
        failed = {r["value"] for op in ops if (op["f"], op["type"]) == ("send", "fail") for r in op["records"]}
    else:
        assert acknowledged(ops, "txn").items() <= visible.items()
        failed = {r["value"] for op in ops if (op["f"], op["type"]) == ("txn", "fail") for r in op["records"]}
    assert failed.isdisjoint(visible.values())
    assert polled(ops, cluster="A", phase="final", isolation="read_committed") == visible


def test_a_load_stops_in_time_while_its_cluster_is_paused_and_final_reads_say_what_is_missing(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    nodes = list(pair.clusters["A"].brokers.values())
    with recording(pair, run_dir, topic, topics=1, partitions=2) as run:
        load = APPEND.start(run.context)
        try:
            wait_until(lambda: load.counts().ok_sends >= 30, timeout_s=60, what="30 acknowledged sends")
            for node in nodes:
                node.signal("SIGSTOP")
            time.sleep(1)
            began = time.monotonic()
            load.stop(timeout_s=10)
            assert time.monotonic() - began < 10
            reads = list(APPEND.final_reads(run.context, timeout_s=8))
            assert time.monotonic() - began < 30
        finally:
            for node in nodes:
                node.signal("SIGCONT")
            load.stop(timeout_s=20)
        late = list(APPEND.final_reads(run.context, timeout_s=60))
        log = bare_read(run, "A")
    ops = run.ops()
    check_well_formed(ops)
    stopped = [op for op in ops if (op["f"], op["type"]) == ("send", "info")]
    assert {op["error"] for op in stopped} == {"stopped"}
    assert acknowledged(ops).items() <= log.items()
    by_cluster = {c: [r for r in reads if r.cluster == c] for c in "AB"}
    assert_complete(by_cluster["B"])
    assert len(by_cluster["A"]) == 4
    assert not any(r.complete for r in by_cluster["A"])
    assert all(r.error for r in by_cluster["A"])
    assert_complete(late)


def test_a_partition_without_a_leader_does_not_affect_the_others(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    a = pair.clusters["A"]
    with recording(pair, run_dir, topic, topics=1, partitions=3, replication=1) as run:
        with running(run) as load:
            wait_until(lambda: load.counts().ok_sends >= 60, timeout_s=60, what="60 acknowledged sends")
        name = run.context.endpoints["A"].topic_names["append-0"]
        lost, *others = a.partitions(name)
        assert lost.leader is not None
        victim = a.brokers[lost.leader]
        victim.kill()
        try:
            wait_until(lambda: a.partitions(name)[0].leader is None, timeout_s=60, what="a partition without a leader")
            reads = list(APPEND.final_reads(run.context, timeout_s=10))
        finally:
            victim.start()
    alive = {p.partition for p in others if p.leader != lost.leader}
    assert alive
    found = {(r.cluster, r.partition): r for r in reads if r.isolation == "read_uncommitted"}
    assert all(found["A", number].complete and found["A", number].position > 0 for number in alive)
    assert not found["A", 0].complete
    assert f"the offsets of {name}-0 on A could not be fetched in time" in (found["A", 0].error or "")
    assert all(found["B", number].complete for number in range(3))


def test_a_fenced_transactional_producer_is_replaced_and_its_open_transaction_does_not_count(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    a = pair.clusters["A"]
    with recording(
        pair, run_dir, topic, topics=1, producer="transactional", producers=1, abort_ratio=0.0, rate=20.0
    ) as run:
        with running(run) as load:
            wait_until(lambda: load.counts().ok_sends >= 5, timeout_s=60, what="5 commits")
            rival = Producer(
                producer_config(a.bootstrap, "rival", run.context.options, transactional_id=f"{topic}-A-producer-0")
            )
            rival.init_transactions(20)
            before = load.counts().ok_sends
            wait_until(lambda: load.counts().ok_sends >= before + 5, timeout_s=60, what="5 commits after the fencing")
            assert load.error() is None
        visible = bare_read(run, "A", isolation="read_committed")
    ops = run.ops()
    check_well_formed(ops)
    crashes = [op for op in ops if op["f"] == "crash" and op["type"] == "ok"]
    # while the rival initialises, it may fence the first successor too
    assert [op["client"] for op in crashes] == [f"A-producer-0#{n}" for n in range(len(crashes))]
    assert crashes
    assert {op["error"] for op in crashes} <= {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FATAL"}
    commits = Counter(op["client"] for op in ops if (op["f"], op["type"]) == ("txn", "ok"))
    assert commits["A-producer-0#0"] >= 5
    assert commits[f"A-producer-0#{len(crashes)}"] >= 1
    assert acknowledged(ops, "txn").items() <= visible.items()


def test_a_position_outside_the_log_is_recorded_and_reading_resumes_at_the_log_start(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    """The log shrinks under a live consumer: its topic is deleted and recreated, shorter."""
    a = pair.clusters["A"]
    with recording(pair, run_dir, topic, topics=1, partitions=1, consumers=1) as run:
        name = f"{topic}-append-0"
        quiet = {"A": Endpoint(cluster="A", bootstrap=a.bootstrap, topic_names={"append-0": name}, writable=False)}
        run.context.endpoints = quiet
        producer = Producer(producer_config(a.bootstrap, "first", run.context.options))
        for n in range(50):
            producer.produce(name, f"old{n}", partition=0)
        assert producer.flush(20) == 0
        with running(run) as load:
            wait_until(lambda: load.counts().polled_records.get("A", 0) >= 50, timeout_s=30, what="50 records read")
            admin = a.admin()
            for future in admin.delete_topics([name]).values():
                future.result(20)
            wait_until(lambda: name not in a.topics(), timeout_s=20, what="the topic to be gone")
            a.create_topic(name, partitions=1, replication=3)
            second = Producer(producer_config(a.bootstrap, "second", run.context.options))
            for n in range(5):
                second.produce(name, f"new{n}", partition=0)
            assert second.flush(20) == 0
            wait_until(lambda: load.counts().polled_records.get("A", 0) >= 55, timeout_s=40, what="5 new records read")
    ops = run.ops()
    found = [r["value"] for op in ops if op["f"] == "poll" for r in op["records"]]
    assert found == [f"old{n}" for n in range(50)] + [f"new{n}" for n in range(5)]
    assigned = [op for op in ops if op["f"] == "assign" and op["type"] == "ok"]
    assert len(assigned) == 2
    assert (assigned[1]["error"], assigned[1]["records"][0]["offset"]) == ("OFFSET_OUT_OF_RANGE", 0)


def test_an_unclean_election_on_a_leaves_a_history_that_shows_the_loss(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    a = pair.clusters["A"]
    name = f"{topic}-append-0"
    with recording(pair, run_dir, topic, topics=1, partitions=1, isolation="read_uncommitted", consumers=1) as run:
        pair.test_topics = [name]
        recorder = run.context.recorder
        spec = FaultSpec(
            fault_id=1,
            nemesis="unclean-election",
            at_s=0,
            duration_s=600,
            cluster="A",
            role="leader",
            params={"topic": name, "partition": 0, "pick": 0, "alone": 20},
        )
        conductor = Conductor(topology=pair, recorder=recorder, clock=recorder.clock, schedule=[spec])
        try:
            with running(run) as load:
                wait_until(lambda: load.counts().ok_sends >= 50, timeout_s=60, what="50 acknowledged sends")
                conductor.start()
                wait_until(
                    lambda: conductor.outcomes()[0].state not in (FaultState.WAITING, FaultState.INJECTING),
                    timeout_s=90,
                    what="the unclean election",
                )
                assert conductor.outcomes()[0].bit, conductor.outcomes()
                before, read_before = load.counts().ok_sends, load.counts().polled_records["A"]
                wait_until(lambda: load.counts().ok_sends >= before + 30, timeout_s=60, what="30 sends afterwards")
                wait_until(
                    lambda: load.counts().polled_records["A"] >= read_before + 30,
                    timeout_s=60,
                    what="30 reads afterwards",
                )
        finally:
            healing = conductor.heal_all()
            pair.test_topics = ()
        assert healing.ok, healing
        a.await_full_isr(timeout_s=60)
        reads = list(APPEND.final_reads(run.context, timeout_s=60))
        log = bare_read(run, "A")
    ops = run.ops()
    check_well_formed(ops)
    assert_complete(reads)
    lost = {value for place, value in acknowledgements(ops) if log.get(place) != value}
    assert len(lost) >= 20  # acknowledged by the leader alone
    assert lost.isdisjoint(log.values())
    assert polled(ops, cluster="A", phase="final", isolation="read_uncommitted") == log
    live = [r for op in ops if (op["f"], op["phase"]) == ("poll", "load") for r in op["records"]]
    after = {r["value"] for r in live} & set(log.values())
    assert len(after) >= 30
