"""`broker-kill`: kill -9 one broker or controller; restart it at healing and wait for full in-sync sets.

It proves: the container is stopped and nothing listens where clients reached it. Data and address stay.
It cannot lose what the operating system had not yet written to disk: the page cache outlives the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError
from harness.topology.clusters import NodeState
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
    await_healed,
    broker_params,
    broker_targets,
    brokers_available,
    resolve_and_reserve,
)

HEAL_S = 60.0


class BrokerKill(Nemesis):
    """See the module."""

    name = "broker-kill"
    description = "kill -9 a broker, chosen as leader, follower, controller or any, and restart it"
    kind: NemesisKind = "broker"
    clusters: tuple[str, ...] = ("A", "B")
    roles = BROKER_ROLES
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
        cluster, node, why = resolve_and_reserve(context, spec)
        address = client_address(cluster, node)
        target = f"{node.name} ({why})"
        context.undo.push(f"start {node.name}", node.start)
        context.began(target, dict(spec.params))
        node.kill()
        state = node.state()
        open_port = address is not None and connects(*address)
        seen = f"the container of {node.name} is {state}"
        if address is not None:
            seen += f", its port {address[1]} is {'still open' if open_port else 'closed'}"
        bite = Bite(yes=state is NodeState.STOPPED and not open_port, seen=seen)
        return Injected(spec=spec, target=target, nodes=[node.name], bite=bite, state={"node": node})

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Start, and wait until it is in sync everywhere."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        return await_healed(context, injected.spec, injected.state["node"], timeout_s=HEAL_S)
