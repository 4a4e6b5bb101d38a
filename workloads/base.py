"""The interface of a workload: clients under load, a floor below which nothing was proven, and final reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from harness.core.clock import Clock
from harness.history.recording import Recorder


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """A topic to be created on the source before the load."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The minimum load that proves anything. Below it the verdict is `unknown` (kind `thin`).

    carried_under_fault: records that the mirror must copy during each fault or soon after; partitions_under_faults:
    number of partitions of which it must copy any under all faults together.
    """

    ok_sends: int
    ok_polls: int
    polled_records_on_destination: int
    faults_bit: int = 0
    carried_under_fault: int = 1
    partitions_under_faults: int = 1


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The user's options. rate: operations per second over all producers (0: as fast as they can)."""

    topics: int = 2
    partitions: int = 4
    replication: int = 3
    rate: float = 400.0
    producer: Literal["plain", "idempotent", "transactional"] = "idempotent"
    producers: int = 2
    consumers: int = 2  # per cluster
    processes: int = 8  # logical processes per producer client
    max_records: int = 4  # records per send operation: 1 … this
    client_life: int = 0  # operations after which a producer client is replaced by a new one; 0: never
    abort_ratio: float = 0.2  # share of transactions that are aborted on purpose
    txn_hold: float = 0.0  # seconds that transactions stay open after their records were written
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed"
    acks: Literal["all", "1"] = "all"
    value_bytes: int = 0  # pad values to this size
    topic_config: Mapping[str, str] = field(default_factory=dict)
    authorizer: bool = False  # whether the clusters have one, so that ACLs can be created


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One cluster as clients see it. topic_names: name on A → name here."""

    cluster: str
    bootstrap: str
    topic_names: Mapping[str, str]
    writable: bool = True


@dataclass(kw_only=True)
class WorkloadContext:
    """The context of a workload. Contexts of one run share `extra` (use dataclasses.replace), e.g. after a failover."""

    run_id: str
    seed: int
    options: WorkloadOptions
    endpoints: Mapping[str, Endpoint]
    recorder: Recorder
    clock: Clock
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoadCounts:
    """Live figures for the progress display and the floor."""

    ok_sends: int = 0
    failed_sends: int = 0
    info_sends: int = 0
    acked_records: int = 0
    ok_polls: int = 0  # polls that brought records
    polled_records: Mapping[str, int] = field(default_factory=dict)  # cluster → records


class Load(Protocol):
    """Running clients, in threads of their own."""

    def counts(self) -> LoadCounts:
        """Figures so far; never blocks."""
        ...

    def error(self) -> Exception | None:
        """The first error that ended a client thread (not Kafka errors: those are recorded)."""
        ...

    def stop(self, *, timeout_s: float) -> None:
        """End every client within the time; pending operations complete as info."""
        ...


@dataclass(frozen=True, kw_only=True)
class FinalRead:
    """How one partition's final read ended (a row of table `final_reads`)."""

    cluster: str
    topic: str
    partition: int
    complete: bool
    position: int
    target: int
    error: str | None = None
    isolation: str = "read_uncommitted"
    start: int = -1


@runtime_checkable
class AsksOfMirror(Protocol):
    """A workload that needs options of the mirror: set if the mirror has them and the user chose nothing."""

    mirror_options: Mapping[str, str]


class Workload(Protocol):
    """One kind of load."""

    name: str
    description: str

    def topics(self, options: WorkloadOptions) -> Sequence[TopicSpec]:
        """The topics it needs on A."""
        ...

    def floor(self, options: WorkloadOptions, *, time_limit_s: float) -> Floor:
        """The minimum load for a run of this length; modest, for slow machines."""
        ...

    def start(self, context: WorkloadContext) -> Load:
        """Start the clients; returns at once."""
        ...

    def final_reads(self, context: WorkloadContext, *, timeout_s: float) -> Sequence[FinalRead]:
        """Read every partition of every endpoint from its start with fresh clients, bounded in time.

        Records `poll` operations in phase `final` and rows of table `final_reads`, one per partition,
        also for reads that could not finish.
        """
        ...
