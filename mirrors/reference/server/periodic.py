"""Work that is repeated until the process ends, even after errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from harness.core.errors import MirrorError
from harness.wire.frames import WireError

_LOG = logging.getLogger(__name__)


async def keep(
    what: str,
    every_s: float | Callable[[], float],
    work: Callable[[], Awaitable[None]],
    *,
    hurry: asyncio.Event | None = None,
) -> None:
    """Repeat the work, with a wait in between, until cancelled.

    every_s: how long to wait, or a function that returns it each time. hurry: ends a wait.
    """
    hurry = hurry or asyncio.Event()
    while True:
        hurry.clear()
        try:
            await work()
        except (WireError, MirrorError, TimeoutError) as error:
            _LOG.info("%s: %s", what, error)
        except Exception:
            _LOG.exception("%s", what)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every_s() if callable(every_s) else every_s):
                await hurry.wait()
