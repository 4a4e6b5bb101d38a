"""A verdict in the terminal: one headline, the anomalies, and where the report is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.core.plain import plain
from harness.report.results import Results
from harness.report.summary import STYLE

WITNESSES = 3
FAULTS = 8
WORD_STYLE = {"never": "bold red", "unknown": "yellow"}


def print_results(console: Console, results: Results, *, run: Path, report: Path | None) -> None:
    """Print the verdict, every kind that was found with its first witnesses, and the paths."""
    console.print(Text(plain(results.headline), style=STYLE[results.verdict]), soft_wrap=True)
    contract = f"  contract {results.contract}" if results.contract else ""
    console.print(f"{plain(run.name)}{contract}", highlight=False, markup=False)
    if results.why and results.why not in results.headline:
        console.print(plain(results.why), highlight=False, markup=False)
    found = [a for a in results.anomalies if a.count]
    if found:
        table = Table(expand=False, show_edge=False, pad_edge=False)
        table.add_column("kind", no_wrap=True)
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column("severity", no_wrap=True)
        table.add_column("contract", no_wrap=True)
        table.add_column("witnesses", overflow="fold")
        for a in found:
            lines = a.sentences()
            more = [f"… and {a.count - WITNESSES} more"] if a.count > WITNESSES and len(lines) >= WITNESSES else []
            table.add_row(
                Text(a.kind),
                str(a.count),
                Text(a.severity),
                Text(a.word, style=WORD_STYLE.get(a.word, "dim")),
                Text("\n".join(lines[:WITNESSES] + more)),
            )
        console.print(table)
    if results.carried:
        console.print(_carried(results), highlight=False, markup=False)
    if report is not None:
        console.print(f"report  {plain(report)}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"run     {plain(run)}", highlight=False, soft_wrap=True, markup=False)


def _carried(results: Results) -> str:
    """Records mirrored under each fault, in one line."""
    faults = results.raw["carried_under_faults"]
    each = [
        f"{plain(f.get('records'))} ({plain(f.get('name'))}{' on ' + plain(f['cluster']) if f.get('cluster') else ''})"
        for f in faults[:FAULTS]
    ]
    more = f" and {len(faults) - FAULTS} more faults" if len(faults) > FAULTS else ""
    return f"carried under faults, records  {', '.join(each)}{more}"
