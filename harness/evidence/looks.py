"""Looks at what clusters and the mirror say of themselves, stored as rows: log ends, group offsets, configs, states.

Every look is bounded and raises nothing: what could not be seen is a note. The sampler repeats looks in threads of
its own while the load runs, so that nothing it waits for holds anything else up.

It cannot see: what happened between two looks, and replicas whose broker does not answer (they have no row then).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Protocol

from harness.clusters.base import Cluster, Topology
from harness.errors import ShatterError, StorageError
from harness.evidence.admin_looks import Notes, look_acls, look_configs
from harness.evidence.group_looks import look_groups
from harness.history.recording import Recorder
from harness.mirrors.base import KeepsTopics, Mirror, topic_on
from harness.wire.administration import Administrator
from harness.wire.client import WireError
from harness.wire.view import (
    DEBUGGING_REPLICA,
    EARLIEST,
    LATEST,
    ClusterView,
    MetadataView,
    PartitionView,
    TopicPartition,
    by_leader,
)

LOAD_LOOK: Final = 0  # number of every look that the sampler takes
FINAL_LOOK: Final = 1  # number of the look that goes with the captured logs

__all__ = ["FINAL_LOOK", "LOAD_LOOK", "Sampler", "look_all", "look_groups", "look_log_ends"]


def topics_of_interest(topology: Topology) -> list[str]:
    """The test's topics under all their names: on the source, and mirrored."""
    names = list(topology.test_topics)
    for cluster in topology.clusters:
        names += [topic_on(topology.mirrors, cluster, topic) for topic in topology.test_topics]
    return sorted(set(names))


def topics_to_keep(topology: Topology) -> list[str]:
    """The topics of interest, and those in which mirrors keep state of their own."""
    own = (topic for mirror in topology.mirrors if isinstance(mirror, KeepsTopics) for topic in mirror.own_topics())
    return sorted({*topics_of_interest(topology), *own})


def look_log_ends(
    cluster: Cluster, topics: Sequence[str], recorder: Recorder, *, look: int, view: ClusterView | None = None
) -> Notes:
    """One row of `log_ends` per replica that answers, and one without broker per partition whose leader does not.

    The leader's row has everything (log start, log end, high watermark, last stable offset, leader epoch, ISR); the
    followers' have their own log start and log end. The time is taken before the brokers are asked.
    """
    own = view is None
    view = view or ClusterView(cluster.bootstrap)
    try:
        began = recorder.clock.now_ns()
        try:
            seen = view.metadata(topics)
        except WireError as error:
            return [f"log ends of cluster {cluster.name}: {error}"]
        notes: Notes = []
        leaders = _leaders(view, seen, notes)
        ends = _replica_ends(view, seen, notes)
        for p in seen.partitions:
            _log_end_rows(
                cluster.name, p, leaders.get((p.topic, p.partition)), ends, recorder, look=look, time_ns=began
            )
        return [f"log ends of cluster {cluster.name}: {note}" for note in dict.fromkeys(notes)]
    finally:
        if own:
            view.close()


# The last stable offset before the high watermark: a marker at or above the latter came later than both.
_ASKED: Final[Mapping[str, dict[str, Any]]] = {
    "log_start": {"timestamp": EARLIEST, "replica_id": DEBUGGING_REPLICA},
    "last_stable": {"timestamp": LATEST, "read_committed": True},
    "high_watermark": {"timestamp": LATEST},
    "log_end": {"timestamp": LATEST, "replica_id": DEBUGGING_REPLICA},
}


def _leaders(view: ClusterView, seen: MetadataView, notes: Notes) -> dict[TopicPartition, dict[str, int]]:
    """Partition → what its leader says under the leader epoch of the metadata; absent when it does not answer.

    Where the high watermark lies below the last stable offset, the log may have been cut between the two answers: the
    leader is asked once more, and what it says then stands.
    """
    found: dict[TopicPartition, dict[str, int]] = {}
    for leader, epochs in by_leader(seen.partitions).items():
        try:
            said = _ask(view, leader, epochs)
            torn = {p: epochs[p] for p, columns in said.items() if columns["last_stable"] > columns["high_watermark"]}
            found |= {p: columns for p, columns in said.items() if p not in torn}
            if torn:
                found |= _ask(view, leader, torn)
        except WireError as error:
            notes.append(str(error))
    return found


def _ask(view: ClusterView, leader: int, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, dict[str, int]]:
    """Partition → column → offset, of the partitions of which the leader says everything."""
    found: dict[TopicPartition, dict[str, int]] = {}
    for column, how in _ASKED.items():
        for partition, offset in view.offsets(leader, epochs, **how).items():
            found.setdefault(partition, {})[column] = offset
    return {partition: columns for partition, columns in found.items() if len(columns) == len(_ASKED)}


def _replica_ends(view: ClusterView, seen: MetadataView, notes: Notes) -> dict[tuple[str, int, int], tuple[int, int]]:
    """(topic, partition, follower) → its own (log start, log end)."""
    followers: dict[int, dict[TopicPartition, int]] = {}
    for p in seen.partitions:
        for broker in p.replicas:
            if broker != p.leader and broker in seen.brokers:
                followers.setdefault(broker, {})[(p.topic, p.partition)] = -1
    found = {}
    for broker, epochs in followers.items():
        try:
            starts = view.offsets(broker, epochs, timestamp=EARLIEST, replica_id=DEBUGGING_REPLICA)
            ends = view.offsets(broker, epochs, timestamp=LATEST, replica_id=DEBUGGING_REPLICA)
        except WireError as error:
            notes.append(str(error))
            continue
        for topic, partition in starts.keys() & ends.keys():
            found[(topic, partition, broker)] = (starts[topic, partition], ends[topic, partition])
    return found


