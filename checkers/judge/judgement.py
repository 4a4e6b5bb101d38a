"""A judgement of a run: the verdict, what was found, what could not be judged, and how it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from checkers.base import AnomalyKind, Severity
from checkers.judge.headline import Found
from checkers.views.under_faults import UnderFault
from harness.core.contracts import Contract, Level

VALID, UNKNOWN, INVALID = "valid", "unknown", "invalid"


@dataclass(frozen=True)
class Finding:
    """One kind that was found. count: all of them; breaches: those that the contract never allows; found: the same by
    cluster and by the contract's level there."""

    kind: AnomalyKind
    count: int
    breaches: int
    level: Level
    reason: str
    found: tuple[Found, ...] = ()
    witnesses: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The judge's result. verdict: valid, unknown or invalid; unjudged: kind → why it could not be checked.
    headline: the verdict and its findings in one line."""

    verdict: str
    headline: str
    why: str
    contract: Contract
    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]
    unjudged: dict[str, str] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    carried_under_faults: tuple[UnderFault, ...] = ()
    seconds: float = 0.0
    checker_seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of results.json."""
        return {
            "valid": {VALID: True, INVALID: False, UNKNOWN: "unknown"}[self.verdict],
            "headline": self.headline,
            "why": self.why,
            "contract": self.contract.name,
            "anomalies": {
                f.kind.name: {
                    "count": f.count,
                    "severity": str(f.kind.severity),
                    "allowed": f.breaches == 0 and f.kind.severity is not Severity.UNKNOWN,
                    "level": str(f.level),
                    "reason": f.reason,
                    "never_allowed": f.breaches,
                    "witnesses": list(f.witnesses),
                }
                for f in self.findings
            },
            "looked_at": list(self.looked_at),
            "not_looked_at": self.unjudged,
            "figures": self.figures,
            "carried_under_faults": [fault.to_json() for fault in self.carried_under_faults],
            "seconds": round(self.seconds, 1),
            "checker_seconds": self.checker_seconds,
        }
