"""The catalogue: every checker and every kind of anomaly, collected from the modules."""

from __future__ import annotations

from importlib import import_module

from checkers import MODULES
from checkers.base import AnomalyKind, Checker


def _load() -> dict[str, Checker]:
    found: dict[str, Checker] = {}
    for module in MODULES:
        checker = import_module(f"checkers.{module}").CHECKER
        found[checker.name] = checker
    return found


CHECKERS: dict[str, Checker] = _load()
"""Checker name → checker."""

CATALOGUE: dict[str, AnomalyKind] = {kind.name: kind for checker in CHECKERS.values() for kind in checker.kinds}
"""AnomalyKind name → kind, in the catalogue's order."""


def listing(*, verbose: bool = False) -> list[dict[str, object]]:
    """What `shatter list checkers` shows, one row per kind; `verbose` adds sources, forms and limitations."""
    rows: list[dict[str, object]] = []
    for checker in CHECKERS.values():
        for kind in checker.kinds:
            row: dict[str, object] = {"name": kind.name, "severity": str(kind.severity), "what must hold": kind.what}
            if verbose:
                row |= {
                    "checker": checker.name,
                    "forms": list(kind.forms),
                    "needs": list(kind.requires),
                    "cannot see": kind.limitations,
                    "sources": list(kind.sources),
                }
            rows.append(row)
    return rows
