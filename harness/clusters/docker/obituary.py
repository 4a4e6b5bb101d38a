"""Describes a container that ended: how, and the lines of its log that say why, in one sentence."""

from __future__ import annotations

import re
import signal

from harness.core.plain import plain

_WORTH: re.Pattern[str] = re.compile(r"\b(ERROR|FATAL|panic|OutOfMemoryError)\b|Exception\b|\berror: ", re.MULTILINE)
_TRACE: re.Pattern[str] = re.compile(r"^\s*(at |\.\.\. \d+ more)")
_LINES = 3
_LENGTH = 300
_SIGNALLED = 128


def obituary(name: str, exit_code: int | None, log: str, *, no_memory: bool = False) -> str:
    """`A-broker-1 ended by itself with exit code 1; its log says: …`: up to three lines, of errors, else the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not _TRACE.match(line)]
    telling = [line for line in lines if _WORTH.search(line)] or lines[-1:]
    shown = [plain(line if len(line) <= _LENGTH else f"{line[:_LENGTH]}…") for line in dict.fromkeys(telling)]
    says = f"; its log says: {' / '.join(shown[-_LINES:])}" if shown else "; its log is empty"
    return f"{name} {_end(exit_code, no_memory=no_memory)}{says}"


def _end(exit_code: int | None, *, no_memory: bool) -> str:
    if no_memory:
        return "was killed by the kernel, because there was no memory left; give it more, or start fewer brokers"
    if exit_code is None:
        return "has ended"
    if exit_code > _SIGNALLED:
        try:
            sent = signal.Signals(exit_code - _SIGNALLED).name
        except ValueError:
            return f"ended by itself with exit code {exit_code}"
        return f"was ended by {sent} (exit code {exit_code}) from outside, or by the kernel for lack of memory"
    return f"ended by itself with exit code {exit_code}"
