"""`broker-kill`: kill -9 one broker or controller, or the whole cluster; restart at healing and wait for full in-sync
sets.

Role `all` kills every node of the cluster, as a region that goes down; `coordinator` the broker that leads a partition
of the topic in which the mirror keeps its state. Neither is drawn: name them.
It proves: the containers are stopped and nothing listens where clients reached them. Data and addresses stay.
It cannot lose what the operating system had not yet written to disk: the page cache outlives the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError
from harness.topology.clusters import Cluster, Node, NodeState
from harness.topology.topology import Topology
from nemeses.base import (
    Availability,
    Bite,
    FaultContext,
    FaultSpec,
    Injected,
    Nemesis,
    NemesisKind,
    Shape,
    Target,
    Timing,
)
from nemeses.support.recovery import client_address, connects
from nemeses.support.roles import (
    BROKER_ROLES,
    KILLABLE_ROLES,
    await_all_healed,
    broker_params,
    broker_targets,
    brokers_available,
    resolve_and_reserve_all,
)

HEAL_S = 60.0
HEAL_EACH_S = 20.0  # more for each node of several


class BrokerKill(Nemesis):
    """See the module."""

    name = "broker-kill"
    description = "kill -9 a broker (leader, follower, controller, any, the state's coordinator) or all; restart it"
    kind: NemesisKind = "broker"
    clusters: tuple[str, ...] = ("A", "B")
    roles = KILLABLE_ROLES
    default_roles = BROKER_ROLES
    needs = "a cluster"
    timing = Timing(least_s=2, most_s=8, settle_s=9)
    color = "#e45756"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Roles on every cluster."""
        return broker_targets(shape, self.roles)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Partition and candidate."""
        return broker_params(rng, shape)

    def available(self, topology: Topology) -> Availability:
        """Everywhere."""
        return brokers_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Kill, then check the container and probe its port."""
        cluster, nodes, target = resolve_and_reserve_all(context, spec)
        for node in nodes:
            context.undo.push(f"start {node.name}", node.start)
        context.began(target, dict(spec.params))
        for node in nodes:
            node.kill()
        found = [_dead(cluster, node) for node in nodes]
        bite = Bite(yes=all(dead for dead, _ in found), seen="; ".join(seen for _, seen in found))
        names = [node.name for node in nodes]
        return Injected(spec=spec, target=target, nodes=names, bite=bite, state={"nodes": nodes})

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Start, and wait until everything is in sync."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        nodes: Sequence[Node] = injected.state["nodes"]
        limit = HEAL_S + HEAL_EACH_S * (len(nodes) - 1)
        return await_all_healed(context, injected.spec, nodes, timeout_s=limit)


def _dead(cluster: Cluster, node: Node) -> tuple[bool, str]:
    """Whether the node is stopped and its port is closed, and what was seen."""
    address, state = client_address(cluster, node), node.state()
    open_port = address is not None and connects(*address)
    seen = f"the container of {node.name} is {state}"
    if address is not None:
        seen += f", its port {address[1]} is {'still open' if open_port else 'closed'}"
    return state is NodeState.STOPPED and not open_port, seen
