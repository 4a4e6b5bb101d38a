"""From a role to nodes, at the moment of injection: leader, follower, controller, any; coordinator of the mirror's
state (the broker that leads a partition of the topic in which it is kept); all nodes of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from random import Random
from typing import Any

from harness.core.errors import ClusterError, FaultError
from harness.topology.clusters import Cluster, Node, NodeRole
from harness.topology.mirror import KeepsTopics, topic_on
from harness.topology.topology import Topology
from harness.wire.client import WireError
from harness.wire.metadata import PartitionMeta
from harness.wire.view import ClusterView
from nemeses.base import Availability, FaultContext, FaultSpec, Shape, Target
from nemeses.reservations import FaultSkippedError
from nemeses.support.recovery import await_back

BROKER_ROLES: tuple[str, ...] = ("leader", "follower", "controller", "any")
COORDINATOR, WHOLE = "coordinator", "all"
KILLABLE_ROLES: tuple[str, ...] = (*BROKER_ROLES, COORDINATOR, WHOLE)
"""Of faults that can hit a whole cluster, and the broker that coordinates the mirror's state."""


def broker_targets(shape: Shape, roles: tuple[str, ...]) -> tuple[Target, ...]:
    """Every cluster and role a fault on brokers can have; no follower where there is one replica, no coordinator where
    no mirror keeps its state."""
    return tuple(
        Target(cluster, role)
        for cluster, brokers in sorted(shape.brokers.items())
        for role in roles
        if role != "follower" or min(len(brokers), shape.replication) > 1
        if role != COORDINATOR or cluster in shape.state_on
    )


def broker_params(rng: Random, shape: Shape) -> dict[str, Any]:
    """Which partition's leader or follower is selected, and which of several candidates."""
    return {
        "topic": rng.choice(shape.topics) if shape.topics else None,
        "partition": rng.randrange(shape.partitions) if shape.partitions else 0,
        "pick": rng.randrange(1_000_000),
    }


def brokers_available(topology: Topology) -> Availability:
    """Whether there is a cluster at all."""
    return Availability(True) if topology.clusters else Availability(False, "no cluster runs")


def cluster_of(topology: Topology, spec: FaultSpec) -> Cluster:
    """Raises: FaultError when the topology has no such cluster."""
    try:
        return topology.clusters[spec.cluster]
    except KeyError:
        raise FaultError(f"no cluster {spec.cluster} runs; there are {', '.join(sorted(topology.clusters))}") from None


def topic_here(topology: Topology, cluster: str, topic: str) -> str:
    """Name on this cluster of a topic named as on the source."""
    return topic_on(topology.mirrors, cluster, topic)


def partition_of(topology: Topology, cluster: Cluster, spec: FaultSpec) -> PartitionMeta:
    """The current state of the partition that the fault was drawn for.

    Raises: FaultError when there is no such topic or partition.
    """
    drawn = spec.params.get("topic")
    if not drawn:
        raise FaultError(f"role {spec.role} needs a topic, and the run has none")
    topic = topic_here(topology, cluster.name, str(drawn))
    number = int(spec.params.get("partition", 0))
    for info in cluster.partitions(topic):
        if info.partition == number:
            return info
    raise FaultError(f"cluster {cluster.name} has no partition {topic}-{number}")


def resolve_node(topology: Topology, cluster: Cluster, spec: FaultSpec) -> tuple[Node, str]:
    """The node that the role selects now, and why.

    Raises: FaultError when the role cannot be resolved (no leader, no follower).
    """
    number = int(spec.params.get("pick", 0))
    if spec.role == "controller":
        active = cluster.active_controller()
        if active not in cluster.controllers:
            raise FaultError(
                f"cluster {cluster.name} names node {active} as its controller, which is not one of its nodes"
            )
        return cluster.controllers[active], "active controller"
    if spec.role == "any":
        ids = sorted(cluster.brokers)
        return cluster.brokers[ids[number % len(ids)]], "any broker"
    if spec.role == COORDINATOR:
        info = state_partition(topology, cluster, number)
    else:
        info = partition_of(topology, cluster, spec)
    name = f"{info.topic}-{info.partition}"
    if info.leader is None:
        raise FaultError(f"{name} on cluster {cluster.name} has no leader")
    real = [broker for broker in info.replicas if broker in cluster.brokers]
    if spec.role in ("leader", COORDINATOR):
        if info.leader in cluster.brokers:
            return cluster.brokers[info.leader], f"leader of {name}"
        if not real:
            raise FaultError(f"{name} on cluster {cluster.name} has no replica on a broker of its own")
        return cluster.brokers[real[0]], f"first in line to lead {name}, which the mirror leads as broker {info.leader}"
    if spec.role == "follower":
        followers = sorted(broker for broker in real if broker != info.leader)
        if not followers:
            raise FaultError(f"{name} on cluster {cluster.name} has one replica, so no follower")
        return cluster.brokers[followers[number % len(followers)]], f"follower of {name}"
    raise FaultError(f"unknown role {spec.role!r}")


