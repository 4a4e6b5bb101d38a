"""The order of phases between the load and the final reads: one function per scenario, and the registry.

A *route* is (source, destination), two cluster letters: one mirror. Routes that exist from the start mirror the load
under faults; a scenario starts the others itself. The load's clients are still at work when the steps begin: a region
fails while it is used, so a failover stops the mirror under them, with transactions open and writes above the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.topology.mirror import Cut

Route = tuple[str, str]

WRITE_S = 5.0
OVERLAP_S = 1.0
"""How long clients go on writing to a cluster whose mirror was stopped, before they move."""


class ScenarioSteps(Protocol):
    """What a scenario may do with a running test; each step is bounded and recorded."""

    def settle(self) -> None:
        """End the clients; wait until every running mirror has caught up, or the limit is over.

        What is still missing then is noted.
        """
        ...

    def stop_mirror(self, source: str, destination: str) -> Cut:
        """Stop a mirror: its destination becomes writable. The cut is recorded per partition. Clients go on."""
        ...

    def start_mirror(self, source: str, destination: str) -> None:
        """Start a mirror (again) and wait until a probe record is mirrored on every partition, or the limit is over.

        What was not mirrored by then is noted, and the scenario goes on.
        """
        ...

    def write(self, cluster: str, *, seconds: float) -> None:
        """End the clients, wherever they are, and run new ones against one cluster, without faults; mirrors go on."""
        ...

    def work(self, *, seconds: float) -> None:
        """Let the clients go on where they are."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scenario. routes: from the start; later: those that its steps start, with what the mirror must be able to."""

    name: str
    about: str
    steps: Callable[[ScenarioSteps], None]
    routes: tuple[Route, ...] = (("A", "B"),)
    later: tuple[Route, ...] = ()

    @property
    def clusters(self) -> tuple[str, ...]:
        """Letters of all clusters."""
        return tuple(sorted({letter for route in (*self.routes, *self.later) for letter in route}))

    @property
    def reached(self) -> tuple[str, ...]:
        """Letters of the clusters that the load reaches: those of the routes from the start."""
        return tuple(sorted({letter for route in self.routes for letter in route}))

    @property
    def destinations(self) -> frozenset[str]:
        """Letters of the clusters that are mirrored to."""
        return frozenset(destination for _, destination in (*self.routes, *self.later))

    @property
    def fails_back(self) -> bool:
        """Whether a mirror is started in the direction opposite to another."""
        return any((destination, source) in self.routes for source, destination in self.later)


def steady(steps: ScenarioSteps) -> None:
    """The mirror runs to the end: everything on A must arrive on B."""
    steps.settle()


def failover(steps: ScenarioSteps) -> None:
    """The mirror is stopped under working clients, which then move to B; what was not mirrored is lag (RPO)."""
    _fail_over(steps)


def _fail_over(steps: ScenarioSteps) -> None:
    steps.stop_mirror("A", "B")
    steps.work(seconds=OVERLAP_S)
    steps.write("B", seconds=WRITE_S)


def failback(steps: ScenarioSteps) -> None:
    """A failover; then B is mirrored back over A's old log while clients write to B: A must become identical to B."""
    _fail_over(steps)
    steps.start_mirror("B", "A")
    steps.write("B", seconds=WRITE_S)
    steps.settle()


def failover_failback(steps: ScenarioSteps) -> None:
    """A failback; then, with everything mirrored, the mirror from B to A is stopped and the clients move back to A."""
    failback(steps)
    steps.stop_mirror("B", "A")
    steps.write("A", seconds=WRITE_S)


def round_trip(steps: ScenarioSteps) -> None:
    """Failover, failback and again: after the clients are back on A, A is mirrored over B, whose log must follow."""
    failover_failback(steps)
    steps.start_mirror("A", "B")
    steps.write("A", seconds=WRITE_S)
    steps.settle()


def chain(steps: ScenarioSteps) -> None:
    """A is mirrored to B and B to C; clients move to B while its mirror to C goes on, and in the end to C."""
    _fail_over(steps)
    steps.settle()
    steps.stop_mirror("B", "C")
    steps.write("C", seconds=WRITE_S)


def _scenario(steps: Callable[[ScenarioSteps], None], **routes: tuple[Route, ...]) -> Scenario:
    about = (steps.__doc__ or "").strip().split("\n")[0].rstrip(".")
    return Scenario(name=steps.__name__.replace("_", "-"), about=about, steps=steps, **routes)


_BACK: Route = ("B", "A")

REGISTRY: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _scenario(steady),
        _scenario(failover),
        _scenario(failback, later=(_BACK,)),
        _scenario(failover_failback, later=(_BACK,)),
        _scenario(round_trip, later=(_BACK,)),
        _scenario(chain, routes=(("A", "B"), ("B", "C"))),
    )
}
"""Name → scenario."""
