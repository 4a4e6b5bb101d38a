"""The protocol of a mirroring implementation under test, and its types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from harness.history.recording import Recorder
    from harness.topology.clusters import Node


class Capability(StrEnum):
    """What a mirror can do."""

    OFFSET_IDENTITY = "offset_identity"
    TOPIC_ID = "topic_id"
    IDENTITY_NAMES = "identity_names"
    FAILOVER = "failover"
    FAILBACK = "failback"
    GROUP_OFFSETS = "group_offsets"
    ACL_SYNC = "acl_sync"
    CONFIG_SYNC = "config_sync"
    ABORTED_DATA = "aborted_data"  # aborted records and markers are mirrored
    EXACTLY_ONCE = "exactly_once"
    PID_RESET_HONOURED = "pid_reset_honoured"
    CUT_BY_EPOCH = "cut_by_epoch"  # a stop is cut where the last mirrored epoch ends, not at an offset


@dataclass(frozen=True)
class Support:
    """Whether a capability is supported, and why not."""

    yes: bool
    why: str = ""


class PartitionState(StrEnum):
    """State of one mirror partition (MIRROR.md)."""

    PREPARING = "PREPARING"
    MIRRORING = "MIRRORING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """A snapshot of one mirror partition. Offsets are log end offsets; None when they are not known."""

    topic: str
    partition: int
    state: PartitionState
    source_offset: int | None = None
    destination_offset: int | None = None
    lag: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Cut:
    """Where the mirror ended: (topic on the source, partition) → (source offset, destination offset)."""

    offsets: Mapping[tuple[str, int], tuple[int, int]]


def topic_on(mirrors: Sequence[Mirror], cluster: str, topic: str) -> str:
    """Name on `cluster` of a topic named as on the source of the first mirror: along the mirrors that lead there."""
    if not mirrors:
        return topic
    names = {mirrors[0].source: topic}
    for mirror in mirrors:
        if mirror.source in names and mirror.destination not in names:
            names[mirror.destination] = mirror.topic_on_destination(names[mirror.source])
    return names.get(cluster, topic)


class Mirror(Protocol):
    """A mirroring implementation between two clusters."""

    @property
    def name(self) -> str:
        """Its name in the registry of mirrors."""
        ...

    @property
    def source(self) -> str:
        """Letter of the source cluster."""
        ...

    @property
    def destination(self) -> str:
        """Letter of the destination cluster."""
        ...

    def capabilities(self) -> Mapping[Capability, Support]:
        """Its capabilities, with the reason where one is missing."""
        ...

    def topic_on_destination(self, topic: str) -> str:
        """The mirrored topic's name on the destination."""
        ...

    def start(self, topics: Sequence[str]) -> None:
        """Start mirroring these topics. Returns when the process runs; warm-up waits for mirrored records."""
        ...

    def stop(self, topics: Sequence[str]) -> Cut:
        """Stop mirroring (failover: the destination becomes writable); returns where the mirror ended."""
        ...

    def describe(self) -> Sequence[PartitionStatus]:
        """States and offsets now."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Its containers, so that nemeses can pause and kill them."""
        ...

    def await_mirroring(
        self, topics: Sequence[str], *, recorder: Recorder, timeout_s: float
    ) -> Mapping[tuple[str, int], float]:
        """Write a probe record to every partition on the source and wait until each is read on the destination.

        The probes' values begin with `probe:`, and their sends are recorded like a workload's. Returns seconds
        per (topic, partition). Raises: WaitTimeoutError naming the partitions that mirrored nothing.
        """
        ...

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int | None]:
        """Wait until the mirror has copied everything that the source holds at the time of the call.

        Returns records still missing per (topic on the source, partition): 0 everywhere when it caught up, None
        where it is unknown. Never raises for being late: the caller judges.
        """
        ...

    def revive(self) -> Sequence[str]:
        """Do what an operator does about a mirror that has given up: restart every part that reports FAILED.

        Returns one sentence per failure, for the run's notes; empty when nothing had failed and nothing was done.
        """
        ...

    def record_changes(self, recorder: Recorder) -> None:
        """Store what the mirror changed on the destination since the last call, as far as it reports it (group offsets
        that it wrote, configurations, ACLs). Never raises for a mirror that does not answer."""
        ...

    def close(self) -> None:
        """Drop the driver's own clients; the containers belong to the topology."""
        ...


@runtime_checkable
class KeepsTopics(Mirror, Protocol):
    """A mirror that keeps state of its own in topics of its destination, which are sampled, too."""

    def own_topics(self) -> Sequence[str]:
        """Their names; harness.core.internal_topics knows them."""
        ...


@runtime_checkable
class Crashable(Mirror, Protocol):
    """A mirror whose processes can be made to kill themselves at a named step of their work."""

    def crash_at(self, step: str, *, on: bool = True) -> None:
        """Set a crash point for every process, those that start later included, or clear it. Idempotent."""
        ...

    def crashed_at(self, step: str) -> Sequence[Node]:
        """Processes that died at this step since the mirror was created."""
        ...