def state_partition(topology: Topology, cluster: Cluster, pick: int) -> PartitionMeta:
    """One of the partitions in which mirrors keep state on this cluster; of those that hold something, if any does.

    Raises: FaultError when there is none, ClusterError.
    """
    own = [m for m in topology.mirrors if isinstance(m, KeepsTopics) and m.destination == cluster.name]
    topics = sorted({topic for mirror in own for topic in mirror.own_topics()})
    there = [info for topic in topics for info in cluster.partitions(topic)]
    if not there:
        raise FaultError(f"no mirror keeps its state on cluster {cluster.name}")
    with closing(ClusterView(cluster.bootstrap)) as view:
        try:
            ends = view.leader_ends(topics)
        except WireError as error:
            raise FaultError(f"the mirror's state on cluster {cluster.name}: {error}") from error
    filled = [info for info in there if ends.get((info.topic, info.partition))]
    candidates = filled or there
    return candidates[pick % len(candidates)]


def reserve_node(context: FaultContext, cluster: Cluster, spec: FaultSpec, node: Node) -> None:
    """Hold one node, if the cluster tolerates one more missing.

    Where brokers are controllers a cluster tolerates the loss of a minority of its quorum; with separate controllers,
    of all brokers but one. In a cluster that is too small for that one may be lost, and the cluster is down meanwhile.
    Raises: FaultSkippedError.
    """
    combined = any(other.role is NodeRole.BROKER for other in cluster.controllers.values())
    if combined or node.role is NodeRole.CONTROLLER:
        group, limit = f"the quorum of {cluster.name}", max(1, (len(cluster.controllers) - 1) // 2)
    else:
        group, limit = f"cluster {cluster.name}", max(1, len(cluster.brokers) - 1)
    context.reservations.take(spec.fault_id, [node.name], group=group, limit=limit)


def resolve_and_reserve(context: FaultContext, spec: FaultSpec) -> tuple[Cluster, Node, str]:
    """Role → node, held for this fault. A role that cannot be resolved now (a fault just moved it) is a skip.

    Raises: FaultSkippedError with the reason.
    """
    cluster = cluster_of(context.topology, spec)
    try:
        node, why = resolve_node(context.topology, cluster, spec)
    except (FaultError, ClusterError) as error:
        raise FaultSkippedError(f"no {spec.role} on cluster {spec.cluster} to hit: {error}") from error
    reserve_node(context, cluster, spec, node)
    return cluster, node, why


def resolve_and_reserve_all(context: FaultContext, spec: FaultSpec) -> tuple[Cluster, Sequence[Node], str]:
    """Role → the nodes that it means, held for this fault: every node of the cluster for role `all`, else one.

    Raises: FaultSkippedError with the reason.
    """
    if spec.role != WHOLE:
        cluster, node, why = resolve_and_reserve(context, spec)
        return cluster, [node], f"{node.name} ({why})"
    cluster = cluster_of(context.topology, spec)
    nodes = {node.name: node for node in (*cluster.brokers.values(), *cluster.controllers.values())}
    context.reservations.take(spec.fault_id, list(nodes))
    return cluster, list(nodes.values()), f"all nodes of {cluster.name}"


def await_all_healed(context: FaultContext, spec: FaultSpec, nodes: Sequence[Node], *, timeout_s: float) -> str:
    """`await_healed` for each of several nodes that were started together; returns what was seen.

    Raises: WaitTimeoutError.
    """
    deadline = context.clock.now_ns() + int(timeout_s * 1e9)
    seen = [
        await_healed(context, spec, node, timeout_s=max(1.0, (deadline - context.clock.now_ns()) / 1e9))
        for node in nodes
    ]
    return "; ".join(seen)


def await_healed(context: FaultContext, spec: FaultSpec, node: Node, *, timeout_s: float) -> str:
    """Wait until the node is back in its cluster, except for what other live faults keep out; returns what was seen.

    Raises: WaitTimeoutError.
    """
    cluster = cluster_of(context.topology, spec)

    def excused() -> set[int]:
        held = context.reservations.held()
        return {b for b, other in cluster.brokers.items() if held.get(other.name, spec.fault_id) != spec.fault_id}

    return await_back(cluster, node, timeout_s=timeout_s, excused=excused)
