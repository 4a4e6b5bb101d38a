"""Shared by the threads of a load: the signal to stop, and figures."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


class StopSignal:
    """Set once, with the deadline for all clients."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._deadline = float("inf")

    def set(self, *, within_s: float) -> None:
        """Ask every client to end within this many seconds."""
        self._deadline = time.monotonic() + within_s
        self._event.set()

    def is_set(self) -> bool:
        """Whether clients are to end."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Sleep, or wake up early when clients are to end. Returns `is_set()`."""
        return self._event.wait(timeout_s)

    def remaining_s(self, *, at_most: float) -> float:
        """Seconds left, never below 0 and never above `at_most`."""
        return max(0.0, min(at_most, self._deadline - time.monotonic()))


@dataclass(slots=True)
class Tally:
    """Figures of one client. Written by its own thread only, read by any."""

    cluster: str
    ok_sends: int = 0
    failed_sends: int = 0
    info_sends: int = 0
    acked_records: int = 0
    ok_polls: int = 0
    polled_records: int = 0
