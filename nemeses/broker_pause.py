"""`broker-pause`: freeze one broker or controller, then let it continue with an outdated view of the cluster.

It proves: the node is frozen, and a client request that was answered before gets no answer.
It cannot see: whether anybody needed the node during that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from harness.clusters.kafka.node_requests import answers
from harness.core.errors import FaultError
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
    await_healed,
    broker_params,
    broker_targets,
    brokers_available,
    resolve_and_reserve,
)

HEAL_S = 45.0
PROBE_S = 1.0


class BrokerPause(Nemesis):
    """See the module."""

    name = "broker-pause"
    description = "freeze a broker (cgroup freezer or SIGSTOP), chosen as leader, follower, controller or any"
    kind: NemesisKind = "broker"
    clusters: tuple[str, ...] = ("A", "B")
    roles = BROKER_ROLES
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
        """Freeze, then send it a request."""
        cluster, node, why = resolve_and_reserve(context, spec)
        how = str(spec.params.get("how", WAYS[0]))
        address = client_address(cluster, node)
        before = address is not None and answers(*address, timeout_s=PROBE_S)
        target = f"{node.name} ({why})"
        context.began(target, dict(spec.params))
        freeze(context, node, how)
        if not frozen(node, how):
            raise FaultError(f"{node.name} is not frozen after {how}: its container is {node.state()}")
        after = address is not None and answers(*address, timeout_s=PROBE_S)
        seen = f"{node.name} is frozen ({how})"
        if address is not None:
            words = {True: "answered", False: "not answered"}
            seen += f"; a client request was {words[before]} before and {words[after]} after"
        return Injected(
            spec=spec, target=target, nodes=[node.name], bite=Bite(yes=not after, seen=seen), state={"node": node}
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Thaw, and wait until it is in sync everywhere."""
        node = injected.state["node"]
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        await_thawed(node, str(injected.spec.params.get("how", WAYS[0])), timeout_s=10)
        return await_healed(context, injected.spec, node, timeout_s=HEAL_S)
