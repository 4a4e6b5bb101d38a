"""The named steps of the life cycle. Each can be a crash point, so that a kill at every step can be tested."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final, NoReturn

_LOG = logging.getLogger(__name__)

KILLED: Final = 137  # the exit code of a process that was killed with SIGKILL

CRASHED: Final = "crash point"  # in the log, with the step
START, STOP, RECONCILE = "prepare.", "stop.", "reconcile."
"""Name prefixes of the steps of a start, of a stop and of the cut after an unclean election."""

STEPS: Final = (
    "prepare.place",
    "prepare.in_sync",
    "prepare.led",
    "prepare.cut",
    "prepare.leveled",
    "prepare.stored",
    "stop.carry_on",
    "stop.hold",
    "stop.leveled",
    "stop.cut",
    "stop.offset_stored",
    "stop.transactions",
    "stop.reset_record",
    "stop.tail_leveled",
    "stop.reassigned",
    "stop.led_elsewhere",
    "stop.unguarded",
    "stop.stored",
    "reconcile.found",
    "reconcile.raised",
    "reconcile.cut",
    "reconcile.leveled",
    "reconcile.stored",
)


def steps_of(prefix: str) -> tuple[str, ...]:
    """The steps with this prefix, in order."""
    return tuple(step for step in STEPS if step.startswith(prefix))


def kill_process() -> NoReturn:
    """End at once by SIGKILL: nothing is closed or reported."""
    os._exit(KILLED)


class CrashPoints:
    """Kills this process when a named step is reached. at: the step, or nothing."""

    def __init__(self, at: str = "", *, kill: Callable[[], NoReturn] = kill_process) -> None:
        self.at = at
        self._kill = kill

    def reached(self, step: str) -> None:
        """A step is done. Raises ValueError for an unknown one."""
        if step not in STEPS:
            raise ValueError(f"{step!r} is not a step; there are {', '.join(STEPS)}")
        _LOG.debug("step %s", step)
        if step == self.at:
            _LOG.warning("%s %s", CRASHED, step)
            self._kill()
