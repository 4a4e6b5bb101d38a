"""The scoreboard as Markdown and as one HTML page. A row is one design of one claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jinja2

from harness.report.markdown_table import markdown_table
from harness.report.scoreboard import ENOUGH, Claim, ClaimResult, Role

HEAD: Final = ("claim", "design", "should", "found by", "result", "runs")

Board = Sequence[tuple[Claim, Sequence[ClaimResult]]]


def shown_test(claim: Claim) -> str:
    """The test of a claim in a few words, or why there is none."""
    if claim.test is None:
        return claim.why_not
    return ", ".join(f"{k} {'+'.join(v) if isinstance(v, list) else v}" for k, v in claim.test.items())


def row(claim: Claim, result: ClaimResult) -> tuple[str, ...]:
    """One row's texts, as in HEAD."""
    return (
        claim.name,
        result.design or "strict",
        "hold" if result.role.value == "holds" else "break",
        ", ".join(claim.kinds),
        _outcome(result),
        ", ".join(result.runs),
    )


def _outcome(result: ClaimResult) -> str:
    """The outcome, in how many runs it was seen, and the kinds that made it."""
    parts = [
        ("", [f"{kind} {count}" for kind, count in result.found.items()]),
        ("not allowed: ", result.forbidden),
        ("not found: ", result.missing),
    ]
    kinds_text = "; ".join(head + ", ".join(kinds) for head, kinds in parts if kinds)
    outcome = f"{result.outcome}, {result.shown} of {len(result.runs)}" if result.runs else str(result.outcome)
    return f"{outcome}: {kinds_text}" if kinds_text else outcome


def markdown(board: Board) -> str:
    """The page docs/claims.md."""
    rows = [row(claim, result) for claim, claim_results in board for result in claim_results]
    lines = ["# Claims", "", _INTRO, "", *markdown_table(HEAD, rows), "", "## The arguments", ""]
    lines += [f"- **{claim.name}**: {claim.argument}. *Test:* {shown_test(claim)}." for claim, _ in board]
    return "\n".join(lines) + "\n"


def html(board: Board) -> str:
    """One self-contained page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    rows = [
        {"outcome": result.outcome.replace(" ", "-"), "cells": row(claim, result)}
        for claim, claim_results in board
        for result in claim_results
    ]
    arguments = [(claim.name, claim.argument, shown_test(claim)) for claim, _ in board]
    return environment.get_template("claims.html.j2").render(intro=_INTRO, head=HEAD, rows=rows, arguments=arguments)


_INTRO: Final = (
    "The arguments of the design threads of Cluster Mirroring, and the findings of runs of the reference mirror on "
    "real clusters. "
    "`k of n`: in k of n runs the design held (a valid run without the claim's kinds) or broke (with them, and with "
    "nothing else that its contract never allows). "
    f"`shatter claims` shows it for stored runs, and `--run` runs the missing tests, until each design that holds has "
    f"{ENOUGH[Role.HOLDS]} runs and each that breaks {ENOUGH[Role.BREAKS]}. Results of the runs behind this page "
    "are in claims.json (`shatter claims --write docs`)."
)
