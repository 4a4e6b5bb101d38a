"""`broker-partition`: cut one broker's replication listener, so that it serves clients but not its peers.

Only the inter-broker port is cut, never the controllers' port: the quorum stays complete, the broker stays unfenced,
and the in-sync sets of its partitions shrink to itself.
It proves: replication packets were dropped, and its port is closed to a connection from outside.
It cannot see: whether the in-sync sets shrank, which needs writes and the brokers' lag time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError, WaitTimeoutError
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
from nemeses.support import netcut
from nemeses.support.recovery import connects
from nemeses.support.roles import await_healed, broker_params, broker_targets, brokers_available, resolve_and_reserve

HEAL_S = 45.0
ROLES: tuple[str, ...] = ("leader", "follower", "any")


class BrokerPartition(Nemesis):
    """See the module."""

    name = "broker-partition"
    description = "cut a broker's replication listener (both directions, in or out); clients still reach it"
    kind: NemesisKind = "broker"
    clusters: tuple[str, ...] = ("A", "B")
    roles = ROLES
    needs = "a cluster of at least two brokers"
    timing = Timing(least_s=2, most_s=8, settle_s=4)
    choices: Mapping[str, tuple[str, ...]] = {"direction": netcut.DIRECTIONS}
    color = "#72b7b2"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Roles on every cluster that replicates."""
        return tuple(t for t in broker_targets(shape, self.roles) if len(shape.brokers[t.cluster]) > 1)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Partition, candidate and direction."""
        return {**broker_params(rng, shape), "direction": rng.choice(netcut.DIRECTIONS)}

    def available(self, topology: Topology) -> Availability:
        """Everywhere."""
        return brokers_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Cut, and count dropped packets."""
        direction = str(spec.params.get("direction", "both"))
        if direction not in netcut.DIRECTIONS:
            raise FaultError(f"broker-partition has directions {netcut.DIRECTIONS}, not {direction}")
        cluster, node, why = resolve_and_reserve(context, spec)
        port = cluster.repl_port
        target = f"{node.name} ({why})"
        context.undo.push(f"open port {port} of {node.name}", lambda: netcut.join(node, port, direction))
        context.began(target, dict(spec.params))
        netcut.cut(node, port, direction)
        closed = direction == "out" or not connects(node.address, port)
        count = 0
        with contextlib.suppress(WaitTimeoutError):
            count = context.wait(
                lambda: netcut.dropped(node),
                timeout_s=5,
                what=f"a packet of the replication of {node.name} to be dropped",
                interval_s=0.3,
            )
        seen = f"{count} packets at port {port} of {node.name} dropped ({direction})"
        if direction != "out":
            seen += f"; a connection from outside is {'refused' if closed else 'accepted'}"
        return Injected(
            spec=spec,
            target=target,
            nodes=[node.name],
            bite=Bite(yes=closed and count > 0, seen=seen),
            state={"node": node},
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Reconnect, and wait until the broker is in sync everywhere, and the others with it."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        return await_healed(context, injected.spec, injected.state["node"], timeout_s=HEAL_S)
