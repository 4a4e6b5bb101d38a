"""The faults of a run as the report lists them: all faults of the schedule with their outcome, and faults that are in
no schedule (other writers have none)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.report.series import FaultSpan, fault_steps

NEVER = "never injected: the run ended before it, or lost its record"


@dataclass(frozen=True)
class FaultRow:
    """One line. start, end: seconds of the run, None where it was not injected, or not healed; planned: `12.0 s, 3.0 s`
    of the load, or `from stop.A-B, until settle` of the scenario; bit: None where there is no proof; outcome: what was
    seen, or why it was skipped."""

    fault_id: int
    name: str
    target: str
    planned: str
    start: float | None
    end: float | None
    bit: bool | None
    outcome: str
    healed: str

    @property
    def word(self) -> str:
        """Whether it bit, in a word or two."""
        if self.start is None:
            return "not injected"
        return "not proven" if self.bit is None else "yes" if self.bit else "no"


def fault_rows(run: Path, spans: Sequence[FaultSpan], schedule: Sequence[Mapping[str, Any]]) -> list[FaultRow]:
    """All faults, in order of their numbers."""
    drawn = {entry["fault_id"]: entry for entry in schedule if isinstance(entry.get("fault_id"), int)}
    injected = {span.fault_id: span for span in spans}
    steps = fault_steps(run)
    rows = []
    for number in sorted({*drawn, *injected, *steps}):
        entry, span = drawn.get(number, {}), injected.get(number)
        said = {step["action"]: step for step in steps.get(number, [])}
        if span is None and not entry and "skip" not in said:
            continue  # the healing of everything, which is not a fault
        skipped = said.get("skip", {})
        rows.append(
            FaultRow(
                fault_id=number,
                name=span.name if span else str(entry.get("nemesis") or skipped.get("name") or ""),
                target=(span.target if span else "") or str(skipped.get("target") or "") or _where(entry),
                planned=_planned(entry),
                start=span.start if span else None,
                end=span.end if span else None,
                bit=span.bit if span else None,
                outcome=span.seen if span else _not_injected(skipped),
                healed=span.healed if span else "",
            )
        )
    return rows


def _not_injected(skipped: Mapping[str, Any]) -> str:
    return f"skipped: {skipped.get('result') or 'no reason is recorded'}" if skipped else NEVER


def _where(entry: Mapping[str, Any]) -> str:
    parts = [str(entry[key]) for key in ("cluster", "role") if entry.get(key)]
    params = entry.get("params")
    return "/".join(parts) + (f" {params}" if params else "")


def _planned(entry: Mapping[str, Any]) -> str:
    at, length = entry.get("at_s"), entry.get("duration_s")
    if entry.get("at_step"):
        held = f"{length:.1f} s, at most " if isinstance(length, int | float) and length else ""
        return f"from {entry['at_step']}, {held}until {entry.get('until') or 'end'}"
    if not isinstance(at, int | float) or not isinstance(length, int | float):
        return ""
    return f"{at:.1f} s, {length:.1f} s" if at or length else "when its moment comes"
