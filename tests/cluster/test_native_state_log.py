"""The states that a build of Cluster Mirroring stores, read from a real topic with records of its schema."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from harness.clusters.pair import RunningTopology
from harness.history.recorder import RunRecorder
from harness.wire import cluster_mirror_api as api
from harness.wire.cluster_mirror_api import State
from mirrors.native import state_log

OURS, OTHERS = uuid.uuid4(), uuid.uuid4()


def store(bootstrap: str, topic: str, partition: int, *states: State, mirror: str = "A-B") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for state in states:
        key = api.StateKey(mirror_name=mirror, topic_id=OURS, partition=partition)
        encoded = api.encode_state(key, api.MirrorPartitionStateValue(state=int(state)))
        producer.produce(topic, key=encoded[0], value=encoded[1], partition=partition)
    assert producer.flush(30) == 0


def test_every_state_is_a_row_in_the_order_of_the_log(
    pair: RunningTopology, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = pair.clusters["B"]
    b.create_topic(topic, partitions=2, replication=3)
    monkeypatch.setattr(state_log, "STATE_TOPIC", topic)
    reader = state_log.StateLog(b.bootstrap, mirror="A-B", destination="B")
    names = {OURS: "orders", OTHERS: "others"}
    try:
        with RunRecorder(tmp_path) as recorder:
            store(b.bootstrap, topic, 0, State.LOG_TRUNCATION, State.EPOCH_FENCING, State.MIRRORING)
            store(b.bootstrap, topic, 1, State.FAILED)
            store(b.bootstrap, topic, 1, State.STOPPED, mirror="C-D")
            reader.record(recorder, names)
            store(b.bootstrap, topic, 0, State.STOPPING, State.STOPPED)
            for _ in range(20):
                reader.record(recorder, names)
    finally:
        reader.close()
    found = pq.read_table(tmp_path / "mirror_states").sort_by("time_ns").to_pylist()
    assert {(row["mirror"], row["cluster"], row["topic"], row["event"]) for row in found} == {
        ("A-B", "B", "orders", "log")
    }
    first = ["LOG_TRUNCATION", "EPOCH_FENCING", "MIRRORING", "STOPPING", "STOPPED"]
    assert [row["state"] for row in found if row["partition"] == 0] == first
    assert [row["state"] for row in found if row["partition"] == 1] == ["FAILED"]
