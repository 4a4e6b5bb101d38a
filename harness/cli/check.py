"""`shatter check`: judges a stored run or a history from elsewhere."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rich.console import Console

from harness.cli.judging import Spark, check_run, show_softly
from harness.cli.output import print_json
from harness.core import contracts
from harness.core.progress import RichDisplay, phase
from harness.core.remains import ready_results
from harness.report.html import report_softly


def check_path(path: Path, *, contract: str | None, master: str, as_json: bool, out: Path | None) -> int:
    """`shatter check`: a run's folder, or a history, whose tables and report stay in `out`, if given.

    Run it in `harness.cli.interrupted_checks.cut_short`, and a signal ends it within seconds.
    """
    from harness.history.imports import as_run_folder
    from harness.history.runfile import read_meta

    if contract is not None:
        contracts.load(contract)  # before anything is imported or started
    console = Console(stderr=as_json)
    spark = Spark(master)
    with closing(spark), as_run_folder(path, keep=out) as folder:
        read_meta(folder)  # before Spark is started for a folder that is not a run
        ready_results(folder)
        display = RichDisplay(console)
        with phase(display, "check"):
            results = check_run(folder, contract=contract, spark=spark())
        lasts = path.is_dir() or out is not None
        report = report_softly(folder, say=display.note) if lasts else None
        show_softly(console, results, run=folder if lasts else path, report=report)
    if as_json:
        print_json(results.raw)
    return results.exit_code
