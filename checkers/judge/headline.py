"""The headline of a verdict: the verdict and its findings, in one line of bounded length.

`valid` alone means that nothing was found at all. Findings that the contract allows are in the headline
(`valid, 107 allowed: A lost acknowledged writes (S1)`), and a design that broke as its documentation says reads
`broken as predicted: …`, whatever its exit code. The most severe kinds come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checkers.base import AnomalyKind, Severity
from harness.core.contracts import Contract, Level

NOTHING = "nothing was found that the contract never allows"
MOST_KINDS = 3
LONGEST = 240
_ORDER = (Severity.S1, Severity.SEC, Severity.S2, Severity.S3, Severity.S4, Severity.INFO, Severity.UNKNOWN)


@dataclass(frozen=True)
class Found:
    """The anomalies of a kind on one cluster (None: it has no cluster), and how the contract judges them there."""

    kind: AnomalyKind
    cluster: str | None
    count: int
    level: Level
    reason: str


def headline(verdict: str, why: str, found: Iterable[Found]) -> str:
    """One line that begins with the verdict, or with `broken as predicted`. why: the reasons of an unknown verdict."""
    counted = [f for f in found if f.kind.severity is not Severity.UNKNOWN]
    never, expected, allowed = (
        [f for f in counted if f.level is level] for level in (Level.NEVER, Level.EXPECTED, Level.ALLOWED)
    )
    if verdict == "unknown":
        return _cut(f"{verdict}: {why}")
    rest = [f"{_sum(allowed):,} allowed: {_named(allowed)}"] if allowed else []
    if verdict == "invalid":
        parts = [f"{verdict}, {_sum(never):,} never allowed: {_named(never)}"]
        parts += [f"{_sum(expected):,} predicted: {_named(expected)}"] if expected else []
    elif expected:
        parts = [f"broken as predicted: {_named(expected, always_count=True)}"]
    else:
        return _cut(f"{verdict}, {rest[0]}" if rest else verdict)
    return _cut("; ".join(parts + rest))


def why_green(contract: Contract, found: Sequence[Found]) -> str:
    """Why a verdict is valid: the contract's reasons for allowing the findings, or that it predicts more."""
    clauses = [clause for counted in contract.clauses.values() for clause in counted]
    predicted = any(clause.level is Level.EXPECTED for clause in clauses)
    parts = [NOTHING]
    if predicted and not any(f.level is Level.EXPECTED for f in found):
        parts.append("nothing that the contract predicts of this design was seen")
    reasons = list(dict.fromkeys(f"{f.kind.name} is {f.level}: {f.reason}" for f in _sorted(found)))
    parts += reasons[:MOST_KINDS]
    if len(reasons) > MOST_KINDS:
        parts.append(f"and {len(reasons) - MOST_KINDS} more reasons")
    return "; ".join(parts)


def _named(found: Sequence[Found], *, always_count: bool = False) -> str:
    """The kinds, each with the clusters where it was found, and its count unless the sum already shows it."""
    kinds = list(dict.fromkeys(f.kind for f in _sorted(found)))
    parts = []
    for kind in kinds[:MOST_KINDS]:
        mine = [f for f in found if f.kind is kind]
        clusters = sorted({f.cluster for f in mine if f.cluster})
        who = " and ".join(clusters) or "the system"
        count = f", {_sum(mine):,}" if always_count or len(kinds) > 1 else ""
        parts.append(f"{who} {kind.violation or kind.name} ({kind.severity}{count})")
    more = len(kinds) - MOST_KINDS
    return ", ".join(parts) + (f" and {more} more kind{'s' if more > 1 else ''}" if more > 0 else "")


def _sorted(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda f: (_ORDER.index(f.kind.severity), -f.count, f.kind.name, f.cluster or ""))


def _sum(found: Iterable[Found]) -> int:
    return sum(f.count for f in found)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 2].rstrip() + " …"
