"""The named steps of the life cycle. Each can be a crash point, so that a kill at every step can be tested."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

_LOG = logging.getLogger(__name__)

KILLED: Final = 137  # the exit code of a process that was killed with SIGKILL

CRASHED: Final = "crash point"  # in the log, with the step
START, STOP, RECONCILE = "prepare.", "stop.", "reconcile."
"""Name prefixes of the steps of a start, of a stop and of the cut after an unclean election."""

ABOUT: Final[Mapping[str, str]] = {
    "prepare.place": "The partition is about to be led by the mirror: its replica set is changed next.",
    "prepare.in_sync": "The mirror is in the ISR of a partition that a real broker leads, not yet its leader.",
    "prepare.led": "The mirror leads the partition and knows where its followers' logs end.",
    "prepare.cut": "The log is truncated to the last mirrored offset of the earlier direction.",
    "prepare.leveled": "All in-sync followers have truncated and are equal.",
    "prepare.stored": "MIRRORING is stored; the first fetch of the source follows.",
    "stop.carry_on": "The stop was requested; transactions that are open on the source are mirrored to their end.",
    "stop.hold": "Nothing new is mirrored; followers still fetch what another one has.",
    "stop.leveled": "All in-sync followers end at the same offset.",
    "stop.cut": "The log is truncated where the design says (`on_stop`).",
    "stop.offset_stored": "The last mirrored offset and epoch, to which a failback truncates, are stored.",
    "stop.transactions": "An ABORT marker is written for each transaction that is still open.",
    "stop.reset_record": "The PID reset record is written.",
    "stop.tail_leveled": "All in-sync followers have these records.",
    "stop.reassigned": "The reassignment to real brokers is requested.",
    "stop.led_elsewhere": "A real broker leads the partition.",
    "stop.unguarded": "Clients may write to the topic.",
    "stop.stored": "STOPPED is stored.",
    "reconcile.found": "After an unclean election the source's log is found to have ended an epoch earlier.",
    "reconcile.raised": "The partition has a new leader epoch, so that every follower can tell the logs apart.",
    "reconcile.cut": "The log is truncated to where both logs agree by epoch.",
    "reconcile.leveled": "All in-sync followers have truncated and are equal.",
    "reconcile.stored": "The source's epochs are stored; mirroring goes on.",
}
"""Step → what has been done when it is reached."""

STEPS: Final = tuple(ABOUT)


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