def _log_end_rows(
    cluster: str,
    p: PartitionView,
    leader: Mapping[str, int] | None,
    ends: Mapping[tuple[str, int, int], tuple[int, int]],
    recorder: Recorder,
    *,
    look: int,
    time_ns: int,
) -> None:
    common = {"cluster": cluster, "look": look, "time_ns": time_ns, "topic": p.topic, "partition": p.partition}
    whole = {"leader": p.leader, "isr": list(p.isr), "replicas": list(p.replicas)}
    if leader is not None:
        recorder.row("log_ends", **common, **whole, broker=p.leader, leader_epoch=p.leader_epoch, **leader)
    else:
        recorder.row("log_ends", **common, **whole, broker=-1)
    for broker in p.replicas:
        if (p.topic, p.partition, broker) in ends:
            start, end = ends[p.topic, p.partition, broker]
            recorder.row("log_ends", **common, **whole, broker=broker, log_start=start, log_end=end)


def look_mirror(mirror: Mirror, recorder: Recorder) -> Notes:
    """One row of `mirror_states` per partition. The time is taken before the mirror is asked: a lag of 0 then says
    that everything acknowledged before that time had been carried."""
    began = recorder.clock.now_ns()
    try:
        statuses = mirror.describe()
        mirror.record_changes(recorder)
    except StorageError:
        raise
    except ShatterError as error:
        return [f"states of mirror {mirror.name}: {error}"]
    for status in statuses:
        recorder.row(
            "mirror_states",
            mirror=mirror.name,
            cluster=mirror.destination,
            topic=mirror.topic_on_destination(status.topic),
            partition=status.partition,
            state=str(status.state),
            source_offset=status.source_offset,
            destination_offset=status.destination_offset,
            lag=status.lag,
            error=status.error,
            time_ns=began,
        )
    return []


def look_all(topology: Topology, recorder: Recorder, *, look: int = FINAL_LOOK) -> Notes:
    """One look at everything: log ends, group offsets, topic configurations and ACLs of every cluster, the mirrors."""
    topics = topics_of_interest(topology)
    notes: Notes = []
    for cluster in topology.clusters.values():
        notes += look_log_ends(cluster, topics_to_keep(topology), recorder, look=look)
        notes += look_groups(cluster, recorder)
        with closing(Administrator(cluster.bootstrap)) as admin:
            notes += look_configs(cluster.name, admin, topics, recorder, look=look)
            notes += look_acls(cluster.name, admin, recorder, look=look)
    for mirror in topology.mirrors:
        notes += look_mirror(mirror, recorder)
    return notes


class Sampler:
    """Looks at log ends, groups and mirror states every `interval_s` seconds: two threads per cluster, one per mirror.

    A look that takes longer than the interval delays the next one of its own thread only. Use it as a context
    manager, or `start` and `stop` it. `notes` says what could not be seen, each thing once with how often.
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
        """Begin. Topics and mirrors are those of the topology at this moment; `add` brings later mirrors in."""
        topics = topics_of_interest(self._topology)
        for cluster in self._topology.clusters.values():
            self._spawn(f"look-{cluster.name}", _LogEndSampler(cluster, topics, self._recorder))
            self._spawn(f"look-groups-{cluster.name}", _GroupSampler(cluster, self._recorder))
        for mirror in self._topology.mirrors:
            self.add(mirror)

    def add(self, mirror: Mirror) -> None:
        """Look at this mirror, too."""
        name = f"look-mirror-{mirror.source}-{mirror.destination}"
        self._spawn(name, _MirrorSampler(mirror, self._recorder))

    def stop(self, *, timeout_s: float = 15.0) -> None:
        """End every thread, waiting at most this long for looks under way."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._note(f"{thread.name} did not end within {timeout_s:g} s")
        self._threads.clear()

    def notes(self) -> Notes:
        """What could not be seen, e.g. `log ends of cluster A: … (3 times)`."""
        with self._lock:
            return [note if times == 1 else f"{note} ({times} times)" for note, times in self._notes.items()]

    def _spawn(self, name: str, looker: _Looker) -> None:
        thread = threading.Thread(target=self._run, args=(looker,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, looker: _Looker) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    for note in looker.look():
                        self._note(note)
                except Exception as error:  # a sampler that dies would hide everything after it
                    self._note(f"{threading.current_thread().name}: {type(error).__name__}: {error}")
                self._stop.wait(max(0.1, self._interval_s - (time.monotonic() - began)))
        finally:
            looker.close()

    def _note(self, note: str) -> None:
        with self._lock:
            self._notes[note] = self._notes.get(note, 0) + 1


class _Looker(Protocol):
    def look(self) -> Notes: ...

    def close(self) -> None: ...


class _LogEndSampler:
    def __init__(self, cluster: Cluster, topics: Sequence[str], recorder: Recorder) -> None:
        self._cluster, self._topics, self._recorder = cluster, topics, recorder
        self._view = ClusterView(cluster.bootstrap)

    def look(self) -> Notes:
        return look_log_ends(self._cluster, self._topics, self._recorder, look=LOAD_LOOK, view=self._view)

    def close(self) -> None:
        self._view.close()


class _GroupSampler:
    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self._cluster, self._recorder = cluster, recorder
        self._view = ClusterView(cluster.bootstrap)

    def look(self) -> Notes:
        return look_groups(self._cluster, self._recorder, view=self._view)

    def close(self) -> None:
        self._view.close()


class _MirrorSampler:
    def __init__(self, mirror: Mirror, recorder: Recorder) -> None:
        self._mirror, self._recorder = mirror, recorder

    def look(self) -> Notes:
        return look_mirror(self._mirror, self._recorder)

    def close(self) -> None:
        """The mirror is the runner's."""
