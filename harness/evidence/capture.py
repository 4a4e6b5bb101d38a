"""Copies the logs of the test's topics, and of mirrors' own, from every replica of every cluster into the run's folder.

`RUN/evidence/CLUSTER/BROKER/TOPIC-PARTITION/` holds the segments and the partition's leader-epoch-checkpoint and
partition.metadata; `RUN/evidence/CLUSTER/BROKER/` the broker's own offset checkpoints. Brokers may run, be frozen or
be dead: the files are read from their volumes. `capture.json` next to them lists what was copied and what was not.

A running broker's log is read through the page cache of the same kernel, so nothing need be flushed. Batches
appended during the copy may or may not be in it: capture when the clients and the mirror are quiet.
It cannot see: a replica on a broker whose container is gone, and segments that retention has deleted.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from harness.core.errors import ShatterError
from harness.evidence.log_dirs import EVIDENCE, MANIFEST
from harness.evidence.snapshots import FINAL_SNAPSHOT, topics_to_keep
from harness.history.writer import storage_error
from harness.topology.clusters import Cluster, Node
from harness.topology.topology import Topology
from harness.wire.client import WireError
from harness.wire.view import ClusterView

_FILES: Final = ("*.log", "*-checkpoint", "partition.metadata", "meta.properties")
_AT_ONCE: Final = 3  # brokers copied at the same time
_PARTIAL: Final = ".partial"


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """The result of a capture.

    look: its number in the decoded tables. replicas: cluster → broker → names of the copied partition
    folders. failures: cluster → broker → why nothing of it was copied. notes: what was not copied and why, one
    sentence each; empty when complete.
    """

    look: int
    replicas: Mapping[str, Mapping[int, tuple[str, ...]]]
    failures: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether every replica of every partition was copied."""
        return not self.notes


def capture(
    topology: Topology, run_dir: Path, *, look: int = FINAL_SNAPSHOT, timeout_s: float = 120.0
) -> CaptureReport:
    """Copy the test's logs from every broker of every cluster; an earlier capture of a broker is replaced.

    A broker that fails, or is not done in time, does not keep the others from being captured: it is a note.
    """
    topics = topics_to_keep(topology)
    folder = run_dir / EVIDENCE
    deadline = time.monotonic() + timeout_s
    replicas: dict[str, dict[int, tuple[str, ...]]] = {}
    failures: dict[str, dict[int, str]] = {}
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="capture")
    try:
        waiting: list[tuple[Cluster, int, Future[tuple[str, ...]]]] = [
            (
                cluster,
                broker,
                pool.submit(_capture_broker, node, cluster.data_dir, topics, folder, cluster.name, broker),
            )
            for cluster in topology.clusters.values()
            for broker, node in cluster.brokers.items()
        ]
        for cluster, broker, future in waiting:
            name = cluster.brokers[broker].name
            try:
                came = future.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeoutError:
                why = f"{name}: its logs were not copied within {timeout_s:g} s"
                failures.setdefault(cluster.name, {})[broker] = why
            except (ShatterError, OSError) as error:
                failures.setdefault(cluster.name, {})[broker] = f"{name}: its logs could not be copied: {error}"
            else:
                replicas.setdefault(cluster.name, {})[broker] = came
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    notes = [why for brokers in failures.values() for why in brokers.values()]
    for cluster in topology.clusters.values():
        notes += _missing(cluster, topics, replicas.get(cluster.name, {}))
    report = CaptureReport(look=look, replicas=replicas, failures=failures, notes=tuple(notes))
    _store(folder, report)
    return report


def _store(folder: Path, report: CaptureReport) -> None:
    """Write the manifest. Raises StorageError when the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_text(json.dumps({**asdict(report), "complete": report.complete}, indent=1) + "\n")
    except OSError as error:
        raise storage_error(folder, error) from error


def _capture_broker(
    node: Node, data_dir: str, topics: Sequence[str], folder: Path, cluster: str, broker: int
) -> tuple[str, ...]:
    """Copy one broker's folders; they appear under their final name only when they are whole."""
    final = folder / cluster / str(broker)
    partial = final.with_name(f"{broker}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        fetched = node.fetch(data_dir, partial, only=_FILES)
        came = []
        for entry in sorted(fetched.iterdir()):
            if entry.is_dir() and not wanted(entry.name, topics):
                shutil.rmtree(entry)
            elif entry.is_dir():
                came.append(entry.name)
        shutil.rmtree(final, ignore_errors=True)
        fetched.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return tuple(came)


def wanted(name: str, topics: Sequence[str]) -> bool:
    """Whether a folder of a log directory is a partition of one of these topics (`TOPIC-PARTITION`)."""
    topic, dash, partition = name.rpartition("-")
    return bool(dash) and partition.isdigit() and topic in topics


def _missing(cluster: Cluster, topics: Sequence[str], came: Mapping[int, tuple[str, ...]]) -> list[str]:
    """Assigned replicas that were not captured, on brokers that were."""
    view = ClusterView(cluster.bootstrap)
    try:
        partitions = list(view.metadata(topics).partitions())
    except WireError as error:
        return [f"cluster {cluster.name}: whether every replica was copied is unknown: {error}"]
    finally:
        view.close()
    return [
        f"{cluster.brokers[broker].name}: it has no log of {p.topic}-{p.partition}, whose replica it is"
        for p in partitions
        for broker in p.replicas
        if broker in came and f"{p.topic}-{p.partition}" not in came[broker]
    ]
