"""Real clients against an address where nothing listens: everything ends in time, with an error."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.core.errors import StorageError
from harness.history.ops import Phase
from harness.history.recorder import RunRecorder
from workloads import REGISTRY
from workloads.base import Endpoint, WorkloadContext, WorkloadOptions

pytestmark = pytest.mark.unit

NOBODY = "127.0.0.1:1"


def context(recorder: Any, **options: Any) -> WorkloadContext:
    return WorkloadContext(
        run_id="unit",
        seed=1,
        options=WorkloadOptions(topics=1, partitions=2, producers=1, consumers=1, processes=3, rate=0, **options),
        endpoints={name: Endpoint(cluster=name, bootstrap=NOBODY, topic_names={}) for name in ("A", "B")},
        recorder=recorder,
        clock=recorder.clock,
    )


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / table).to_pylist() if (folder / table).exists() else []


@pytest.mark.parametrize("producer", ["plain", "idempotent", "transactional"])
def test_stopping_is_bounded_and_sends_under_way_end_as_info_stopped(tmp_path: Path, producer: str) -> None:
    before = set(threading.enumerate())
    with RunRecorder(tmp_path / "run", phase=Phase.LOAD) as recorder:
        load = REGISTRY["append"].start(context(recorder, producer=producer))
        time.sleep(0.7)
        began = time.monotonic()
        load.stop(timeout_s=4)
        assert time.monotonic() - began < 4
        assert load.error() is None
    assert set(threading.enumerate()) == before
    ops = rows(tmp_path / "run", "ops")
    sends = [op for op in ops if op["f"] in ("send", "txn")]
    if producer == "transactional":  # no transaction was ever begun
        assert sends == []
        return
    assert {(op["type"], op["error"]) for op in sends} == {("invoke", None), ("info", "stopped")}
    assert len(sends) == 2 * 2 * 3
    assert load.counts().info_sends == 6


def test_final_reads_of_clusters_that_do_not_answer_give_a_row_per_partition_and_level(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", phase=Phase.LOAD) as recorder:
        began = time.monotonic()
        found = REGISTRY["append"].final_reads(context(recorder), timeout_s=1.5)
        assert time.monotonic() - began < 8
        assert recorder.phase is Phase.FINAL
    assert len(found) == 2 * 2 * 2
    assert not any(read.complete for read in found)
    assert all("append-0 was not found" in (read.error or "") for read in found)
    stored = rows(tmp_path / "run", "final_reads")
    assert {(r["cluster"], r["partition"], r["isolation"], r["complete"]) for r in stored} == {
        (cluster, partition, isolation, False)
        for cluster in "AB"
        for partition in range(2)
        for isolation in ("read_committed", "read_uncommitted")
    }


def test_a_recorder_that_fails_ends_the_client_and_the_load_says_so(tmp_path: Path) -> None:
    class FullDisk:
        """A recorder whose `invoke` fails from the third call on."""

        def __init__(self, real: RunRecorder) -> None:
            self._real = real
            self._left = 2

        def invoke(self, *args: Any, **kwargs: Any) -> int:
            self._left -= 1
            if self._left < 0:
                raise StorageError("cannot write: the disk is full")
            return self._real.invoke(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    with RunRecorder(tmp_path / "run", phase=Phase.LOAD) as recorder:
        load = REGISTRY["append"].start(context(FullDisk(recorder)))
        time.sleep(0.5)
        load.stop(timeout_s=5)
        assert isinstance(load.error(), StorageError)
