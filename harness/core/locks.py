"""A file lock between processes of this machine. The kernel releases it however its owner ends."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from harness.core.wait import wait_until


@contextmanager
def file_lock(
    path: Path, *, what: str, timeout_s: float, waiting: Callable[[], object] | None = None
) -> Iterator[None]:
    """Hold the lock on `path` (created when missing). `waiting` is called once if another process holds it.

    Raises: WaitTimeoutError after `timeout_s`, naming `what`.
    """
    with path.open("w") as file:
        if not _try(file):
            if waiting is not None:
                waiting()
            wait_until(lambda: _try(file), timeout_s=timeout_s, what=f"{what} to finish", interval_s=0.5)
        yield


def _try(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
