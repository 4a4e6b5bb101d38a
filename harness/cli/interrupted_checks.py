"""Ctrl-C, SIGTERM or SIGHUP while a stored history is judged: the command prints one line, cleans up, ends in seconds.

Nothing of a check is worth saving, and Spark may take half a minute to end a job gracefully. So its processes are
killed, what this process made on the disk is removed, and the process ends at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from harness.core.errors import EXIT_UNKNOWN
from harness.core.owners import REMEMBERED
from harness.core.signals import SIGNALS, tell

_GONE_S = 2.0


@contextmanager
def cut_short(what: str, *, last: Callable[[], int] = lambda: EXIT_UNKNOWN) -> Iterator[None]:
    """Within the block a signal ends the process. what: `the check of runs/x`.

    last: called just before the end, to write what must be written; returns the exit code, which is 2 when it fails.
    Outside the main thread, or where a signal is ignored (nohup), nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminal = os.dup(2)  # while Spark starts, the JVM's stderr goes elsewhere

    def handle(number: int, _frame: FrameType | None) -> None:
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        tell(f"{signal.Signals(number).name}: {what} was cut short, nothing of it is kept", to=terminal)
        kill_descendants(os.getpid())
        _reap()
        REMEMBERED.remove_all()
        code = EXIT_UNKNOWN
        try:
            os.dup2(terminal, 2)
            code = last()
        except Exception as error:
            tell(f"error: {type(error).__name__}: {error}", to=terminal)
        os._exit(code)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(terminal)


def _reap() -> None:
    """Wait until the children that were killed are gone, so that nothing is written any more."""
    deadline = time.monotonic() + _GONE_S
    with suppress(OSError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)


def kill_descendants(pid: int) -> None:
    """End the processes that this one started, and theirs, the nearest first."""
    for child in children(pid):
        below = children(child)  # known before they are orphans
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        for other in below:
            kill_descendants(other)
            with suppress(OSError):
                os.kill(other, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The living child processes of a process (Linux; none elsewhere)."""
    if sys.platform != "linux":
        return []
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in task.read_text().split()]
    return found
