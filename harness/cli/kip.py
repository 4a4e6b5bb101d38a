"""`shatter kip`: docs/kip-1279.md from the results of stored runs."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.core.atomic_files import write_beside
from harness.core.errors import EXIT_VALID, UsageError


def write_kip_page(out: Path, *, write: Path) -> int:
    """`shatter kip`. The runs under `out` are added to those of kip-1279.json in `write`, then the page is made again.

    Raises: UsageError when `write` lacks the pages that it is made from, or no run of Cluster Mirroring is stored.
    """
    from harness.cli.generated_pages import kip_page
    from harness.report.kip_runs import publish, read_kip_runs, stored_kip_runs

    runs = write / "kip-1279.json"
    new = stored_kip_runs(out)
    if not new:
        raise UsageError(f"{out} holds no judged run of Cluster Mirroring (mirror reference or native)")
    named = {run.run for run in new}
    kept = [run for run in read_kip_runs(runs) if run.run not in named] if runs.exists() else []
    write_beside(runs, publish([*kept, *new]))
    page = write / "kip-1279.md"
    write_beside(page, kip_page(write))
    Console().print(f"{page}: {len(new)} runs from {out}, {len(kept)} from before", highlight=False, markup=False)
    return EXIT_VALID
