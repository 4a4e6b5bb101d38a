"""`python -m mirrors.reference.server CONFIG.json`: one mirror process, until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import signal
import sys
from pathlib import Path

import uvloop

from harness.core.errors import EXIT_USAGE, ShatterError
from mirrors.reference.server.process import MirrorProcess
from mirrors.reference.server.settings import read_settings


async def _run(path: Path) -> None:
    process = MirrorProcess(read_settings(path))
    running = asyncio.create_task(process.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def main() -> int:
    """The exit code: 0 when it was asked to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    faulthandler.register(signal.SIGQUIT)  # thread dumps after a wait that timed out, as a JVM prints them
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m mirrors.reference.server CONFIG.json\n")
        return EXIT_USAGE
    try:
        uvloop.run(_run(Path(sys.argv[1])))
    except ShatterError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
