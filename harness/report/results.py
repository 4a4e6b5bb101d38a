"""A run's stored verdict (`results.json`), read back for reports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.bounds import shown
from harness.core.errors import EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, HistoryError
from harness.core.plain import plain
from harness.history.jsonfile import read_json

WORDS = {True: "valid", False: "invalid", "unknown": "unknown"}
EXITS = {"valid": EXIT_VALID, "invalid": EXIT_INVALID, "unknown": EXIT_UNKNOWN}


@dataclass(frozen=True, kw_only=True)
class AnomalyResult:
    """One kind in results.json. allowed: counted and shown, but it does not make the run invalid."""

    kind: str
    count: int
    severity: str
    allowed: bool
    level: str = ""
    reason: str = ""
    witnesses: list[dict[str, Any]] = field(default_factory=list)

    @property
    def word(self) -> str:
        """How the contract treats it, in one word; `unknown` for kinds that only make the verdict unknown."""
        if self.severity == "unknown":
            return "unknown"
        return (self.level if self.level != "never" else "") or "allowed" if self.allowed else "never"

    def sentences(self) -> list[str]:
        """Each witness as one line."""
        return [plain(w.get("explain") or json.dumps(w, sort_keys=True)) for w in self.witnesses]


@dataclass(frozen=True, kw_only=True)
class Results:
    """results.json. verdict: valid, unknown or invalid; headline: the verdict and the findings in one line; raw: the
    whole document, whose texts are not escaped, while those of the other fields are (harness.core.plain)."""

    verdict: str
    headline: str
    why: str
    contract: str
    anomalies: tuple[AnomalyResult, ...]
    raw: dict[str, Any]

    @property
    def carried(self) -> dict[int, str]:
        """Records mirrored under each fault: fault id → text. Empty where that was not measured."""
        return {
            f["fault_id"]: f"{plain(f.get('records'))} records on {plain(f.get('partitions'))} partitions"
            for f in self.raw.get("carried_under_faults", [])
            if isinstance(f.get("fault_id"), int)
        }

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown."""
        return EXITS[self.verdict]

    @property
    def forbidden(self) -> tuple[AnomalyResult, ...]:
        """Kinds that the contract does not allow."""
        return tuple(a for a in self.anomalies if not a.allowed and a.count)


def parse_results(document: dict[str, Any]) -> Results:
    """From the JSON document's content. Raises: ValueError, KeyError or TypeError for what is not a stored verdict."""
    anomalies = [_anomaly(kind, body) for kind, body in _of(document, "anomalies", dict).items()]
    anomalies.sort(key=lambda a: (a.allowed, a.severity, a.kind))
    for key, kind in (("looked_at", list), ("not_looked_at", dict), ("figures", dict)):
        _of(document, key, kind)
    carried = _of(document, "carried_under_faults", list)
    if not all(isinstance(fault, dict) for fault in carried):
        raise TypeError("carried_under_faults must hold objects only")
    verdict = WORDS[document["valid"]]
    return Results(
        verdict=verdict,
        headline=plain(document.get("headline") or verdict),
        why=plain(document.get("why", "")),
        contract=plain(document.get("contract", "")),
        anomalies=tuple(anomalies),
        raw=document,
    )


def _anomaly(kind: str, body: Any) -> AnomalyResult:
    if not isinstance(body, dict):
        raise TypeError(f"anomalies.{kind} is {shown(body)}, not an object")
    count, witnesses = body.get("count", 0), _of(body, "witnesses", list)
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"anomalies.{kind}.count is {shown(count)}, not an integer")
    if not all(isinstance(witness, dict) for witness in witnesses):
        raise TypeError(f"anomalies.{kind}.witnesses must hold objects only")
    return AnomalyResult(
        kind=plain(kind),
        count=count,
        severity=plain(body.get("severity", "")),
        allowed=bool(body.get("allowed", False)),
        level=plain(body.get("level", "")),
        reason=plain(body.get("reason", "")),
        witnesses=witnesses,
    )


def _of(body: dict[str, Any], key: str, kind: type) -> Any:
    value = body.get(key, kind())
    if not isinstance(value, kind):
        raise TypeError(f"{key} is {shown(value)}, not {'an object' if kind is dict else 'a list'}")
    return value


def load_results(run: Path) -> Results:
    """Read RUN/results.json.

    Raises: HistoryError when it is absent or not ours; `shatter check RUN` fixes that.
    """
    path = run / "results.json"
    mend = f"run `shatter check {run}` again"
    try:
        return parse_results(read_json(path, mend=mend))
    except FileNotFoundError:
        raise HistoryError(f"{path} does not exist: the run was not checked; run `shatter check {run}`") from None
    except HistoryError as error:
        raise HistoryError(f"not a stored verdict: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path} is not a stored verdict ({error}); {mend}") from error
