"""A dry run of a scenario, which shows the mirrors that it will start and stop."""

from __future__ import annotations

from harness.run.scenarios import Route, Scenario
from harness.topology.mirror import Cut


class _Rehearsal:
    """Implements harness.run.scenarios.ScenarioSteps and only records the calls."""

    def __init__(self) -> None:
        self.started: list[Route] = []
        self.stopped: list[Route] = []

    def settle(self) -> None:
        """See ScenarioSteps."""

    def stop_mirror(self, source: str, destination: str) -> Cut:
        """See ScenarioSteps."""
        self.stopped.append((source, destination))
        return Cut({})

    def start_mirror(self, source: str, destination: str) -> None:
        """See ScenarioSteps."""
        self.started.append((source, destination))

    def write(self, cluster: str, *, seconds: float) -> None:
        """See ScenarioSteps."""

    def work(self, *, seconds: float) -> None:
        """See ScenarioSteps."""


def mirrors_moved(scenario: Scenario) -> tuple[tuple[Route, ...], tuple[Route, ...]]:
    """(routes that the scenario's steps start, routes that they stop), each in order."""
    rehearsal = _Rehearsal()
    scenario.steps(rehearsal)
    return tuple(dict.fromkeys(rehearsal.started)), tuple(dict.fromkeys(rehearsal.stopped))
