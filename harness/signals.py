"""Ctrl-C, SIGTERM and SIGHUP (a closed terminal): the first ends the load in good order, the second hurries.

The first signal raises KeyboardInterrupt in the main thread, so that whatever it waits for ends. While something
runs that must not be cut (healing, capture, teardown), signals are only counted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Counts signals and raises on them, except while shielded. Use in the main thread."""

    def __init__(self, *, say: Callable[[str], None] = lambda _text: None) -> None:
        self.count = 0
        self.stop = threading.Event()
        self._shield = 0
        self._say = say

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handle these signals within the block; outside the main thread it does nothing. A SIGHUP that is ignored (by
        `nohup`) stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Within the block a signal is counted, not raised."""
        self._shield += 1
        try:
            yield
        finally:
            self._shield -= 1

    @property
    def hurried(self) -> bool:
        """Whether the user asked twice: leave out what may be left out."""
        return self.count >= 2

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.stop.set()
        name = signal.Signals(number).name
        if self._shield:
            self._say(f"{name}: still cleaning up; a second one leaves out the capture of evidence")
            return
        self._say(f"{name}: ending the run: healing, saving what was recorded, taking everything down")
        raise KeyboardInterrupt
