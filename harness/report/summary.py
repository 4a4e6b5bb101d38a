"""A campaign's outcome: one row per test, as Markdown and as a terminal table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from harness.core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from harness.core.plain import plain
from harness.report.results import Results

STYLE = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow", "failed": "bold red", "not run": "dim"}


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """How one test of a campaign ended. verdict: valid, unknown, invalid, failed (no verdict), or not run."""

    __test__ = False

    name: str
    verdict: str
    why: str
    seconds: float
    contract: str = ""
    run: Path | None = None
    report: Path | None = None
    results: Results | None = None

    def lines(self) -> list[str]:
        """Each anomaly that was found as one line: kind, count, whether it is allowed, its first witness."""
        if self.results is None:
            return []
        lines = []
        for anomaly in self.results.anomalies:
            if anomaly.count:
                first = anomaly.sentences()[:1]
                word = "never allowed" if anomaly.word == "never" else anomaly.word
                lines.append(f"{anomaly.kind} × {anomaly.count} ({word}){': ' + first[0] if first else ''}")
        return lines

    @property
    def headline(self) -> str:
        """The verdict and the findings in one line; for a test without a stored verdict, the verdict alone."""
        if self.results is None or self.results.verdict != self.verdict:
            return self.verdict
        return self.results.headline

    def found(self) -> str:
        """All kinds that were found, short."""
        if self.results is None:
            return ""
        return ", ".join(
            f"{a.kind} {a.count}{' (allowed)' if a.allowed else ''}" for a in self.results.anomalies if a.count
        )


def campaign_exit_code(outcomes: Sequence[TestOutcome]) -> int:
    """The worst of the tests: 255 a test failed to run, 1 invalid, 2 unknown or not run, 0 all valid."""
    verdicts = {o.verdict for o in outcomes}
    if "invalid" in verdicts:
        return EXIT_INVALID
    if "failed" in verdicts:
        return EXIT_FAILED
    if verdicts - {"valid"} or not outcomes:
        return EXIT_UNKNOWN
    return EXIT_VALID


def markdown(name: str, outcomes: Sequence[TestOutcome]) -> str:
    """The summary that CI systems show next to a build."""
    counts = {v: sum(o.verdict == v for o in outcomes) for v in STYLE}
    head = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    rows = [f"# {plain(name)}: {head}", "", "| test | verdict | contract | found | time |", "|---|---|---|---|---|"]
    rows += [
        f"| {_cell(o.name)} | {_verdict_cell(o)} | {_cell(o.contract)} | {o.found() or '–'} | {o.seconds:.0f} s |"
        for o in outcomes
    ]
    for o in outcomes:
        if o.verdict != "valid" or o.lines():
            rows += ["", f"## {plain(o.name)}: {plain(o.headline)}", ""]
            if o.why:
                rows += [plain(o.why), ""]
            rows += [f"- {plain(line)}" for line in o.lines()]
            if o.run is not None:
                rows += ["", f"Run folder: `{plain(o.run)}`"]
    return "\n".join(rows) + "\n"


def _verdict_cell(o: TestOutcome) -> str:
    """The verdict's word; for a valid one also its findings."""
    holds = o.verdict == "valid" and o.headline != o.verdict
    return f"**{o.verdict}**" + (f": {_cell(o.headline.removeprefix('valid, '))}" if holds else "")


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def table(name: str, outcomes: Sequence[TestOutcome]) -> Table:
    """The summary for the terminal."""
    result = Table(title=Text(f"Campaign {plain(name)}"), title_justify="left", expand=False)
    for column in ("test", "verdict", "found", "time", "report"):
        result.add_column(column, overflow="fold", justify="right" if column == "time" else "left")
    for o in outcomes:
        result.add_row(
            Text(plain(o.name)),
            Text(o.verdict, style=STYLE[o.verdict]),
            Text(plain(_table_cell(o))),
            f"{o.seconds:.0f} s",
            Text(plain(o.report or o.run or "")),
        )
    return result


def _table_cell(o: TestOutcome) -> str:
    if o.verdict == "valid":
        return "nothing" if o.headline == o.verdict else o.headline
    return o.found() or o.why
