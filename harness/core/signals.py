"""Ctrl-C, SIGTERM and SIGHUP (a closed terminal): the first ends the work, the second skips what may be skipped.

Signals are counted. Where work may be interrupted (`exposed`), the first also raises KeyboardInterrupt in the main
thread, so that any wait there ends; it is raised only once, so that a second signal does not interrupt the clean-up.
A handler writes to the file descriptor directly, because it may run in the middle of a print.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tell(text: str, *, to: int = 2) -> None:
    """Write one line to a file descriptor; below a bar that is drawn there. Safe in a signal handler."""
    with suppress(OSError):
        below = "\n\x1b[?25h" if os.isatty(to) else ""  # and the cursor shown again
        os.write(to, f"{below}{text}\n".encode(errors="backslashreplace"))


class Interrupts:
    """Counts signals, and raises on the first where allowed. Use in the main thread. first: the name of the first."""

    def __init__(self, *, say: Callable[[str], None] = tell) -> None:
        self.count = 0
        self.first = "an interrupt"
        self._exposed: str | None = None
        self._spared = 0
        self._say = say

    @contextmanager
    def installed(self, *, ignored: frozenset[signal.Signals] = frozenset({signal.SIGHUP})) -> Iterator[Interrupts]:
        """Handle these signals within the block; outside the main thread it does nothing.

        ignored: signals that stay ignored where they already are, as SIGHUP is under `nohup`.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        heard = [n for n in SIGNALS if n not in ignored or signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in heard}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def exposed(self, what: str, *, spared: int = 0) -> Iterator[None]:
        """Within the block the first signal raises KeyboardInterrupt, and so does one that was counted before.

        what: what happens then, printed after the signal's name. spared: this many signals in all are only counted.
        """
        if self.count > spared:
            raise KeyboardInterrupt
        self._exposed, self._spared = what, spared
        try:
            yield
        finally:
            self._exposed = None

    def raise_if_any(self) -> None:
        """Raise KeyboardInterrupt when a signal has come, even where Python dropped what its handler raised."""
        if self.count:
            raise KeyboardInterrupt

    @property
    def hurried(self) -> bool:
        """Whether the user asked twice: leave out what may be left out."""
        return self.count >= 2

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.first = signal.Signals(number).name if self.count == 1 else self.first
        name, exposed = signal.Signals(number).name, self._exposed
        if exposed is None or self.count <= self._spared:
            rest = "; evidence that is not copied yet is left out" if self.hurried else ", then the command ends"
            self._say(f"{name}: still cleaning up{rest}")
            return
        self._exposed = None
        self._say(f"{name}: {exposed}")
        raise KeyboardInterrupt
