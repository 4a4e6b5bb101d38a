"""A dry run of a scenario, which shows the mirrors that it will start and stop, and its moments."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.run.moments import END, Moments
from harness.run.scenarios import Route, Scenario
from harness.topology.mirror import Cut


@dataclass(kw_only=True)
class Rehearsed:
    """What a scenario does, in order. started, stopped: routes of mirrors; moments: names, ending with `end`."""

    started: list[Route] = field(default_factory=list)
    stopped: list[Route] = field(default_factory=list)
    moments: list[str] = field(default_factory=list)


class _Rehearsal:
    """Implements harness.run.scenarios.ScenarioSteps and only records the calls."""

    def __init__(self) -> None:
        self.seen = Rehearsed()
        self._names = Moments()

    def settle(self) -> None:
        """See ScenarioSteps."""
        self._comes_to("settle")

    def stop_mirror(self, source: str, destination: str) -> Cut:
        """See ScenarioSteps."""
        route = (source, destination)
        self.seen.stopped.append(route)
        self._comes_to("stop", route)
        self._comes_to("stopping", route)
        return Cut({})

    def start_mirror(self, source: str, destination: str) -> None:
        """See ScenarioSteps."""
        route = (source, destination)
        self.seen.started.append(route)
        self._comes_to("start", route)
        self._comes_to("truncation", route)

    def write(self, cluster: str, *, seconds: float) -> None:
        """See ScenarioSteps."""
        self._comes_to("write", cluster)

    def work(self, *, seconds: float) -> None:
        """See ScenarioSteps."""
        self._comes_to("work")

    def move(self, cluster: str) -> None:
        """See ScenarioSteps."""
        self._comes_to("move", cluster)

    def moment(self, name: str) -> None:
        """See ScenarioSteps."""
        self._comes_to(name)

    def _comes_to(self, step: str, place: Route | str = "") -> None:
        self.seen.moments.append(self._names.next(step, place))


def rehearse(scenario: Scenario) -> Rehearsed:
    """What the scenario's steps will do."""
    rehearsal = _Rehearsal()
    scenario.steps(rehearsal)
    rehearsal.seen.moments.append(END)
    return rehearsal.seen
