"""`mirror-kill`: kill -9 the mirror's process (or all of them) and restart it at healing.

It proves: the containers are stopped. It cannot see whether the mirror copies records after healing: a broken
MirrorMaker 2 stays up; the final reads and the checkers judge that.
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
from nemeses.support.mirror_nodes import (
    MIRROR_NEEDS,
    MIRROR_ROLES,
    mirror_available,
    mirror_params,
    mirror_targets,
    reserve_mirror_nodes,
)

STAYS_UP_S = 1.5


class MirrorKill(Nemesis):
    """See the module."""

    name = "mirror-kill"
    description = "kill -9 the mirror's process, one or all, and restart it"
    kind: NemesisKind = "mirror"
    clusters: tuple[str, ...] = ("mirror",)
    roles = MIRROR_ROLES
    needs = MIRROR_NEEDS
    timing = Timing(least_s=2, most_s=8, settle_s=4)
    color = "#b279a2"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """One process or all."""
        return mirror_targets(shape, self.roles)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Which process."""
        return mirror_params(rng)

    def available(self, topology: Topology) -> Availability:
        """Where the mirror has containers."""
        return mirror_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Kill, then check the containers."""
        nodes = reserve_mirror_nodes(context, spec)
        target = ", ".join(node.name for node in nodes)
        for node in nodes:
            context.undo.push(f"start {node.name}", node.start)
        context.began(target, dict(spec.params))
        for node in nodes:
            node.kill()
        states = {node.name: node.state() for node in nodes}
        seen = ", ".join(f"the container of {name} is {state}" for name, state in states.items())
        bite = Bite(yes=all(state is NodeState.STOPPED for state in states.values()), seen=seen)
        return Injected(spec=spec, target=target, nodes=list(states), bite=bite, state={"nodes": nodes})

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Start, and check that the processes stay up for a moment."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        nodes = injected.state["nodes"]
        context.clock.sleep(STAYS_UP_S)
        down = [f"{node.name} is {node.state()}" for node in nodes if node.state() is not NodeState.RUNNING]
        if down:
            raise FaultError(f"the mirror did not stay up: {', '.join(down)}; see its log")
        return f"{injected.target} runs again"
