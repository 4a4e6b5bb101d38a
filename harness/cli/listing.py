"""`shatter list`: the available choices, read from the registries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.core.testspec import check_name

Rows = list[dict[str, Any]]
WIDEST = 4  # columns of a table; entries with more are printed as blocks


def print_listing(what: str, *, console: Console, verbose: bool = False, as_json: bool = False) -> None:
    """Print one registry as a table or as JSON.

    Raises: UsageError when `what` is not something that can be listed.
    """
    check_name("list", what, LISTINGS)
    rows = LISTINGS[what](verbose)
    if as_json:
        console.print_json(json.dumps(rows, default=str))
        return
    if rows and len(rows[0]) > WIDEST:
        for row in rows:
            _print_block(console, row)
        return
    table = Table(expand=False, show_edge=False, pad_edge=False)
    for column in rows[0] if rows else ("name",):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console.print(table)


def _print_block(console: Console, row: Mapping[str, Any]) -> None:
    """One entry with too many columns for a terminal: its name, then a line for each column."""
    console.print(f"[bold]{row['name']}[/]", highlight=False)
    for key, value in row.items():
        text = _cell(value)
        if key != "name" and text:
            console.print(f"  {key}: {text}", highlight=False, markup=False, soft_wrap=True)


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(part) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {part}" for key, part in value.items())
    return str(value)


def _mirrors(_verbose: bool) -> Rows:
    from mirrors import REGISTRY

    return [{"name": name, "what": entry.description, "contracts": entry.contracts} for name, entry in REGISTRY.items()]


def _workloads(_verbose: bool) -> Rows:
    from workloads import DESCRIPTIONS, REGISTRY

    return [{"name": name, "what": DESCRIPTIONS[name]} for name in REGISTRY]


def _nemeses(_verbose: bool) -> Rows:
    from nemeses import DESCRIPTIONS, REGISTRY

    return [
        {"name": name, "what": DESCRIPTIONS[name], "acts on": nemesis.clusters, "roles": nemesis.roles}
        for name, nemesis in REGISTRY.items()
    ]


def _scenarios(_verbose: bool) -> Rows:
    from harness.run.scenarios import REGISTRY

    return [{"name": name, "what": scenario.about} for name, scenario in REGISTRY.items()]


def _campaigns(_verbose: bool) -> Rows:
    from harness.run.campaign import builtin_campaigns, parse_campaign

    rows = []
    for name, text in builtin_campaigns().items():
        tests = [spec.name for spec in parse_campaign(text, where=f"campaign {name}").tests]
        rows.append({"name": name, "tests": tests})
    return rows


def _checkers(verbose: bool) -> Rows:
    from checkers.catalogue import listing

    return listing(verbose=verbose)


def _contracts(verbose: bool) -> Rows:
    from harness.core.contracts import listing

    return listing(verbose=verbose)


def _designs(verbose: bool) -> Rows:
    from mirrors import REGISTRY

    return [row for entry in REGISTRY.values() for row in entry.designs(verbose)]


LISTINGS: dict[str, Callable[[bool], Rows]] = {
    "mirrors": _mirrors,
    "workloads": _workloads,
    "nemeses": _nemeses,
    "checkers": _checkers,
    "contracts": _contracts,
    "designs": _designs,
    "scenarios": _scenarios,
    "campaigns": _campaigns,
}
