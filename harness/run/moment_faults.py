"""Faults at a scenario's moments: heals and injects them as the scenario comes to each, and while a step lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from harness.core.errors import ShatterError
from harness.history.ops import Phase
from harness.run.moments import Moments
from harness.run.scenarios import Route
from harness.run.state import Stage
from harness.topology.mirror import Mirror, PartitionState
from nemeses.engine.outcomes import FaultOutcome

_LOOK_S: Final = 0.05
_END_S: Final = 200.0  # for a watching thread to end: injection is bounded by the conductor


class MomentFaults:
    """Names the moments as the rehearsal did. Does nothing before the load, and at moments without faults."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names = Moments()

    def come_to(self, step: str, place: Route | str = "") -> None:
        """The moment before a step: heal what lasts until it, inject what begins at it, wait for both."""
        name, stage = self._names.next(step, place), self._stage
        if not self._due(name):
            return
        assert stage.waiting is not None
        heals = stage.waiting.ending(name)
        with stage.phase(Phase.HEAL if heals else Phase.SCENARIO, f"faults at {name}"):
            for error in stage.waiting.reach(name):
                stage.note(error)
            mine = [o for o in stage.waiting.outcomes() if name in (o.spec.at_step, o.spec.until)]
            stage.display.say("; ".join(_words(outcome) for outcome in mine))

    def skip(self, step: str, place: Route | str = "") -> None:
        """A moment that does not come, because its step was left out: later ones keep their names."""
        self._names.next(step, place)

    @contextmanager
    def within(self, step: str, route: Route, mirror: Mirror, state: PartitionState) -> Iterator[None]:
        """A moment within a step: when the mirror first describes a partition in this state. If it never does, the
        moment does not come."""
        name = self._names.next(step, route)
        if not self._due(name):
            yield
            return
        over = threading.Event()
        watching = threading.Thread(
            target=self._watch, args=(name, mirror, state, over), name=f"moment {name}", daemon=True
        )
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join(_END_S)

    def _watch(self, name: str, mirror: Mirror, state: PartitionState, over: threading.Event) -> None:
        waiting = self._stage.waiting
        assert waiting is not None
        while not over.wait(_LOOK_S):
            with suppress(ShatterError):  # one that does not answer now is asked again
                if any(status.state is state for status in mirror.describe()):
                    for error in waiting.reach(name):
                        self._stage.note(error)
                    return

    def _due(self, name: str) -> bool:
        waiting = self._stage.waiting
        return waiting is not None and (waiting.beginning(name) or waiting.ending(name))


def _words(outcome: FaultOutcome) -> str:
    bit = "" if outcome.bit is None else ", it bit" if outcome.bit else ", it did not bite"
    return f"{outcome.spec.nemesis} on {outcome.target or outcome.spec.cluster}: {outcome.state}{bit}"
