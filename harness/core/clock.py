"""The one clock of a run: monotonic nanoseconds since the run began, the same for all clusters."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time and of sleep, so that pure logic runs in tests without waiting."""

    def now_ns(self) -> int:
        """Nanoseconds since the run began."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds."""
        ...


class MonotonicClock:
    """The host's monotonic clock, counted from the object's creation."""

    def __init__(self) -> None:
        self._start = time.monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since this clock was made."""
        return time.monotonic_ns() - self._start

    def sleep(self, seconds: float) -> None:
        """Sleep in real time."""
        time.sleep(seconds)
