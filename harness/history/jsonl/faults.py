"""Events of a nemesis in an imported history: rows of table `faults`.

A lone event is an injection, or a healing when its name says so (`resume`, `heal`, …) or when it is the counterpart
of an injection that is open (`stop_mm2` and `start_mm2`, `start_partition` and `stop_partition`): whichever of the
two comes first is the injection. An invoke and its completion are `inject` and `bit` (or two healings). A healing
gets the fault_id of the injection it undoes, when one of a fitting name on the same target is open.
"""

from __future__ import annotations

import json
from typing import Any, Final

from harness.history.importing import RunBuilder
from harness.history.jsonl.fields import Line, scalar, text

_HEALS: Final[dict[str, tuple[str, ...]]] = {
    "start": ("kill", "stop", "crash", "terminate"),
    "restart": ("kill", "stop", "crash", "terminate"),
    "resume": ("pause", "suspend", "sigstop"),
    "unpause": ("pause",),
    "sigcont": ("sigstop", "pause"),
    "heal": ("partition", "isolate", "cut", "delay", "delay_rpc", "link_partition", "degrade"),
    "stop": ("start",),
    "undelay": ("delay", "delay_rpc"),
    "reset_clock": ("bump_clock", "strobe_clock"),
}
_COUNTERPARTS: Final = (("start_", "stop_"), ("stop_", "start_"), ("resume_", "pause_"), ("unpause_", "pause_"))
_ALWAYS_HEAL: Final = ("resume_", "unpause_", "heal_")
_CORE: Final = frozenset({"index", "process", "type", "f", "time"})
_TARGETS: Final = ("node", "broker", "to", "topic", "rpc", "txn")


class FaultMapper:
    """Numbers the faults of one history and pairs their steps.

    start_stop: Jepsen's convention: `start_x` injects and `stop_x` heals, also alone, and an operation begins and
    ends with the same type `info`.
    """

    def __init__(self, builder: RunBuilder, *, start_stop: bool = False) -> None:
        self._builder = builder
        self._start_stop = start_stop
        self._next = 0
        self._begun: dict[tuple[str, str], tuple[int, str]] = {}  # (process, f) → fault_id, action
        self._live: dict[tuple[str, str | None], int] = {}  # (f, target) → fault_id

    def event(self, line: Line, process: str, type_: str, f: str, time_ns: int) -> None:
        """One event of a nemesis; `line` holds its further fields."""
        fields = {k: v for k, v in line.items() if k not in _CORE}
        target = next((f"{k} {fields[k]}" for k in _TARGETS if fields.get(k) is not None), None)
        begun = self._begun.pop((process, f), None)
        if begun is not None:
            number, action = begun[0], "bit" if begun[1] == "inject" else begun[1]
        else:
            number, action = self._first(f, target)
            if type_ == "invoke" or self._start_stop:
                self._begun[process, f] = (number, action)
        params = json.dumps(fields, ensure_ascii=False) if fields else None
        said = scalar(line.get("error"), 'field "error"') or ""
        row: tuple[Any, ...] = (
            number,
            f,
            text(line, "cluster"),
            target,
            action,
            time_ns,
            type_ != "fail",
            said,
            params,
        )
        self._builder.row("faults", *row)

    def _first(self, f: str, target: str | None) -> tuple[int, str]:
        undone = self._undone_by(f, target)
        if undone is not None:
            return undone, "heal"
        number = self._next
        self._next += 1
        if self._heals_alone(f):
            return number, "heal"
        self._live[f, target] = number
        return number, "inject"

    def _heals_alone(self, f: str) -> bool:
        """Whether a name means healing when no fitting injection is open."""
        if self._start_stop and f in ("start", "stop"):
            return f == "stop"
        if f == "stop":
            return False
        return f in _HEALS or f.startswith(_ALWAYS_HEAL) or (self._start_stop and f.startswith("stop_"))

    def _undone_by(self, f: str, target: str | None) -> int | None:
        names = list(_HEALS.get(f, ()))
        names += [other + f.removeprefix(mine) for mine, other in _COUNTERPARTS if f.startswith(mine)]
        for name in names:
            for place in (target, None):
                if (name, place) in self._live:
                    return self._live.pop((name, place))
            if target is None:
                for key in self._live:
                    if key[0] == name:
                        return self._live.pop(key)
        return None
