"""Events of process `nemesis` in a JSONL history: rows of table `faults`.

A lone event (type info or ok) is an injection, or a healing when its name says so (`start`, `resume`, `heal`, …);
an invoke and its completion are `inject` and `bit`. A healing gets the fault_id of the injection it undoes, when
one of a fitting name on the same target is open.
"""

from __future__ import annotations

import json
from typing import Any

from harness.history.importing import RunBuilder
from harness.history.jsonl_fields import Line, text

_HEALS: dict[str, tuple[str, ...]] = {
    "start": ("kill", "stop", "crash", "terminate"),
    "restart": ("kill", "stop", "crash", "terminate"),
    "resume": ("pause", "suspend", "sigstop"),
    "unpause": ("pause",),
    "sigcont": ("sigstop", "pause"),
    "heal": ("partition", "isolate", "cut", "delay", "delay_rpc", "link_partition", "degrade"),
    "undelay": ("delay", "delay_rpc"),
    "reset_clock": ("bump_clock", "strobe_clock"),
}
_CORE = frozenset({"index", "process", "type", "f", "time"})
_TARGETS = ("node", "broker", "to", "topic", "rpc", "txn")


class FaultMapper:
    """Numbers the faults of one history and pairs their steps."""

    def __init__(self, builder: RunBuilder) -> None:
        self._builder = builder
        self._next = 0
        self._invoked: dict[tuple[str, str], int] = {}  # (process, f) → fault_id
        self._live: dict[tuple[str, str | None], int] = {}  # (f, target) → fault_id

    def event(self, line: Line, process: str, type_: str, f: str, time_ns: int) -> None:
        """One event of a nemesis."""
        fields = {k: v for k, v in line.items() if k not in _CORE}
        target = next((f"{k} {fields[k]}" for k in _TARGETS if fields.get(k) is not None), None)
        cluster = text(line, "cluster")
        undone = self._undone_by(f, target)
        if type_ == "invoke":
            action = "inject"
            number = self._number()
            self._invoked[process, f] = number
        elif (process, f) in self._invoked:
            action = "bit"
            number = self._invoked.pop((process, f))
        elif undone is not None:
            action = "heal"
            number = undone
        else:
            action = "heal" if f in _HEALS or _base(f) is not None else "inject"
            number = self._number()
        if action == "inject":
            self._live[f, target] = number
        params = json.dumps(fields, ensure_ascii=False) if fields else None
        said = text(line, "error") or ""
        row: tuple[Any, ...] = (number, f, cluster, target, action, time_ns, type_ != "fail", said, params)
        self._builder.row("faults", *row)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _undone_by(self, f: str, target: str | None) -> int | None:
        base = _base(f)
        injections = [base] if base is not None else list(_HEALS.get(f, ()))
        for name in injections:
            for place in (target, None):
                if (name, place) in self._live:
                    return self._live.pop((name, place))
            if target is None:
                for key in self._live:
                    if key[0] == name:
                        return self._live.pop(key)
        return None


def _base(f: str) -> str | None:
    """The injection that a name of two words undoes: `start_mm2` → `stop_mm2`, `resume_x` → `pause_x`."""
    for heal, injection in (("start_", "stop_"), ("resume_", "pause_"), ("unpause_", "pause_")):
        if f.startswith(heal):
            return injection + f.removeprefix(heal)
    return None
