"""Runs of the workload `append` on the tests' pair: recorded, read back, and checked for the rules of a history."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, TopicPartition

from harness.clusters.pair import RunningTopology
from harness.history.ops import Phase
from harness.history.recorder import RunRecorder
from workloads import REGISTRY
from workloads.base import Endpoint, FinalRead, Load, WorkloadContext, WorkloadOptions
from workloads.values import parse_value

APPEND = REGISTRY["append"]
Place = tuple[str, int, int]  # topic, partition, offset


@dataclass
class Run:
    """One recording: its context while it runs, its rows afterwards."""

    context: WorkloadContext
    folder: Path

    def rows(self, table: str) -> list[dict[str, Any]]:
        return pq.read_table(self.folder / table).to_pylist()

    def ops(self) -> list[dict[str, Any]]:
        """Events in order, each with its records."""
        events = sorted(self.rows("ops"), key=lambda op: op["index"])
        records = defaultdict(list)
        for record in sorted(self.rows("op_records"), key=lambda r: (r["op_index"], r["position"])):
            records[record["op_index"]].append(record)
        return [op | {"records": records[op["index"]]} for op in events]


@contextmanager
def recording(pair: RunningTopology, folder: Path, topic: str, **options: Any) -> Iterator[Run]:
    """A run with its own topics on A and on B, without a mirror."""
    chosen = WorkloadOptions(**({"topics": 2, "partitions": 3, "rate": 200.0} | options))
    specs = APPEND.topics(chosen)
    names = {spec.name: f"{topic}-{spec.name}" for spec in specs}
    for cluster in pair.clusters.values():
        for spec in specs:
            cluster.create_topic(
                names[spec.name], partitions=spec.partitions, replication=spec.replication, config=spec.config
            )
    with RunRecorder(folder / "rec", phase=Phase.LOAD) as recorder:
        endpoints = {
            name: Endpoint(cluster=name, bootstrap=cluster.bootstrap, topic_names=names, writable=name == "A")
            for name, cluster in pair.clusters.items()
        }
        context = WorkloadContext(
            run_id=topic, seed=5, options=chosen, endpoints=endpoints, recorder=recorder, clock=recorder.clock
        )
        yield Run(context, folder / "rec")


@contextmanager
def running(run: Run) -> Iterator[Load]:
    """The load, always stopped in time, with no thread left."""
    load = APPEND.start(run.context)
    try:
        yield load
    finally:
        load.stop(timeout_s=20)
    assert load.error() is None
    assert [t.name for t in threading.enumerate() if t.name.startswith(("A-", "B-"))] == []


def bare_read(run: Run, cluster: str, *, isolation: str = "read_uncommitted") -> dict[Place, str]:
    """Everything in the topics, read by a consumer that shares no code with the workload's readers."""
    endpoint = run.context.endpoints[cluster]
    consumer = Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap,
            "group.id": "bare",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    left = {(t, p) for t in endpoint.topic_names.values() for p in range(run.context.options.partitions)}
    consumer.assign([TopicPartition(t, p, 0) for t, p in left])
    found: dict[Place, str] = {}
    deadline = time.monotonic() + 30
    while left and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found[message.topic(), message.partition(), message.offset()] = message.value().decode()
        elif message.error().code() == KafkaError._PARTITION_EOF:
            left.discard((message.topic(), message.partition()))
    consumer.close()
    assert not left
    return found


def check_well_formed(ops: list[dict[str, Any]]) -> None:
    """The rules of a history: dense indices, one pending operation per process, none after info, unique values."""
    assert [op["index"] for op in ops] == list(range(len(ops)))
    assert all(a["time_ns"] <= b["time_ns"] for a, b in pairwise(ops))
    under_way: dict[str, int] = {}
    retired: set[str] = set()
    for op in ops:
        process = op["process"]
        if op["type"] == "invoke":
            assert process not in under_way
            assert process not in retired
            under_way[process] = op["index"]
        else:
            assert under_way.pop(process) == op["invoke_index"]
            if op["type"] == "info":
                retired.add(process)
    assert under_way == {}
    sent = [r["value"] for op in ops if op["type"] == "invoke" for r in op["records"] if r["action"] == "send"]
    assert len(set(sent)) == len(sent) > 0
    for op in ops:
        for record in op["records"]:
            if record["action"] == "send":
                parsed = parse_value(record["value"])
                assert parsed is not None
                assert (parsed.client, parsed.process) == (op["client"], op["process"])


def acknowledgements(ops: list[dict[str, Any]], f: str = "send") -> set[tuple[Place, str]]:
    """(place, value) of each record with an acknowledged offset (of a transaction: only if it was committed)."""
    kept = [op for op in ops if op["f"] == f and op["type"] != "invoke" and (f == "send" or op["type"] == "ok")]
    return {
        ((r["topic"], r["partition"], r["offset"]), r["value"])
        for op in kept
        for r in op["records"]
        if r["offset"] is not None
    }


def acknowledged(ops: list[dict[str, Any]], f: str = "send") -> dict[Place, str]:
    """Place → value of the acknowledged records; fails if a place was acknowledged twice."""
    found = acknowledgements(ops, f)
    assert len(dict(found)) == len(found)
    return dict(found)


def polled(ops: list[dict[str, Any]], *, cluster: str, phase: str, isolation: str) -> dict[Place, str]:
    return {
        (r["topic"], r["partition"], r["offset"]): r["value"]
        for op in ops
        if (op["f"], op["type"], op["cluster"]) == ("poll", "ok", cluster)
        and (op["phase"], op["isolation"]) == (phase, isolation)
        for r in op["records"]
    }


def assert_complete(reads: list[FinalRead]) -> None:
    assert reads
    assert [r for r in reads if not r.complete] == []
