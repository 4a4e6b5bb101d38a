"""The promises, read from contracts.toml: which anomalies a contract never allows, allows, or expects, and why.

A contract's name is BASE, BASE/REVISION, or either followed by `+MODIFIER`s: `mm2-at-least-once+unclean-a`.
What a contract excuses because mirrors of its design cannot do better ends with a capability (`unless`): a mirror that
has it is not excused. A run states what its mirror can do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from harness.core.errors import UsageError
from harness.core.hints import closest

DEFAULT = "kafka-clean"


class Level(StrEnum):
    """How a contract treats a kind of anomaly."""

    NEVER = "never"
    ALLOWED = "allowed"
    EXPECTED = "expected"


@dataclass(frozen=True)
class Clause:
    """One kind (or KIND/FORM) in a contract. on: clusters it is limited to; empty: all. unless: the capability of a
    mirror for which it does not apply."""

    level: Level
    reason: str
    on: tuple[str, ...] = ()
    unless: str | None = None


@dataclass(frozen=True, kw_only=True)
class Contract:
    """A contract with its modifiers. base: the name without them. capabilities: of mirrors that promise it, for
    histories that do not say what their mirror can do."""

    name: str
    base: str
    about: str
    clauses: Mapping[str, tuple[Clause, ...]] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()

    def clause(self, kind: str, *, form: str | None = None, cluster: str | None = None) -> Clause:
        """The clause that applies to an anomaly: the last one that fits; one for its form precedes one for its kind.

        A kind that no clause names is never allowed.
        """
        for key in (f"{kind}/{form}", kind) if form else (kind,):
            for clause in reversed(self.clauses.get(key, ())):
                if not clause.on or cluster in clause.on:
                    return clause
        return Clause(Level.NEVER, "the contract does not name it")


def load(name: str, *, able: Collection[str] = ()) -> Contract:
    """The contract of this name, for a mirror that has these capabilities beside those that the contract promises.

    Raises: UsageError when there is no such contract or modifier, with the nearest right ones.
    """
    base, *modifiers = name.split("+")
    document = _document()
    contracts = document["contract"]
    if base not in contracts:
        raise UsageError(f"no contract is called {base!r}; {closest(base, contracts)}")
    chosen = [*contracts[base].get("modifiers", ()), *modifiers]
    for modifier in chosen:
        if modifier not in document["modifier"]:
            raise UsageError(
                f"contract {name!r}: no modifier is called {modifier!r}; {closest(modifier, document['modifier'])}"
            )
    clauses: dict[str, tuple[Clause, ...]] = {}
    capabilities = frozenset(_capabilities(base))
    family = base.split("/")[0]
    for section in [*_lineage(base), *(part for m in chosen for part in _parts(m, family))]:
        for level in Level:
            for key, value in section.get(level, {}).items():
                clause = _clause(level, value)
                if clause.unless is not None and clause.unless in capabilities | set(able):
                    continue
                earlier = () if not clause.on else clauses.get(key, ())
                clauses[key] = (*earlier, clause)
    return Contract(
        name=name,
        base=base,
        about=contracts[base]["about"],
        clauses=clauses,
        capabilities=capabilities,
    )


def names() -> list[str]:
    """Every contract, without modifiers."""
    return list(_document()["contract"])


def modifiers() -> dict[str, str]:
    """Modifier → what it says."""
    return {name: body["about"] for name, body in _document()["modifier"].items()}


def listing(*, verbose: bool = False) -> list[dict[str, Any]]:
    """What `shatter list contracts` shows: one row per contract and modifier; verbose: one per kind, with reasons."""
    if not verbose:
        rows = [{"name": name, "what": load(name).about} for name in names()]
        return rows + [{"name": f"+{name}", "what": about} for name, about in modifiers().items()]
    contracts = [load(name) for name in names()]
    kinds = list(dict.fromkeys(key for contract in contracts for key in contract.clauses))
    return [{"name": kind, **{c.name: _reasons(c.clauses.get(kind, ())) for c in contracts}} for kind in kinds]


def _reasons(clauses: tuple[Clause, ...]) -> str:
    return "; ".join(
        f"{clause.level}{' on ' + ', '.join(clause.on) if clause.on else ''}"
        f"{f' unless the mirror has {clause.unless}' if clause.unless else ''}: {clause.reason}"
        for clause in reversed(clauses)
    )


def _lineage(name: str) -> Iterator[Mapping[str, Any]]:
    section = _document()["contract"][name]
    if "extends" in section:
        yield from _lineage(section["extends"])
    yield section


def _capabilities(name: str) -> Sequence[str]:
    """A contract's own list, else the one of what it extends."""
    found: Sequence[str] = ()
    for section in _lineage(name):
        found = section.get("capabilities", found)
    return found


def _parts(modifier: str, family: str) -> Iterator[Mapping[str, Any]]:
    """A modifier's clauses for all contracts, then those for this family of contracts only."""
    section = _document()["modifier"][modifier]
    for included in section.get("includes", ()):
        yield from _parts(included, family)
    yield section
    if family in section:
        yield section[family]


def _clause(level: Level, value: str | Mapping[str, Any]) -> Clause:
    if isinstance(value, str):
        return Clause(level, value)
    return Clause(level, value["why"], tuple(value.get("on", ())), value.get("unless"))


@cache
def _document() -> Mapping[str, Any]:
    text = (resources.files("harness.core") / "contracts.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
