"""`mirror-pause`: freeze the mirror's process (or all of them) and let it continue.

It proves: the processes are frozen. It cannot see whether the mirror copies records after healing; the final reads
and the checkers judge that.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

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
from nemeses.support.mirror_nodes import (
    MIRROR_NEEDS,
    MIRROR_ROLES,
    mirror_available,
    mirror_params,
    mirror_targets,
    reserve_mirror_nodes,
)


class MirrorPause(Nemesis):
    """See the module."""

    name = "mirror-pause"
    description = "freeze the mirror's process (cgroup freezer or SIGSTOP), one or all"
    kind: NemesisKind = "mirror"
    clusters: tuple[str, ...] = ("mirror",)
    roles = MIRROR_ROLES
    needs = MIRROR_NEEDS
    timing = Timing(least_s=2, most_s=8, settle_s=2)
    choices = CHOICES
    color = "#9d755d"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """One process or all."""
        return mirror_targets(shape, self.roles)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Which process, and how."""
        return {**mirror_params(rng), "how": rng.choice(WAYS)}

    def available(self, topology: Topology) -> Availability:
        """Where the mirror has containers."""
        return mirror_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Freeze, then check the processes."""
        nodes = reserve_mirror_nodes(context, spec)
        how = str(spec.params.get("how", WAYS[0]))
        target = ", ".join(node.name for node in nodes)
        context.began(target, dict(spec.params))
        for node in nodes:
            freeze(context, node, how)
        states = {node.name: frozen(node, how) for node in nodes}
        seen = ", ".join(f"{name} is {'frozen' if yes else 'not frozen'} ({how})" for name, yes in states.items())
        bite = Bite(yes=all(states.values()), seen=seen)
        return Injected(spec=spec, target=target, nodes=list(states), bite=bite, state={"nodes": nodes})

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Thaw, and check that the processes run."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        for node in injected.state["nodes"]:
            await_thawed(node, str(injected.spec.params.get("how", WAYS[0])), timeout_s=10)
        return f"{injected.target} runs again"
