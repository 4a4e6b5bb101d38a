"""The sampler: snapshots repeated during the load, in threads of their own.

A snapshot that has to wait delays nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from harness.evidence.admin_snapshots import Notes
from harness.evidence.group_snapshots import snapshot_groups
from harness.evidence.snapshots import LOAD_SNAPSHOT, snapshot_log_ends, snapshot_mirror, topics_of_interest
from harness.history.recording import Recorder
from harness.topology.clusters import Cluster
from harness.topology.mirror import Mirror
from harness.topology.topology import Topology
from harness.wire.view import ClusterView


class Sampler:
    """Snapshots log ends, groups and mirror states every `interval_s` seconds: two threads per cluster, one per mirror.

    A snapshot that takes longer than the interval delays only the next one of its own thread. Use it as a context
    manager, or `start` and `stop` it. `notes` lists what could not be seen, each failure once with its count.
    """

    def __init__(self, topology: Topology, recorder: Recorder, *, interval_s: float = 2.0) -> None:
        self._topology = topology
        self._recorder = recorder
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._notes: dict[str, int] = {}

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin. Topics and mirrors are those of the topology at this moment; `add` adds later mirrors."""
        topics = topics_of_interest(self._topology)
        for cluster in self._topology.clusters.values():
            self._spawn(f"sample-{cluster.name}", _LogEndSampler(cluster, topics, self._recorder))
            self._spawn(f"sample-groups-{cluster.name}", _GroupSampler(cluster, self._recorder))
        for mirror in self._topology.mirrors:
            self.add(mirror)

    def add(self, mirror: Mirror) -> None:
        """Sample this mirror, too."""
        name = f"sample-mirror-{mirror.source}-{mirror.destination}"
        self._spawn(name, _MirrorSampler(mirror, self._recorder))

    def stop(self, *, timeout_s: float = 15.0) -> None:
        """End every thread, waiting at most this long for snapshots under way."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._note(f"{thread.name} did not end within {timeout_s:g} s")
        self._threads.clear()

    def notes(self) -> Notes:
        """The failures, e.g. `log ends of cluster A: … (3 times)`."""
        with self._lock:
            return [note if times == 1 else f"{note} ({times} times)" for note, times in self._notes.items()]

    def _spawn(self, name: str, sampler: _Sampler) -> None:
        thread = threading.Thread(target=self._run, args=(sampler,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, sampler: _Sampler) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    for note in sampler.snapshot():
                        self._note(note)
                except Exception as error:  # a dead sampler would miss everything after it
                    self._note(f"{threading.current_thread().name}: {type(error).__name__}: {error}")
                self._stop.wait(max(0.1, self._interval_s - (time.monotonic() - began)))
        finally:
            sampler.close()

    def _note(self, note: str) -> None:
        with self._lock:
            self._notes[note] = self._notes.get(note, 0) + 1


class _Sampler(Protocol):
    def snapshot(self) -> Notes: ...

    def close(self) -> None: ...


class _LogEndSampler:
    def __init__(self, cluster: Cluster, topics: Sequence[str], recorder: Recorder) -> None:
        self._cluster, self._topics, self._recorder = cluster, topics, recorder
        self._view = ClusterView(cluster.bootstrap)

    def snapshot(self) -> Notes:
        return snapshot_log_ends(self._cluster, self._topics, self._recorder, look=LOAD_SNAPSHOT, view=self._view)

    def close(self) -> None:
        self._view.close()


class _GroupSampler:
    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self._cluster, self._recorder = cluster, recorder
        self._view = ClusterView(cluster.bootstrap)

    def snapshot(self) -> Notes:
        return snapshot_groups(self._cluster, self._recorder, view=self._view)

    def close(self) -> None:
        self._view.close()


class _MirrorSampler:
    def __init__(self, mirror: Mirror, recorder: Recorder) -> None:
        self._mirror, self._recorder = mirror, recorder

    def snapshot(self) -> Notes:
        return snapshot_mirror(self._mirror, self._recorder)

    def close(self) -> None:
        """Nothing to close: the mirror belongs to the runner."""
