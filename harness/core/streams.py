"""Standard output and error that never end a command: a closed pipe, a closed terminal, a full disk, a narrow encoding.

Output that cannot be shown is dropped and the command goes on: a run is torn down, and the exit code is the verdict's.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast


class Lasting:
    """A text stream whose `write` and `flush` do not raise. Everything else is the stream's own."""

    def __init__(self, stream: TextIO, *, tell: TextIO | None = None) -> None:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with suppress(OSError, ValueError):
                reconfigure(errors="backslashreplace")
        self._stream = stream
        self._tell = tell
        self.broken = False

    def write(self, text: str) -> int:
        """Write what can be written; returns the length of the text."""
        if not self.broken:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        if not self.broken:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: Exception) -> None:
        """Write nothing more, and discard the buffers, so that the interpreter's exit does not fail."""
        self.broken = True
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        if self._tell is not None and getattr(error, "errno", None) != errno.EPIPE:
            with suppress(OSError, ValueError):
                self._tell.write(f"standard output cannot be written ({error}); the rest is not shown\n")
                self._tell.flush()


def last() -> None:
    """Make standard output and standard error of this process `Lasting`."""
    sys.stderr = cast(TextIO, Lasting(_there(sys.stderr)))
    sys.stdout = cast(TextIO, Lasting(_there(sys.stdout), tell=sys.stderr))


def _there(stream: TextIO | None) -> TextIO:
    """The stream; a sink if it was closed before the command began."""
    return Path(os.devnull).open("w", encoding="utf-8") if stream is None else stream
