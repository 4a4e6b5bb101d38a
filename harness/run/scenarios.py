"""The order of phases between the load and the final reads: one function per scenario, and the registry.

A *route* is (source, destination), two cluster letters: one mirror. Routes that exist from the start mirror the load
under faults; a scenario starts the others itself. The load's clients are still at work when the steps begin: a region
fails while it is used, so a failover stops the mirror under them, with transactions open and writes above the cut.

A *moment* is a named point of a scenario at which faults can begin, and others be healed (harness.run.moments). Faults
of the load are healed before the scenario; those of a moment last beyond it. A scenario with a disaster has the moments
`disaster`, when a cluster goes down or out of reach while it is used, and `return`, when it is there again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.topology.mirror import Cut

Route = tuple[str, str]

WRITE_S = 5.0
OVERLAP_S = 1.0
"""How long clients go on writing to a cluster whose mirror was stopped, before they move."""

DISASTER, RETURN = "disaster", "return"
"""Moments: a cluster goes down, or out of the mirror's reach, and is there again."""


class ScenarioSteps(Protocol):
    """What a scenario may do with a running test; each step is bounded and recorded."""

    def settle(self) -> None:
        """End the clients; wait until every running mirror has caught up, or the limit is over.

        What is still missing then is noted.
        """
        ...

    def stop_mirror(self, source: str, destination: str) -> Cut:
        """Stop a mirror: its destination becomes writable. The cut is recorded per partition. Clients go on.

        A stop that is refused, or does not end, is recorded, and the scenario goes on; its cut is empty.
        """
        ...

    def start_mirror(self, source: str, destination: str) -> None:
        """Start a mirror (again) and wait until a probe record is mirrored on every partition, or the limit is over.

        What was not mirrored by then is noted, and the scenario goes on. It is not started while its opposite runs.
        """
        ...

    def write(self, cluster: str, *, seconds: float) -> None:
        """End the clients, wherever they are, and run new ones against one cluster, without faults; mirrors go on."""
        ...

    def work(self, *, seconds: float) -> None:
        """Let the clients go on where they are."""
        ...

    def move(self, cluster: str) -> None:
        """End the clients, wherever they are, and start new ones against one cluster; they go on."""
        ...

    def moment(self, name: str) -> None:
        """A moment of the scenario's own: faults that last until it are healed, those that begin at it are injected."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One scenario.

    routes: from the start; later: those that its steps start, with what the mirror must be able to. one_way: the steps
    with a mirror that cannot mirror back; None: it needs one that can. struck: the cluster that its disaster hits.
    """

    name: str
    about: str
    steps: Callable[[ScenarioSteps], None]
    routes: tuple[Route, ...] = (("A", "B"),)
    later: tuple[Route, ...] = ()
    one_way: Callable[[ScenarioSteps], None] | None = None
    struck: str = ""

    def with_mirror(self, *, fails_back: bool) -> Scenario:
        """The scenario as it is with a mirror that can mirror back, or cannot."""
        if fails_back or self.one_way is None:
            return self
        return dataclasses.replace(self, steps=self.one_way, later=(), one_way=None)

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


def disaster(steps: ScenarioSteps) -> None:
    """A goes down, or out of the mirror's reach, under load and stays so through the failover; then it is mirrored to.

    With a mirror that cannot mirror back, A comes back, and the run ends with the final reads of both clusters.
    """
    disaster_one_way(steps)
    steps.start_mirror("B", "A")
    steps.write("B", seconds=WRITE_S)
    steps.settle()


def disaster_one_way(steps: ScenarioSteps) -> None:
    """See `disaster`."""
    steps.moment(DISASTER)
    steps.stop_mirror("A", "B")
    steps.work(seconds=OVERLAP_S)
    steps.write("B", seconds=WRITE_S)
    steps.moment(RETURN)


def disaster_failback(steps: ScenarioSteps) -> None:
    """A failover; then B goes down, or out of reach, while it is mirrored back to A, which takes over; then B follows.

    The stop of the mirror from B to A and the move of the clients to A find B gone. When it is back, A is mirrored to
    it, and what only B has must be discarded.
    """
    _fail_over(steps)
    steps.start_mirror("B", "A")
    steps.move("B")
    steps.work(seconds=WRITE_S)
    steps.moment(DISASTER)
    steps.stop_mirror("B", "A")
    steps.work(seconds=OVERLAP_S)
    steps.write("A", seconds=WRITE_S)
    steps.moment(RETURN)
    steps.start_mirror("A", "B")
    steps.write("A", seconds=WRITE_S)
    steps.settle()


def chain(steps: ScenarioSteps) -> None:
    """A is mirrored to B and B to C; clients move to B while its mirror to C goes on, and in the end to C."""
    _fail_over(steps)
    steps.settle()
    steps.stop_mirror("B", "C")
    steps.write("C", seconds=WRITE_S)


def _scenario(
    steps: Callable[[ScenarioSteps], None],
    *,
    routes: tuple[Route, ...] = (("A", "B"),),
    later: tuple[Route, ...] = (),
    one_way: Callable[[ScenarioSteps], None] | None = None,
    struck: str = "",
) -> Scenario:
    about = (steps.__doc__ or "").strip().split("\n")[0].rstrip(".")
    name = steps.__name__.replace("_", "-")
    return Scenario(name=name, about=about, steps=steps, routes=routes, later=later, one_way=one_way, struck=struck)


_BACK: Route = ("B", "A")

REGISTRY: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _scenario(steady),
        _scenario(failover),
        _scenario(failback, later=(_BACK,)),
        _scenario(failover_failback, later=(_BACK,)),
        _scenario(round_trip, later=(_BACK,)),
        _scenario(disaster, later=(_BACK,), one_way=disaster_one_way, struck="A"),
        _scenario(disaster_failback, later=(_BACK,), struck="B"),
        _scenario(chain, routes=(("A", "B"), ("B", "C"))),
    )
}
"""Name → scenario."""
