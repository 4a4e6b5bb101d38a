"""The generated pages of docs/: catalogues read from the registries. `python -m harness.cli.generated_pages` writes
them.

A unit test compares the pages with this module's output, so that they cannot drift.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.cli.listing import LISTINGS
from harness.cli.tree_page import with_tree
from harness.core.errors import UsageError

NOTE = "<!-- Generated from the code by `make docs`; do not edit. -->"


def pages() -> dict[str, str]:
    """File name in docs/ → its text."""
    made = {f"{what}.md": _page(what) for what in _TITLES}
    made["history-format.md"] = _history_format()
    made["architecture.md"] = with_tree((_FOLDER / "architecture.md").read_text(encoding="utf-8"))
    return made | _claims() | {"kip-1279.md": kip_page(_FOLDER)}


def write(folder: Path) -> list[Path]:
    """Write every page whose text changed; returns those."""
    changed = []
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


_TITLES: Mapping[str, tuple[str, str]] = {
    "nemeses": (
        "Nemeses",
        (
            "The faults. `NAME[:CLUSTER[/ROLE]][+PARAMETER=VALUE][@MOMENT[..END]]` fixes choices that the seed makes "
            "otherwise. With `@MOMENT` a fault begins at a moment of the scenario, not during the load: see "
            "[campaigns](campaigns.md#disasters)."
        ),
    ),
    "checkers": ("Checkers", "Every kind of anomaly: what must hold, where it comes from, and what it cannot see."),
    "contracts": (
        "Contracts",
        "What a mirror promises. Each kind of anomaly is *never* allowed, *allowed*, or *expected*.",
    ),
    "designs": (
        "Designs",
        "The reference mirror's switches and presets: `--design PRESET`, then `--design SWITCH=VALUE`, repeatable.",
    ),
    "mirrors": ("Mirrors", "The mirroring implementations under test."),
    "workloads": ("Workloads", "What the clients do."),
}


def _page(what: str) -> str:
    title, intro = _TITLES[what]
    parts = [f"# {title}", "", NOTE, "", intro, ""]
    rows = LISTINGS[what](True)
    parts += _table(rows)
    for name, module in _MODULES[what]().items():
        text = inspect.getdoc(module)
        if text:
            parts += ["", f"## {name}", "", text]
    return "\n".join(parts).rstrip() + "\n"


def _nemesis_modules() -> dict[str, ModuleType]:
    from nemeses import REGISTRY

    return {name: sys.modules[type(nemesis).__module__] for name, nemesis in REGISTRY.items()}


def _workload_modules() -> dict[str, ModuleType]:
    from workloads import REGISTRY

    return {name: sys.modules[type(workload).__module__] for name, workload in REGISTRY.items()}


def _none() -> dict[str, ModuleType]:
    return {}


_MODULES: Mapping[str, Callable[[], dict[str, ModuleType]]] = {
    "nemeses": _nemesis_modules,
    "workloads": _workload_modules,
    "checkers": _none,
    "contracts": _none,
    "designs": _none,
    "mirrors": _none,
}


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["None."]
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column), column) for column in columns) + " |" for row in rows]
    return lines


def _cell(value: Any, column: str) -> str:
    if isinstance(value, Mapping):
        text = "; ".join(f"`{key}`: {part}" for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(str(part) for part in value)
    else:
        text = "" if value is None else str(value)
    text = text.replace("|", "\\|").replace("\n", " ")
    return f"`{text}`" if column == "name" and text else text


def _history_format() -> str:
    from harness.history.format_page import document

    return document()


def _claims() -> dict[str, str]:
    """The scoreboard, from the results of runs on real clusters that are stored next to it."""
    from harness.report.scoreboard import claim_results, load_claims, published
    from harness.report.scoreboard_page import html, markdown

    stored = published((_FOLDER / "claims.json").read_text(encoding="utf-8"))
    board = [(claim, claim_results(claim, stored)) for claim in load_claims()]
    return {"claims.md": markdown(board), "claims.html": html(board)}


def kip_page(folder: Path) -> str:
    """docs/kip-1279.md, from the stored results of runs and the tables of crash points and pauses in this folder.

    Raises: UsageError when one of these files is missing.
    """
    from harness.report.kip_page import markdown, outcomes
    from harness.report.kip_runs import read_kip_runs
    from harness.report.scoreboard import claim_results, load_claims, read_published

    stored = read_published(folder / "claims.json")
    try:
        kills, pauses = (outcomes((folder / name).read_text(encoding="utf-8")) for name in _STEP_TABLES)
    except OSError as error:
        raise UsageError(f"{folder} lacks {' or '.join(_STEP_TABLES)}; give the docs folder of a checkout") from error
    return markdown(
        read_kip_runs(folder / "kip-1279.json"),
        revisions=[(claim, claim_results(claim, stored)) for claim in load_claims() if claim.name.startswith("kip-")],
        kills=kills,
        pauses=pauses,
    )


_STEP_TABLES = ("crash-points.md", "pauses.md")
_FOLDER = Path(__file__).resolve().parents[2] / "docs"

if __name__ == "__main__":
    for changed_page in write(_FOLDER):
        sys.stdout.write(f"{changed_page.name}\n")
