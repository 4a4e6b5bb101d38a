"""The undo stack of one fault: the undo of each act, registered before the act, run in reverse order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from harness.core.errors import FaultError


class _Step(NamedTuple):
    what: str
    action: Callable[[], object]


class UndoStack:
    """Thread-safe. A step that succeeded is removed; one that failed stays for another try."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._steps: list[_Step] = []
        self._all: list[_Step] = []
        self._closed = False

    def push(self, what: str, action: Callable[[], object]) -> None:
        """Register how to undo the next act. The action must be harmless when nothing was done.

        Raises: FaultError after `close`: the fault was given up and must not act any more.
        """
        with self._lock:
            if self._closed:
                raise FaultError(f"the fault was given up before it could be injected ({what} would be its undo)")
            self._steps.append(_Step(what, action))
            self._all.append(self._steps[-1])

    def close(self) -> None:
        """Refuse further acts: for a fault whose thread is stuck and may wake up later."""
        with self._lock:
            self._closed = True

    def run(self) -> list[str]:
        """Undo everything, last act first; an error in one step does not stop the others. Returns the errors."""
        errors = []
        with self._lock:
            for step in list(reversed(self._steps)):
                try:
                    step.action()
                except Exception as error:
                    errors.append(f"cannot {step.what}: {error}")
                else:
                    self._steps.remove(step)
        return errors

    @property
    def closed(self) -> bool:
        """Whether further acts are refused."""
        return self._closed

    def run_again(self) -> list[str]:
        """Undo everything that was ever registered again: for an act that took effect after its undo."""
        with self._lock:
            self._steps = list(self._all)
            return self.run()

    def __len__(self) -> int:
        return len(self._steps)
