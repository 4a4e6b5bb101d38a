"""Snapshots of what clusters and mirrors report, stored as rows: log ends, group offsets, configs, states.

Every snapshot is bounded and raises nothing: failures are notes. It cannot see: what happened between two
snapshots, and replicas whose broker does not answer (they have no row then).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from harness.core.errors import ShatterError, StorageError
from harness.evidence.admin_snapshots import Notes, snapshot_acls, snapshot_configs
from harness.evidence.group_snapshots import snapshot_groups
from harness.history.recording import Recorder
from harness.topology.clusters import Cluster
from harness.topology.mirror import KeepsTopics, Mirror, topic_on
from harness.topology.topology import Topology
from harness.wire.administration import Administrator
from harness.wire.client import WireError
from harness.wire.metadata import Metadata, PartitionMeta, TopicPartition, by_leader
from harness.wire.view import DEBUGGING_REPLICA, EARLIEST, LATEST, ClusterView

LOAD_SNAPSHOT: Final = 0  # number of all the sampler's snapshots
FINAL_SNAPSHOT: Final = 1  # number of the snapshot that goes with the captured logs


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


def snapshot_log_ends(
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
        for p in seen.partitions():
            _log_end_rows(
                cluster.name, p, leaders.get((p.topic, p.partition)), ends, recorder, look=look, time_ns=began
            )
        return [f"log ends of cluster {cluster.name}: {note}" for note in dict.fromkeys(notes)]
    finally:
        if own:
            view.close()


# The last stable offset is asked before the high watermark: a marker at or above the latter came later than both.
_ASKED: Final[Mapping[str, dict[str, Any]]] = {
    "log_start": {"timestamp": EARLIEST, "replica_id": DEBUGGING_REPLICA},
    "last_stable": {"timestamp": LATEST, "read_committed": True},
    "high_watermark": {"timestamp": LATEST},
    "log_end": {"timestamp": LATEST, "replica_id": DEBUGGING_REPLICA},
}


def _leaders(view: ClusterView, seen: Metadata, notes: Notes) -> dict[TopicPartition, dict[str, int]]:
    """Partition → its leader's offsets under the leader epoch of the metadata; absent when it does not answer.

    Where the high watermark is below the last stable offset, the log may have been truncated between the two answers:
    the leader is asked once more, and its second answer counts.
    """
    found: dict[TopicPartition, dict[str, int]] = {}
    for leader, epochs in by_leader(seen.partitions()).items():
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
    """Partition → column → offset, for partitions for which the leader gave all of them."""
    found: dict[TopicPartition, dict[str, int]] = {}
    for column, how in _ASKED.items():
        for partition, offset in view.offsets(leader, epochs, **how).items():
            found.setdefault(partition, {})[column] = offset
    return {partition: columns for partition, columns in found.items() if len(columns) == len(_ASKED)}


def _replica_ends(view: ClusterView, seen: Metadata, notes: Notes) -> dict[tuple[str, int, int], tuple[int, int]]:
    """(topic, partition, follower) → its own (log start, log end)."""
    followers: dict[int, dict[TopicPartition, int]] = {}
    for p in seen.partitions():
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
    p: PartitionMeta,
    leader: Mapping[str, int] | None,
    ends: Mapping[tuple[str, int, int], tuple[int, int]],
    recorder: Recorder,
    *,
    look: int,
    time_ns: int,
) -> None:
    common = {"cluster": cluster, "look": look, "time_ns": time_ns, "topic": p.topic, "partition": p.partition}
    leading = -1 if p.leader is None else p.leader
    whole = {"leader": leading, "isr": list(p.isr), "replicas": list(p.replicas)}
    if leader is not None:
        recorder.row("log_ends", **common, **whole, broker=leading, leader_epoch=p.leader_epoch, **leader)
    else:
        recorder.row("log_ends", **common, **whole, broker=-1)
    for broker in p.replicas:
        if (p.topic, p.partition, broker) in ends:
            start, end = ends[p.topic, p.partition, broker]
            recorder.row("log_ends", **common, **whole, broker=broker, log_start=start, log_end=end)


def snapshot_mirror(mirror: Mirror, recorder: Recorder) -> Notes:
    """One row of `mirror_states` per partition. The time is taken before the mirror is asked: a lag of 0 then means
    that everything acknowledged before that time had been mirrored."""
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


def snapshot_all(topology: Topology, recorder: Recorder, *, look: int = FINAL_SNAPSHOT) -> Notes:
    """Snapshot everything: log ends, group offsets, topic configurations and ACLs of every cluster, the mirrors."""
    topics = topics_of_interest(topology)
    notes: Notes = []
    for cluster in topology.clusters.values():
        notes += snapshot_log_ends(cluster, topics_to_keep(topology), recorder, look=look)
        notes += snapshot_groups(cluster, recorder)
        with closing(Administrator(cluster.bootstrap)) as admin:
            notes += snapshot_configs(cluster.name, admin, topics, recorder, look=look)
            notes += snapshot_acls(cluster.name, admin, recorder, look=look)
    for mirror in topology.mirrors:
        notes += snapshot_mirror(mirror, recorder)
    return notes
