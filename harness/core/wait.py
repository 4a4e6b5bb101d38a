"""Bounded waits: every wait has a limit; on time-out it reports what it waited for and what it found instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from harness.core.errors import WaitTimeoutError

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None],
    *,
    timeout_s: float,
    what: str,
    instead: Callable[[], str] | None = None,
    interval_s: float = 0.1,
    swallow: tuple[type[Exception], ...] = (),
) -> T:
    """Call `condition` until it returns something truthy, and return that.

    `what` reads after "waited N s for": "3 brokers of A to be registered". `instead` is called once, at
    the time-out, to say what was there. Exceptions of the types in `swallow` count as "not yet"; the last
    one is named in the error.

    Raises: WaitTimeoutError after `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    last: Exception | None = None
    while True:
        try:
            value = condition()
            if value:
                return value
        except swallow as error:
            last = error
        if time.monotonic() >= deadline:
            break
        time.sleep(min(interval_s, max(0.0, deadline - time.monotonic())))
    found = ""
    if instead is not None:
        try:
            found = f"; instead: {instead()}"
        except Exception as error:
            found = f"; and finding out what was there failed: {error}"
    elif last is not None:
        found = f"; last error: {last}"
    raise WaitTimeoutError(f"waited {timeout_s:g} s for {what}{found}") from last
