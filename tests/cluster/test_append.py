"""The workload `append` on a real pair: its history is well formed and agrees with the log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.clusters.pair import RunningTopology
from harness.core.wait import wait_until
from harness.history.ops import Phase
from workloads.base import Endpoint
from workloads.clients.kafka_config import producer_config

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves a test's neighbours out of sight
from append_run import (
    APPEND,
    acknowledged,
    assert_complete,
    bare_read,
    check_well_formed,
    polled,
    recording,
    running,
)


@pytest.mark.parametrize("producer", ["idempotent", "plain"])
def test_every_send_is_acknowledged_read_live_and_read_again_at_the_end(
    pair: RunningTopology, run_dir: Path, topic: str, producer: str
) -> None:
    with recording(pair, run_dir, topic, producer=producer, value_bytes=100) as run:
        with running(run) as load:
            wait_until(lambda: load.counts().ok_sends >= 300, timeout_s=60, what="300 acknowledged sends")
            wait_until(
                lambda: load.counts().polled_records.get("A", 0) >= 500, timeout_s=30, what="500 records polled on A"
            )
        reads = list(APPEND.final_reads(run.context, timeout_s=40))
        log = bare_read(run, "A")
        assert bare_read(run, "B") == {}
    ops = run.ops()
    check_well_formed(ops)
    assert {op["type"] for op in ops if op["f"] == "send"} == {"invoke", "ok"}
    assert acknowledged(ops) == log
    assert {len(value) for value in log.values()} == {100}
    assert polled(ops, cluster="A", phase="final", isolation="read_uncommitted") == log
    assert polled(ops, cluster="A", phase="final", isolation="read_committed") == log
    live = polled(ops, cluster="A", phase="load", isolation="read_committed")
    assert live.items() <= log.items()
    assert_complete(reads)
    assert Counter((r.cluster, r.isolation) for r in reads) == dict.fromkeys(
        [(c, i) for c in "AB" for i in ("read_uncommitted", "read_committed")], 6
    )
    assert len(run.rows("final_reads")) == len(reads)
    counts = load.counts()
    assert (counts.ok_sends, counts.acked_records) == (
        sum(op["type"] == "ok" and op["f"] == "send" for op in ops),
        len(log),
    )
    empty_polls = [
        op for op in ops if (op["f"], op["type"], op["phase"]) == ("poll", "ok", "load") and not op["records"]
    ]
    assert any(op["cluster"] == "B" for op in empty_polls)  # the consumer is alive, about one a second
    seconds = (ops[-1]["time_ns"] - ops[0]["time_ns"]) / 1e9
    assert len(empty_polls) <= 4 * (seconds + 2)


def test_committed_records_are_visible_and_aborted_ones_lie_in_the_log_unseen(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    with recording(pair, run_dir, topic, producer="transactional", abort_ratio=0.4, topics=1, rate=50.0) as run:
        with running(run) as load:
            wait_until(
                lambda: load.counts().ok_sends >= 20 and load.counts().failed_sends >= 10,
                timeout_s=60,
                what="20 commits and 10 aborts",
            )
        reads = list(APPEND.final_reads(run.context, timeout_s=40))
        log, visible = bare_read(run, "A"), bare_read(run, "A", isolation="read_committed")
    ops = run.ops()
    check_well_formed(ops)
    assert_complete(reads)
    committed = acknowledged(ops, "txn")
    aborts = [op for op in ops if (op["f"], op["type"]) == ("txn", "fail")]
    assert {op["error"] for op in aborts} <= {"aborted", "stopped"}
    aborted = {(r["topic"], r["partition"], r["offset"]): r["value"] for op in aborts for r in op["records"]}
    assert None not in {place[2] for op in aborts if op["error"] == "aborted" for place in aborted}
    assert committed == visible
    assert aborted.keys() & log.keys()
    assert log == committed | {place: value for place, value in aborted.items() if place[2] is not None}
    assert polled(ops, cluster="A", phase="final", isolation="read_committed") == visible
    assert polled(ops, cluster="A", phase="final", isolation="read_uncommitted") == log
    names = [op["txn"] for op in ops if op["f"] == "txn" and op["type"] == "invoke"]
    assert len(set(names)) == len(names)
    assert len({op["client"] for op in ops if op["f"] == "txn"}) == 2


def test_a_topic_that_appears_late_is_read_from_its_start_and_never_created_by_readers(
    pair: RunningTopology, run_dir: Path, topic: str
) -> None:
    b = pair.clusters["B"]
    with recording(pair, run_dir, topic, topics=1, partitions=2) as run:
        late = f"{topic}-late"
        names = {"append-0": late}
        run.context.endpoints = {"B": Endpoint(cluster="B", bootstrap=b.bootstrap, topic_names=names, writable=False)}
        absent = list(APPEND.final_reads(run.context, timeout_s=4))
        run.context.recorder.set_phase(Phase.LOAD)
        with running(run) as load:
            time.sleep(3)
            assert late not in b.topics()
            b.create_topic(late, partitions=2, replication=3)
            producer = Producer(producer_config(b.bootstrap, "late", run.context.options))
            for n in range(10):
                producer.produce(late, f"v{n}", partition=n % 2)
            assert producer.flush(20) == 0
            wait_until(
                lambda: load.counts().polled_records.get("B", 0) >= 10, timeout_s=30, what="10 records read on B"
            )
        reads = list(APPEND.final_reads(run.context, timeout_s=30))
    assert len(absent) == 4
    assert all(not r.complete and f"{late} was not found on B" in (r.error or "") for r in absent)
    assert_complete(reads)
    ops = run.ops()
    found = polled(ops, cluster="B", phase="load", isolation="read_committed")
    assert sorted(found.values()) == [f"v{n}" for n in range(10)]
    assigned = [r for op in ops if op["f"] == "assign" and op["type"] == "ok" for r in op["records"]]
    assert {(r["action"], r["topic"]) for r in assigned} == {("assign", late)}
