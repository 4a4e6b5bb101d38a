"""`broker-pause`: freeze one broker or controller, or the whole cluster, then let it continue with an outdated view of
the others.

Role `all` freezes every node of the cluster, as a region out of reach; `coordinator` the broker that leads a partition
of the topic in which the mirror keeps its state. Neither is drawn: name them.
It proves: the nodes are frozen, and a client request that was answered before gets no answer.
It cannot see: whether anybody needed the node during that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from harness.clusters.kafka.node_requests import answers
from harness.core.errors import FaultError
from harness.topology.clusters import Node
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
from nemeses.support.freezing import CHOICES, WAYS, await_thawed, freeze, frozen
from nemeses.support.recovery import client_address
from nemeses.support.roles import (
    BROKER_ROLES,
    KILLABLE_ROLES,
    await_all_healed,
    broker_params,
    broker_targets,
    brokers_available,
    resolve_and_reserve_all,
)

HEAL_S = 45.0
HEAL_EACH_S = 15.0  # more for each node of several
PROBE_S = 1.0


class BrokerPause(Nemesis):
    """See the module."""

    name = "broker-pause"
    description = "freeze a broker (leader, follower, controller, any, the state's coordinator) or all of them"
    kind: NemesisKind = "broker"
    clusters: tuple[str, ...] = ("A", "B")
    roles = KILLABLE_ROLES
    default_roles = BROKER_ROLES
    needs = "a cluster"
    timing = Timing(least_s=2, most_s=8, settle_s=3)
    choices = CHOICES
    color = "#4c78a8"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Roles on every cluster."""
        return broker_targets(shape, self.roles)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Partition, candidate and way of freezing."""
        return {**broker_params(rng, shape), "how": rng.choice(WAYS)}

    def available(self, topology: Topology) -> Availability:
        """Everywhere."""
        return brokers_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Freeze, then send a request."""
        cluster, nodes, target = resolve_and_reserve_all(context, spec)
        how = str(spec.params.get("how", WAYS[0]))
        addresses = {node.name: client_address(cluster, node) for node in nodes}
        before = {name: _answers(address) for name, address in addresses.items()}
        context.began(target, dict(spec.params))
        for node in nodes:
            freeze(context, node, how)
            if not frozen(node, how):
                raise FaultError(f"{node.name} is not frozen after {how}: its container is {node.state()}")
        after = {name: _answers(address) for name, address in addresses.items()}
        words = {True: "answered", False: "not answered"}
        seen = []
        for name, address in addresses.items():
            said = f"; a client request was {words[before[name]]} before and {words[after[name]]} after"
            seen.append(f"{name} is frozen ({how})" + (said if address is not None else ""))
        return Injected(
            spec=spec,
            target=target,
            nodes=list(addresses),
            bite=Bite(yes=not any(after.values()), seen="; ".join(seen)),
            state={"nodes": nodes},
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Thaw, and wait until everything is in sync."""
        nodes: Sequence[Node] = injected.state["nodes"]
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        for node in nodes:
            await_thawed(node, str(injected.spec.params.get("how", WAYS[0])), timeout_s=10)
        limit = HEAL_S + HEAL_EACH_S * (len(nodes) - 1)
        return await_all_healed(context, injected.spec, nodes, timeout_s=limit)


def _answers(address: tuple[str, int] | None) -> bool:
    return address is not None and answers(*address, timeout_s=PROBE_S)
