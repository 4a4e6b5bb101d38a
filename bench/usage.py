"""CPU time and peak memory of containers, from /proc: each holds one process, whose threads and children count with it.

Read on the machine that the engine runs on. Peak memory is the process's resident set at its largest, mapped files
included.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.clusters.kafka.nodes import ContainerNode
from harness.core.errors import EngineError

_TICKS = os.sysconf("SC_CLK_TCK")
_FIELDS_BEFORE_UTIME = 11  # of /proc/PID/stat, counted behind the command's name in brackets


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time since the start, and the largest resident set in MB, summed over containers."""

    cpu_s: float
    peak_mb: float


def usage(nodes: Iterable[ContainerNode]) -> Usage:
    """What these containers have used until now. Raises: EngineError for one that does not run here."""
    found = [_usage(node) for node in nodes]
    return Usage(sum(one.cpu_s for one in found), sum(one.peak_mb for one in found))


def _usage(node: ContainerNode) -> Usage:
    state = (node.inspect() or {}).get("State", {})
    process = Path("/proc") / str(state.get("Pid", 0))
    try:
        numbers = (process / "stat").read_text().rpartition(")")[2].split()
        peak = re.search(r"^VmHWM:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE)
    except OSError as error:
        raise EngineError(
            f"{node.name} has no process on this machine ({error}): measure where the engine runs, while it runs"
        ) from error
    times = numbers[_FIELDS_BEFORE_UTIME : _FIELDS_BEFORE_UTIME + 4]  # user, system, those of ended children
    return Usage(sum(map(int, times)) / _TICKS, int(peak[1]) / 1024 if peak else 0.0)
