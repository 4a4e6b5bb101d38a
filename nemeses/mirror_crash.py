"""`mirror-crash`: the mirror's process kills itself at a named step of its work, and is restarted.

A kill at a random moment hardly ever hits the critical moments: between the cut and storing it, between the
reassignment and the new leader. The mirror defines the steps (`crash_steps` in its entry of the registry): those of a
start, of a stop, and of the cut after an unclean election on the source. The crash point is set from the start of the
load on, until the process has died there or the scenario is over; a stop and a failback are in the scenario.

It proves: the container ended, with the step as the last word of its log. It cannot see what the process had sent and
nobody had received yet. If the step is never reached, the fault did not bite, and the run reports that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError, MirrorError
from harness.topology.clusters import Node, NodeState
from harness.topology.mirror import Crashable
from harness.topology.topology import Topology
from mirrors import REGISTRY as MIRRORS
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

MOST_S = 24 * 3600.0  # armed for the whole run: its end cuts the wait short
POLL_S = 0.1
STAYS_UP_S = 1.5

STEPS = tuple(dict.fromkeys(step for mirror in MIRRORS.values() for step in mirror.crash_steps.names))


class MirrorCrash(Nemesis):
    """See the module."""

    name = "mirror-crash"
    description = "the mirror's process dies at a named step of a stop, a start or a cut, and is restarted"
    kind: NemesisKind = "mirror"
    clusters: tuple[str, ...] = ("mirror",)
    roles: tuple[str, ...] = ("all",)
    needs = "a mirror with named steps (reference) that the run reaches: a scenario that stops or starts it"
    timing = Timing(least_s=0, most_s=0, settle_s=0, whole_run=True)
    choices: Mapping[str, tuple[str, ...]] = {"step": STEPS, "route": ("A-B", "B-A", "B-C")}
    color = "#8c564b"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """The first process of the mirror that reaches the step."""
        return (Target("mirror", "all"),) if shape.crash_points else ()

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Which step of which mirror."""
        return dict(rng.choice(shape.crash_points))

    def available(self, topology: Topology) -> Availability:
        """Where the mirror has crash points."""
        if any(isinstance(mirror, Crashable) for mirror in topology.mirrors):
            return Availability(True)
        return Availability(False, f"{', '.join(m.name for m in topology.mirrors) or 'no mirror'} has no crash points")

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Set the crash point, also in mirrors and processes that start later, until one has died there."""
        step, route = str(spec.params["step"]), str(spec.params["route"])
        context.undo.push("start what crashed", lambda: _start_stopped(context.topology, route))
        context.undo.push(f"clear crash point {step}", lambda: _set(context.topology, route, step, on=False))
        context.began(f"mirror {route} at {step}", dict(spec.params))

        def died() -> Sequence[Node] | None:
            found = [node for mirror in _mirrors(context.topology, route) for node in mirror.crashed_at(step)]
            if not found:
                _set(context.topology, route, step, on=True)
            return found or None

        nodes = context.wait(
            died,
            timeout_s=MOST_S,
            what=f"mirror {route} to reach step {step}",
            interval_s=POLL_S,
            swallow=(MirrorError,),
        )
        names = ", ".join(node.name for node in nodes)
        seen = f"{names} died at step {step} of mirror {route}: the last word of its log"
        return Injected(
            spec=spec,
            target=names,
            nodes=[node.name for node in nodes],
            bite=Bite(yes=True, seen=seen),
            state={"nodes": nodes},
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Start the dead process, and check that it stays up for a moment."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        context.clock.sleep(STAYS_UP_S)
        nodes: Sequence[Node] = injected.state["nodes"]
        down = [f"{node.name} is {state}" for node in nodes if (state := node.state()) is not NodeState.RUNNING]
        if down:
            raise FaultError(f"the mirror did not stay up: {', '.join(down)}; see its log")
        return f"{', '.join(injected.nodes)} runs again"


def _mirrors(topology: Topology, route: str) -> list[Crashable]:
    """The current mirrors of a route: a scenario creates some of them late."""
    return [m for m in list(topology.mirrors) if isinstance(m, Crashable) and f"{m.source}-{m.destination}" == route]


def _set(topology: Topology, route: str, step: str, *, on: bool) -> None:
    for mirror in _mirrors(topology, route):
        mirror.crash_at(step, on=on)


def _start_stopped(topology: Topology, route: str) -> None:
    for mirror in _mirrors(topology, route):
        for node in mirror.nodes():
            if node.state() is NodeState.STOPPED:
                node.start()
