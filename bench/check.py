"""What a full check costs: the generated history of 1,000,000 lines, judged in a fresh process and Spark session.

Prints `check_1m_seconds N` and `check_1m_peak_mib N` (resident memory of Python and Java together, sampled), and for
base offset 1,000,000,000 `check_1m_offset_…`; with `--large` for 10,000,000 lines `check_10m_…`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.generate_history import Shape, generate

MIB = 1024
_SAMPLE_S = 0.2


def check(run: Path, *, contract: str, master: str) -> tuple[float, float]:
    """Seconds of one `shatter check` process, and the peak of its and its children's resident memory, in MiB.

    Raises: SystemExit when the history, which is clean, is not judged valid.
    """
    command = [sys.executable, "-m", "harness.cli", "check", str(run), "--contract", contract, "--master", master]
    began = time.monotonic()
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = 0
    while True:
        try:
            output, errors = process.communicate(timeout=_SAMPLE_S)
            break
        except subprocess.TimeoutExpired:
            peak = max(peak, _resident_kib(process.pid))
    seconds = time.monotonic() - began
    if process.returncode != 0:
        raise SystemExit(f"the clean history was not judged valid:\n{output}\n{errors}")
    return seconds, peak / MIB


def _resident_kib(root: int) -> int:
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for entry in (path.name for path in Path("/proc").iterdir()):
        if not entry.isdigit():
            continue
        try:
            lines = Path("/proc", entry, "status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        parents[int(entry)] = int(fields["PPid"])
        sizes[int(entry)] = int(fields.get("VmRSS", "0 kB").split()[0])
    family = {root}
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family} - family
        grown = bool(children)
        family |= children
    return sum(sizes.get(pid, 0) for pid in family)


def main() -> None:
    """Parse, generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also 10,000,000 lines")
    parser.add_argument("--contract", default="kafka-clean")
    parser.add_argument("--master", default="local[*]")
    options = parser.parse_args()
    cases = [("1m", 1_000_000, 0), ("1m_offset", 1_000_000, 10**9)]
    if options.large:
        cases.append(("10m", 10_000_000, 0))
    for name, lines, base in cases:
        with tempfile.TemporaryDirectory(prefix="shatter-bench-") as folder:
            run = Path(folder) / name
            generate(run, Shape(lines=lines, base_offset=base))
            seconds, peak = check(run, contract=options.contract, master=options.master)
            print(f"check_{name}_seconds {seconds:.1f}", flush=True)
            print(f"check_{name}_peak_mib {peak:.0f}", flush=True)


if __name__ == "__main__":
    main()
