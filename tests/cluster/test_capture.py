"""Evidence from real brokers: every replica's log, also of frozen and dead brokers, and snapshots that never wait
long."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer

from harness.clusters.pair import RunningTopology
from harness.core.errors import ClusterError
from harness.evidence.capture import capture
from harness.evidence.sampler import Sampler
from harness.evidence.snapshots import FINAL_SNAPSHOT, LOAD_SNAPSHOT, snapshot_all, snapshot_log_ends
from harness.history.recorder import RunRecorder
from harness.wire.view import ClusterView

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves a test's neighbours out of sight
from mirroring import transaction, write


@pytest.fixture
def recorder(run_dir: Path) -> Iterator[RunRecorder]:
    with RunRecorder(run_dir / "recorded") as made:
        yield made


@pytest.fixture
def written(pair: RunningTopology, topic: str) -> Iterator[str]:
    """A topic of two partitions on both clusters, with plain, committed and aborted records."""
    for cluster in pair.clusters.values():
        cluster.create_topic(topic, partitions=2, replication=3, config={"segment.bytes": "1048576"})
        cluster.create_topic(f"{topic}-other", partitions=1, replication=1)
        write(cluster.bootstrap, topic, [f"{i}-{'x' * 1000}" for i in range(2500)])
        write(cluster.bootstrap, f"{topic}-other", ["not wanted"])
        transaction(cluster.bootstrap, topic, ["c1", "c2"], commit=True, partition=1)
        transaction(cluster.bootstrap, topic, ["a1"], commit=False, partition=1)
    pair.test_topics = [topic]
    yield topic
    pair.test_topics = ()


def rows(recorder: RunRecorder, table: str) -> list[dict[str, object]]:
    recorder.flush()
    folder = recorder.run_dir / table
    return list(ds.dataset(folder).to_table().to_pylist()) if folder.exists() else []


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def test_all_replicas_are_captured_byte_for_byte_also_from_frozen_and_dead_brokers(
    pair: RunningTopology, written: str, run_dir: Path
) -> None:
    b = pair.clusters["B"]
    b.await_full_isr(timeout_s=30)
    b.brokers[1].kill()
    b.brokers[2].pause()
    try:
        began = time.monotonic()
        report = capture(pair, run_dir)
        print(f"\ncaptured in {time.monotonic() - began:.1f} s")
    finally:
        b.brokers[2].unpause()
        b.brokers[1].start()
    assert report.notes == ()
    assert report.complete
    folders = (f"{written}-0", f"{written}-1")
    assert report.replicas == {"A": dict.fromkeys((1, 2, 3), folders), "B": dict.fromkeys((1, 2, 3), folders)}
    for letter in ("A", "B"):
        for name in folders:
            copies = [segments(run_dir / "evidence" / letter / str(broker) / name) for broker in (1, 2, 3)]
            assert copies[0] == copies[1] == copies[2]
            assert (run_dir / "evidence" / letter / "1" / name / "leader-epoch-checkpoint").exists()
            assert (run_dir / "evidence" / letter / "1" / name / "partition.metadata").exists()
        assert (
            len(segments(run_dir / "evidence" / letter / "1" / folders[0])) == 3
        )  # it rolled: 2.5 MB in segments of 1 MB
        assert b"c1" in segments(run_dir / "evidence" / letter / "2" / folders[1])[f"{0:020d}.log"]
        assert (run_dir / "evidence" / letter / "1" / "log-start-offset-checkpoint").exists()
    assert not list((run_dir / "evidence").rglob("*other*"))
    assert not list((run_dir / "evidence").rglob("*.partial"))
    manifest = json.loads((run_dir / "evidence" / "capture.json").read_text())
    assert (manifest["complete"], manifest["look"]) == (True, FINAL_SNAPSHOT)


def test_a_broker_that_cannot_be_read_does_not_keep_the_others_from_being_captured(
    pair: RunningTopology, written: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Path:
        raise ClusterError("its disk is gone")

    monkeypatch.setattr(pair.clusters["A"].brokers[2], "fetch", fails)
    report = capture(pair, run_dir)
    assert report.notes == ("A-broker-2: its logs could not be copied: its disk is gone",)
    assert sorted(report.replicas["A"]) == [1, 3]
    assert sorted(report.replicas["B"]) == [1, 2, 3]


def test_snapshots_have_every_replicas_log_ends_and_the_topics_configs(
    pair: RunningTopology, written: str, recorder: RunRecorder
) -> None:
    assert snapshot_all(pair, recorder, look=FINAL_SNAPSHOT) == []
    ends = rows(recorder, "log_ends")
    assert {(r["cluster"], r["partition"], r["broker"]) for r in ends} == {
        (c, p, n) for c in "AB" for p in (0, 1) for n in (1, 2, 3)
    }
    assert {r["topic"] for r in ends} == {written}
    assert {(r["partition"], r["log_start"], r["log_end"]) for r in ends} == {(0, 0, 2500), (1, 0, 5)}
    leaders = [r for r in ends if r["broker"] == r["leader"]]
    assert len(leaders) == 4
    for row in leaders:
        assert row["high_watermark"] == row["last_stable"] == row["log_end"]
        assert row["leader_epoch"] == 0
        assert sorted(row["isr"]) == sorted(row["replicas"]) == [1, 2, 3]  # type: ignore[call-overload]
    assert all(r["high_watermark"] is None for r in ends if r["broker"] != r["leader"])
    configs = {(r["cluster"], r["topic"], r["name"], r["value"]) for r in rows(recorder, "configs")}
    assert configs == {(c, written, "segment.bytes", "1048576") for c in "AB"}


def test_an_open_transaction_holds_the_last_stable_offset_back(
    pair: RunningTopology, written: str, recorder: RunRecorder
) -> None:
    a = pair.clusters["A"]
    producer = Producer({"bootstrap.servers": a.bootstrap, "transactional.id": f"open-{written}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(written, "open", partition=1)
    assert producer.flush(30) == 0
    assert snapshot_log_ends(a, [written], recorder, look=LOAD_SNAPSHOT) == []
    producer.abort_transaction(30)
    (row,) = [r for r in rows(recorder, "log_ends") if r["partition"] == 1 and r["broker"] == r["leader"]]
    assert (row["last_stable"], row["high_watermark"], row["log_end"]) == (5, 6, 6)


def test_a_new_leaders_epoch_is_seen(pair: RunningTopology, written: str, recorder: RunRecorder) -> None:
    a = pair.clusters["A"]
    leader = next(p.leader for p in a.partitions(written) if p.partition == 0)
    assert leader is not None
    a.brokers[leader].kill()
    try:
        view = ClusterView(a.bootstrap)
        deadline = time.monotonic() + 30
        while view.leader_ends([written]).get((written, 0)) is None:
            assert time.monotonic() < deadline, "no new leader within 30 s"
            time.sleep(0.2)
        view.close()
        notes = snapshot_log_ends(a, [written], recorder, look=LOAD_SNAPSHOT)
        assert notes == []  # no requests to a broker that the controller has fenced
        ends = [r for r in rows(recorder, "log_ends") if r["partition"] == 0]
        assert sorted(str(r["broker"]) for r in ends) == sorted(str(n) for n in {1, 2, 3} - {leader})
        (row,) = [r for r in ends if r["broker"] == r["leader"]]
        assert (row["leader_epoch"], row["log_end"]) == (1, 2500)
    finally:
        a.brokers[leader].start()


def test_the_sampler_continues_with_a_frozen_broker_and_reports_what_it_missed(
    pair: RunningTopology, written: str, recorder: RunRecorder
) -> None:
    a = pair.clusters["A"]
    with Sampler(pair, recorder, interval_s=0.5) as sampler:
        time.sleep(1.5)
        a.brokers[1].pause()
        try:
            time.sleep(8)
        finally:
            a.brokers[1].unpause()
        a.await_full_isr(timeout_s=30)
        time.sleep(1.5)
        began = time.monotonic()
        sampler.stop()
        assert time.monotonic() - began < 5
    looks: dict[str, list[int]] = {}
    for row in rows(recorder, "log_ends"):
        looks.setdefault(str(row["cluster"]), []).append(int(str(row["time_ns"])))
    for letter, longest_s in (("A", 6.5), ("B", 2.0)):  # A: a timeout for metadata, and one for each kind of request
        times = sorted(set(looks[letter]))
        gaps = [(later - earlier) / 1e9 for earlier, later in itertools.pairwise(times)]
        print(f"\n{letter}: {len(times)} looks, longest gap {max(gaps):.1f} s")
        assert max(gaps) < longest_s
    assert {row["look"] for row in rows(recorder, "log_ends")} == {LOAD_SNAPSHOT}
    assert any("did not answer" in note and "cluster A" in note for note in sampler.notes()), sampler.notes()
    assert not any("cluster B" in note for note in sampler.notes())
