"""Checks from outside: does a broker answer, is a process frozen, is a node back in every in-sync replica set.

`answers` sends a real Kafka request, since a paused broker still accepts connections: the kernel does that.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection

from harness.clusters.kafka.node_requests import answers, metadata
from harness.core.errors import ClusterError, FaultError, ShatterError
from harness.core.wait import wait_until
from harness.topology.clusters import Cluster, Node, NodeRole, NodeState
from harness.wire.client import WireError


def client_address(cluster: Cluster, node: Node) -> tuple[str, int] | None:
    """Host and port where clients reach this broker; None for a node that serves no clients."""
    for entry in cluster.bootstrap.split(","):
        host, _, port = entry.strip().rpartition(":")
        if host == node.address:
            return host, int(port)
    return None


def connects(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Whether a TCP connection is accepted here within the time."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def stopped_by_signal(node: Node) -> bool:
    """Whether the main process is in state T (stopped by SIGSTOP).

    Raises: FaultError when the process's state cannot be read.
    """
    result = node.exec(["cat", "/proc/1/status"], timeout_s=5)
    for line in result.output.splitlines():
        if line.startswith("State:"):
            return line.split()[1] == "T"
    raise FaultError(f"cannot read the state of the main process of {node.name}: {result.output.strip()[:200]}")


def node_serves(cluster: Cluster, node: Node) -> bool:
    """Whether the node runs and, if it serves clients, answers them."""
    if node.state() is not NodeState.RUNNING:
        return False
    address = client_address(cluster, node)
    return address is None or answers(*address, timeout_s=2)


def out_of_sync(
    cluster: Cluster, broker: int, *, excused: Collection[int] = (), among: Collection[int] | None = None
) -> list[str]:
    """Partitions (as `topic-n`, internal ones too) where this broker, or a follower of it, is not in sync.

    Every broker that answers must report it in sync, since brokers may lag behind their controller.
    excused: brokers that need not be in sync and are not asked. among: followers that count; None: all.
    Raises: ClusterError when nobody answers.
    """
    lacking: dict[str, None] = {}
    answered = False
    for asked, node in cluster.brokers.items():
        address = client_address(cluster, node)
        if asked in excused or address is None:
            continue
        try:
            said = metadata(*address, topics=None, timeout_s=2)
        except WireError:
            continue
        answered = True
        for topic in said.topics:
            for part in topic.partitions:
                replicas, in_sync = set(part.replica_nodes), set(part.isr_nodes)
                lags = broker in replicas and broker not in in_sync
                followers = replicas if among is None else replicas & set(among)
                leads = broker == part.leader_id and followers - in_sync - set(excused)
                if lags or leads:
                    lacking[f"{topic.name}-{part.partition_index}"] = None
    if not answered:
        raise ClusterError(f"no broker of cluster {cluster.name} reports the in-sync replicas")
    return list(lacking)


def await_back(
    cluster: Cluster, node: Node, *, timeout_s: float, excused: Callable[[], Collection[int]] = frozenset
) -> str:
    """Wait until the node serves and is in every in-sync replica set again; returns what was seen.

    It must answer first: until a restarted broker has registered again, the metadata may be outdated.
    excused: returns the broker ids that other faults keep out of sync now.
    Raises: WaitTimeoutError.
    """
    began = time.monotonic()

    def lagging() -> list[str]:
        return out_of_sync(cluster, node.node_id, excused=excused())

    wait_until(
        lambda: node_serves(cluster, node),
        timeout_s=timeout_s,
        what=f"{node.name} to run and answer",
        instead=lambda: f"its container is {node.state()}",
        interval_s=0.25,
        swallow=(ShatterError,),
    )
    if node.node_id in cluster.controllers:
        wait_until(
            lambda: (cluster.active_controller(),),
            timeout_s=max(1.0, timeout_s - (time.monotonic() - began)),
            what=f"cluster {cluster.name} to have an active controller",
            interval_s=0.25,
            swallow=(ShatterError,),
        )
    if node.role is not NodeRole.BROKER:
        return f"{node.name} runs, and there is an active controller, after {time.monotonic() - began:.1f} s"
    wait_until(
        lambda: not lagging(),
        timeout_s=max(1.0, timeout_s - (time.monotonic() - began)),
        what=f"{node.name} to be in sync for all its partitions",
        instead=lambda: "out of sync for " + ", ".join(lagging()[:5]),
        interval_s=0.25,
        swallow=(ShatterError,),
    )
    return f"{node.name} answers and is in sync everywhere after {time.monotonic() - began:.1f} s"
