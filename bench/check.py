"""What a full check costs: the generated history of 1,000,000 lines, judged in a fresh process and Spark session.

Prints `check_1m_seconds N`, `check_1m_cpu_seconds N` (processor time of Python and Java together) and
`check_1m_peak_mib N` (their resident memory together, sampled), and for base offset 1,000,000,000 `check_1m_offset_…`.
With `--large` also 10,000,000 lines, `check_10m_…`; with `--logs` also the log checkers on 10,000,000 stored records of
two clusters with three replicas each, `check_logs_10m_…`. `make bench-check BENCH="--large --logs"` passes them on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import generate_logs
from bench.generate_history import Shape, generate
from harness.core.errors import EXIT_UNKNOWN, EXIT_VALID

_SAMPLE_S = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Of one `shatter check` process and its children: seconds, processor seconds, and peak resident MiB, sampled."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def check(run: Path, *, contract: str | None, master: str) -> Cost:
    """Judge a run folder in a process of its own. Without a contract by the run's own: of logs alone, of which some
    kinds must stay unknown.

    Raises: SystemExit when a history, which is clean, is not judged valid, or logs are judged invalid.
    """
    command = [sys.executable, "-m", "harness.cli.app", "check", str(run), "--master", master, "--json"]
    if contract is not None:
        command += ["--contract", contract]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak, ticks = 0, 0
    while True:
        try:
            output, errors = process.communicate(timeout=_SAMPLE_S)
            break
        except subprocess.TimeoutExpired:
            pages, spent = _family(process.pid)
            peak, ticks = max(peak, pages), max(ticks, spent)
    seconds = time.monotonic() - began
    if process.returncode not in ((EXIT_VALID,) if contract is not None else (EXIT_VALID, EXIT_UNKNOWN)):
        raise SystemExit(f"the clean history was not judged valid:\n{output}\n{errors}")
    return Cost(seconds, ticks / _TICKS, peak * _PAGE / 2**20)


def _family(root: int) -> tuple[int, int]:
    """Resident pages and processor ticks of a process and all below it; ended children count with their parent."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in (path.name for path in Path("/proc").iterdir()):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)] = int(fields[1])
        spent[int(entry)] = sum(int(ticks) for ticks in fields[11:15])
        sizes[int(entry)] = int(fields[21])
    family = {root}
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family} - family
        grown = bool(children)
        family |= children
    return sum(sizes.get(pid, 0) for pid in family), sum(spent.get(pid, 0) for pid in family)


def main() -> None:
    """Parse, generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also 10,000,000 lines")
    parser.add_argument("--logs", action="store_true", help="also the logs of two clusters, 10,000,000 records")
    parser.add_argument("--contract", default="kafka-clean", help="of the histories; logs are judged by their own")
    parser.add_argument("--master", default="local[*]")
    options = parser.parse_args()

    def history(lines: int, base: int) -> Callable[[Path], object]:
        return partial(generate, shape=Shape(lines=lines, base_offset=base))

    cases: list[tuple[str, Callable[[Path], object], str | None]] = [
        ("1m", history(1_000_000, 0), options.contract),
        ("1m_offset", history(1_000_000, 10**9), options.contract),
    ]
    if options.large:
        cases.append(("10m", history(10_000_000, 0), options.contract))
    if options.logs:
        cases.append(("logs_10m", partial(generate_logs.generate, records=10_000_000), None))
    for name, make, contract in cases:
        with tempfile.TemporaryDirectory(prefix="shatter-bench-") as folder:
            make(Path(folder) / name)
            cost = check(Path(folder) / name, contract=contract, master=options.master)
        print(f"check_{name}_seconds {cost.seconds:.1f}", flush=True)
        print(f"check_{name}_cpu_seconds {cost.cpu_seconds:.1f}", flush=True)
        print(f"check_{name}_peak_mib {cost.peak_mib:.0f}", flush=True)


if __name__ == "__main__":
    main()
