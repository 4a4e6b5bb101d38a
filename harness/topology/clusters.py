"""Protocols of running nodes, clusters and links. Structural: the containers implement them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

from harness.wire.metadata import PartitionMeta


class NodeRole(StrEnum):
    """What a container is for."""

    BROKER = "broker"  # also a controller in combined mode
    CONTROLLER = "controller"
    MIRROR = "mirror"
    PROXY = "proxy"


class NodeState(StrEnum):
    """The engine's state of a node."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    ABSENT = "absent"


@dataclass(frozen=True)
class ExecResult:
    """Exit code and output (stdout and stderr together) of a command in a container."""

    exit_code: int
    output: str


class Node(Protocol):
    """One container. Every call is bounded; each returns only when the engine confirms the new state."""

    @property
    def name(self) -> str:
        """Short name within the run, e.g. `A-broker-1`, `mirror-1`, `toxiproxy`."""
        ...

    @property
    def cluster(self) -> str:
        """`A`, `B`, `C`, `mirror` or `link`."""
        ...

    @property
    def role(self) -> NodeRole:
        """What it is for."""
        ...

    @property
    def node_id(self) -> int:
        """Kafka node id, or the mirror process's number."""
        ...

    @property
    def address(self) -> str:
        """Its fixed IPv4 address."""
        ...

    def state(self) -> NodeState:
        """The engine's state of it now."""
        ...

    def pause(self) -> None:
        """Freeze every process (cgroup freezer)."""
        ...

    def unpause(self) -> None:
        """Thaw. No error if it is not paused."""
        ...

    def signal(self, name: Literal["SIGSTOP", "SIGCONT", "SIGKILL", "SIGTERM", "SIGQUIT"]) -> None:
        """Send a signal to the main process."""
        ...

    def kill(self) -> None:
        """SIGKILL the main process and wait until the container is stopped. Data and address stay."""
        ...

    def start(self) -> None:
        """Start again (no error if it runs). Returns when the process runs, not when Kafka is ready."""
        ...

    def exec(self, command: Sequence[str], *, timeout_s: float = 30, privileged: bool = False) -> ExecResult:
        """Run a command inside.

        privileged: with every capability, where the engine itself has them all (not inside another container);
        `net` needs only the one to change the network.
        """
        ...

    def net(self, script: str, *, timeout_s: float = 30) -> ExecResult:
        """Run a shell script with NET_ADMIN inside the node's network namespace (iptables, ip, ss, tc).

        The tools come from our own image, so that it works for any Kafka image.
        """
        ...

    def logs(self, *, tail: int | None = None) -> str:
        """Everything (or the last lines) the main process printed."""
        ...

    def fetch(self, path: str, into: Path, *, only: Sequence[str] = ()) -> Path:
        """Copy a file or folder out of the container, also when it is stopped; returns where it is.

        only: shell patterns of file names (`*.log`); everything when empty.
        """
        ...


class Cluster(Protocol):
    """One running Kafka cluster."""

    @property
    def name(self) -> str:
        """`A`, `B` or `C`."""
        ...

    @property
    def cluster_id(self) -> str:
        """The ID the storage was formatted with, compared with what the brokers report."""
        ...

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers for clients on the host."""
        ...

    @property
    def link_bootstrap(self) -> str:
        """Bootstrap servers for the mirror: toxiproxy's addresses."""
        ...

    @property
    def brokers(self) -> Mapping[int, Node]:
        """Broker id → node."""
        ...

    @property
    def controllers(self) -> Mapping[int, Node]:
        """Controller id → node (the brokers themselves in combined mode)."""
        ...

    @property
    def data_dir(self) -> str:
        """Path of the log directory inside each broker's container."""
        ...

    @property
    def repl_port(self) -> int:
        """Port of the inter-broker (replication) listener on every broker."""
        ...

    def admin(self) -> Any:
        """A confluent_kafka.admin.AdminClient over the clients' listener (shared, thread-safe)."""
        ...

    def partitions(self, topic: str) -> Sequence[PartitionMeta]:
        """The topic's partitions now."""
        ...

    def every_partition(self) -> Sequence[PartitionMeta]:
        """All partitions now, those of internal topics included."""
        ...

    def topics(self, *, internal: bool = False) -> Sequence[str]:
        """Names of all topics; the internal ones of Kafka, Connect and mirrors only on request."""
        ...

    def create_topic(
        self, topic: str, *, partitions: int, replication: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every partition has a leader and a full ISR."""
        ...

    def active_controller(self) -> int:
        """Node id of the quorum's leader."""
        ...

    def await_ready(self, *, timeout_s: float) -> None:
        """Wait until every broker answers, the ID is right and the broker count is full."""
        ...

    def await_full_isr(self, *, timeout_s: float) -> None:
        """Wait until every partition has all its replicas in sync."""
        ...


class Link(Protocol):
    """The way from the mirror to one cluster: one toxiproxy proxy per broker."""

    @property
    def cluster(self) -> str:
        """The cluster at its far end."""
        ...

    @property
    def brokers(self) -> Sequence[int]:
        """Broker ids with a proxy."""
        ...

    def cut(
        self,
        mode: Literal["black_hole", "reset", "down"],
        *,
        direction: Literal["both", "to_cluster", "from_cluster"] = "both",
        brokers: Sequence[int] | None = None,
    ) -> None:
        """Cut the proxies of these brokers (all by default), existing connections included."""
        ...

    def degrade(
        self,
        *,
        latency_ms: int = 0,
        jitter_ms: int = 0,
        rate_kb_s: int | None = None,
        brokers: Sequence[int] | None = None,
    ) -> None:
        """Delay or narrow the proxies of these brokers, each direction by this much."""
        ...

    def heal(self, *, brokers: Sequence[int] | None = None) -> None:
        """Remove every toxic, enable every proxy (of these brokers), and drop connections that outlived the fault."""
        ...

    def healthy(self) -> bool:
        """Whether every proxy listens and has no toxic."""
        ...

    def passes(self, broker: int, *, timeout_s: float = 1.0) -> bool:
        """Whether a real Kafka request (ApiVersions) gets its answer through this broker's proxy."""
        ...

    def bytes(self) -> Mapping[int, tuple[int, int]]:
        """Bytes since start per broker: (towards the cluster, from the cluster)."""
        ...
