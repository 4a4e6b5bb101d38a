"""`shatter run` and `shatter replay`: one test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.cli.bench import run_all
from harness.cli.output import print_json
from harness.core.errors import EXIT_UNKNOWN, ShatterError, UsageError
from harness.core.plain import plain
from harness.core.signals import tell
from harness.core.testspec import TestSpec, parse_spec
from harness.report.summary import TestOutcome, campaign_exit_code

if TYPE_CHECKING:
    from harness.run.plan import RunPlan


def run_one(spec: TestSpec, *, out: Path, keep: bool, master: str, as_json: bool) -> int:
    """`shatter run`."""
    from harness.run.plan import make_plan

    return _run_plan(make_plan(spec), out=out, keep=keep, master=master, as_json=as_json)


def _run_plan(plan: RunPlan, *, out: Path, keep: bool, master: str, as_json: bool) -> int:
    def cut(outcomes: Sequence[TestOutcome]) -> int:  # within a signal's handler
        for one in outcomes:
            tell(f"{one.verdict}: {plain(one.why)}")
        return campaign_exit_code(outcomes)

    outcomes = run_all([plan], out=out, keep=keep, master=master, console=Console(stderr=as_json), cut=cut)
    outcome = outcomes[0]
    if as_json and outcome.results is not None:
        print_json(outcome.results.raw)
    if outcome.verdict == "failed":
        raise ShatterError(f"{outcome.why}{_kept(outcome)}")
    if outcome.results is None:
        Console(stderr=True).print(f"unknown: {outcome.why}", style="yellow", markup=False, soft_wrap=True)
        return EXIT_UNKNOWN
    return outcome.results.exit_code


def _kept(outcome: TestOutcome) -> str:
    if outcome.run is None or "`shatter check " in outcome.why:
        return ""
    return f"; what was recorded is in {outcome.run}, and `shatter check {outcome.run}` judges it"


def replay_run(path: Path, *, out: Path, keep: bool, master: str, as_json: bool) -> int:
    """`shatter replay`: the stored test again, with the stored fault schedule and the stored text of its files."""
    return _run_plan(replayed(path), out=out, keep=keep, master=master, as_json=as_json)


def replayed(path: Path) -> RunPlan:
    """The test of a stored run, made from its run.json and nothing else.

    Raises: HistoryError when it is not a run; UsageError when it was not made by `shatter run`.
    """
    from harness.history.runfile import read_meta
    from harness.run.plan import make_plan

    meta = read_meta(path)
    if not meta.test.spec:
        raise UsageError(f"{path} was not made by `shatter run`: its run.json has no test.spec to replay")
    spec = parse_spec(meta.test.spec, where=f"{path}/run.json")
    return make_plan(spec, schedule=meta.schedule, given=meta.test.files)
