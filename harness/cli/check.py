"""`shatter check`: judges stored runs, or histories from elsewhere, all of them in one Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.cli.judging import Spark, check_run, show_softly
from harness.cli.output import print_json
from harness.core import contracts
from harness.core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, ShatterError, UsageError
from harness.core.plain import plain
from harness.core.progress import RichDisplay, phase
from harness.core.remains import ready_results
from harness.report.html import report_softly
from harness.report.results import Results
from harness.report.summary import STYLE


def check_paths(paths: Sequence[Path], *, contract: str | None, master: str, as_json: bool, out: Path | None) -> int:
    """`shatter check`: runs' folders, or histories; the tables and report of a single history stay in `out`, if given.

    Of several, one that cannot be judged is reported, and the others are judged; the exit code is the worst (1 before
    255 before 2), and with `as_json` the document has one entry for each path.
    Run it in `harness.cli.interrupted_checks.cut_short`, and a signal ends it within seconds.
    """
    if contract is not None:
        contracts.load(contract)  # before anything is imported or started
    if out is not None and len(paths) > 1:
        raise UsageError("--out keeps the tables of one history; check them one by one, each with its own --out")
    console = Console(stderr=as_json)
    with closing(Spark(master)) as spark:
        if len(paths) == 1:
            results = _check(paths[0], contract=contract, spark=spark, console=console, out=out)
            if as_json:
                print_json(results.raw)
            return results.exit_code
        return _check_each(paths, contract=contract, spark=spark, console=console, as_json=as_json)


def _check(path: Path, *, contract: str | None, spark: Spark, console: Console, out: Path | None) -> Results:
    """Judge one and show its verdict."""
    from harness.history.imports import as_run_folder
    from harness.history.runfile import read_meta

    with as_run_folder(path, keep=out) as folder:
        read_meta(folder)  # before Spark is started for a folder that is not a run
        ready_results(folder)
        display = RichDisplay(console)
        with phase(display, "check"):
            results = check_run(folder, contract=contract, spark=spark())
        lasts = path.is_dir() or out is not None
        report = report_softly(folder, say=display.note) if lasts else None
        show_softly(console, results, run=folder if lasts else path, report=report)
    return results


def _check_each(paths: Sequence[Path], *, contract: str | None, spark: Spark, console: Console, as_json: bool) -> int:
    """Judge several, and list their verdicts at the end."""
    verdicts: list[tuple[Path, str, str]] = []
    documents: dict[str, Any] = {}
    for path in paths:
        console.rule(Text(plain(str(path)), "bold"), align="left")
        try:
            results = _check(path, contract=contract, spark=spark, console=console, out=None)
        except ShatterError as error:
            console.print(f"error: {plain(str(error))}", style="red", highlight=False, markup=False, soft_wrap=True)
            verdicts.append((path, "failed", plain(str(error))))
            documents[str(path)] = {"error": str(error)}
        else:
            verdicts.append((path, results.verdict, results.headline))
            documents[str(path)] = results.raw
    console.rule(Text(f"{len(paths)} checked", "bold"), align="left")
    for path, verdict, words in verdicts:
        line = Text.assemble((f"{verdict:8}", STYLE[verdict]), f" {plain(str(path))}: {words}")
        console.print(line, highlight=False, soft_wrap=True)
    if as_json:
        print_json(documents)
    found = {verdict for _, verdict, _ in verdicts}
    for verdict, code in (("invalid", EXIT_INVALID), ("failed", EXIT_FAILED), ("unknown", EXIT_UNKNOWN)):
        if verdict in found:
            return code
    return EXIT_VALID
