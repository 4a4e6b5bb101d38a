"""Work that is done again and again until the process ends, whatever went wrong the last time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from harness.errors import MirrorError
from harness.wire.frames import WireError

_LOG = logging.getLogger(__name__)


async def keep(what: str, every_s: float | Callable[[], float], work: Callable[[], Awaitable[None]]) -> None:
    """Do it, wait, do it again; until cancelled. every_s: how long to wait, or what tells that each time."""
    while True:
        try:
            await work()
        except (WireError, MirrorError, TimeoutError) as error:
            _LOG.info("%s: %s", what, error)
        except Exception:
            _LOG.exception("%s", what)
        await asyncio.sleep(every_s() if callable(every_s) else every_s)
