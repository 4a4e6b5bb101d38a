"""`shatter claims`: the scoreboard of the design threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.cli.bench import run_all
from harness.core.atomic_files import write_beside
from harness.core.errors import EXIT_VALID
from harness.report.summary import TestOutcome, campaign_exit_code


def show_claims(
    names: Sequence[str], *, out: Path, run: bool, published: Path | None, write: Path | None, master: str
) -> int:
    """`shatter claims`. Every missing test is checked before the first one starts."""
    from harness.report import scoreboard_page as page
    from harness.report.scoreboard import (
        claim_results,
        load_claims,
        missing,
        named,
        publish,
        read_published,
        stored_results,
    )
    from harness.run.plan import make_plan

    claims = named(load_claims(), names)
    earlier = [] if published is None else read_published(published)
    unjudged: list[TestOutcome] = []
    if run:
        plans = [make_plan(spec) for spec in missing(claims, [*earlier, *stored_results(out)])]
        unjudged = [o for o in run_all(plans, out=out, keep=False, master=master, console=Console()) if not o.results]
    here = stored_results(out)
    stored = [*(one for one in earlier if one.run not in {other.run for other in here}), *here]
    board = [(claim, claim_results(claim, stored)) for claim in claims]
    console = Console()
    shown = Table(expand=False, show_edge=False, pad_edge=False)
    for column in page.HEAD:
        shown.add_column(column, overflow="fold")
    for claim, found in board:
        for one in found:
            shown.add_row(*page.row(claim, one))
    console.print(shown)
    if write is not None:  # the pages always show every claim
        every = load_claims()
        whole = [(claim, claim_results(claim, stored)) for claim in every]
        write.mkdir(parents=True, exist_ok=True)
        write_beside(write / "claims.md", page.markdown(whole))
        write_beside(write / "claims.json", publish(stored, every))
        write_beside(write / "claims.html", page.html(whole))
        console.print(f"written to {write}", highlight=False, markup=False, soft_wrap=True)
    return campaign_exit_code(unjudged) if unjudged else EXIT_VALID
