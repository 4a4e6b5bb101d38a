"""Work that is done again and again until the process ends, whatever went wrong the last time."""

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
    """Do it, wait, do it again; until cancelled.

    every_s: how long to wait, or what tells that each time. hurry: ends a wait.
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
