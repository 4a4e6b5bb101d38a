"""Shared by the faults on the mirror's own processes: roles `any` and `all`, reservations, availability."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from harness.topology.clusters import Node, NodeState
from harness.topology.topology import Topology
from nemeses.base import Availability, FaultContext, FaultSpec, Shape, Target
from nemeses.reservations import FaultSkippedError

MIRROR_ROLES: tuple[str, ...] = ("any", "all")
MIRROR_NEEDS = "a mirror that runs in containers of its own"


def mirror_targets(shape: Shape, roles: tuple[str, ...]) -> tuple[Target, ...]:
    """One process drawn, or all of them; nothing without a mirror."""
    if shape.mirror_nodes < 1:
        return ()
    return tuple(Target("mirror", role) for role in roles if role == "any" or shape.mirror_nodes > 1)


def mirror_params(rng: Random) -> dict[str, Any]:
    """Which of the processes."""
    return {"pick": rng.randrange(1_000_000)}


def mirror_available(topology: Topology) -> Availability:
    """Whether the mirror has containers."""
    if not topology.mirrors:
        return Availability(False, "no mirror runs")
    if not any(mirror.nodes() for mirror in topology.mirrors):
        return Availability(False, f"mirror {topology.mirrors[0].name} has no container of its own")
    return Availability(True)


def reserve_mirror_nodes(context: FaultContext, spec: FaultSpec) -> Sequence[Node]:
    """The processes that the role selects, running and held for this fault.

    Raises: FaultSkippedError when there is none, or another fault holds one.
    """
    nodes = [node for mirror in context.topology.mirrors for node in mirror.nodes()]
    nodes.sort(key=lambda node: node.name)
    if not nodes:
        raise FaultSkippedError("the mirror has no process")
    if spec.role != "all":
        nodes = [nodes[int(spec.params.get("pick", 0)) % len(nodes)]]
    context.reservations.take(spec.fault_id, [node.name for node in nodes])
    idle = [f"{node.name} is {state}" for node in nodes if (state := node.state()) is not NodeState.RUNNING]
    if idle:
        raise FaultSkippedError(f"the mirror does not run: {', '.join(idle)}")
    return nodes
