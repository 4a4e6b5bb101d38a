"""`shatter campaign` and `shatter gate`: the tests of a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.cli.bench import run_all
from harness.cli.gate_files import GateFiles
from harness.core.errors import EXIT_FAILED, EXIT_INVALID
from harness.core.plain import plain
from harness.core.signals import tell
from harness.report.summary import TestOutcome, campaign_exit_code, table


def run_campaign(
    file: str,
    *,
    out: Path,
    master: str,
    kafka_image: str | None,
    junit: Path | None = None,
    summary: Path | None = None,
) -> int:
    """`shatter campaign` and `shatter gate`. Every test is checked before the first one starts."""
    from harness.run.campaign import load_campaign
    from harness.run.plan import make_plan

    campaign = load_campaign(file)
    specs = campaign.tests
    if kafka_image is not None:
        specs = tuple(spec.model_copy(update={"kafka_image": kafka_image}) for spec in specs)
    plans = [make_plan(spec, given={campaign.where: campaign.text}) for spec in specs]
    names = [plan.spec.name for plan in plans]
    files = GateFiles(name=campaign.name, tests=names, junit=junit, summary=summary, taken=[Path(file)])
    files.prepare()
    console = Console()
    problems: list[str] = []

    def store(outcomes: Sequence[TestOutcome]) -> None:
        problems[:] = files.write(outcomes)
        for problem in problems:
            console.print(f"warning: {plain(problem)}", style="yellow", markup=False, soft_wrap=True)

    def cut(outcomes: Sequence[TestOutcome]) -> int:  # within a signal's handler
        problems[:] = files.write(outcomes)
        for line in (*_in_lines(table(campaign.name, outcomes), console.width), *problems):
            tell(line)
        return gate_exit_code(outcomes, problems)

    outcomes = run_all(plans, out=out, keep=False, master=master, console=console, after=store, cut=cut)
    console.print()
    console.print(table(campaign.name, outcomes))
    for what, path in (("JUnit XML ", junit), ("summary   ", summary)):
        if path is not None:
            console.print(f"{what} {path}", highlight=False, soft_wrap=True, markup=False)
    for problem in problems:
        Console(stderr=True).print(f"error: {plain(problem)}", style="red", markup=False, soft_wrap=True)
    return gate_exit_code(outcomes, problems)


def gate_exit_code(outcomes: Sequence[TestOutcome], problems: Sequence[str]) -> int:
    """The worst of the tests; a gate file that could not be written is a program failure, but hides no invalid test."""
    code = campaign_exit_code(outcomes)
    return EXIT_FAILED if problems and code != EXIT_INVALID else code


def _in_lines(table: Table, width: int) -> list[str]:
    """A table as plain text, without the console, which may be printing."""
    page = Console(file=io.StringIO(), width=width)
    with page.capture() as captured:
        page.print(table)
    return captured.get().splitlines()
