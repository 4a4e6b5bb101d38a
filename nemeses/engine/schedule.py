"""Which faults, when, how long: drawn from the seed before the run, stored, and replayed from what was stored.

Pure. The load is cut into windows. A window holds one or several faults of different nemeses that begin near its
start and are healed, with the time that healing takes, before its end; about one window in four is quiet, and so are
the first and the last seconds. Two faults of one window never act on the same link, mirror, or (unless it has the
nodes to spare) cluster. Every selected nemesis occurs at least once. Those that wait for a trigger during the whole
run, or begin at a moment of the scenario, are outside the windows, once each.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from harness.core.errors import UsageError
from nemeses import REGISTRY
from nemeses.base import FaultSpec, Shape, Target
from nemeses.engine.selection import Selection, parse

SOURCE = "A"
QUIET_START_S = 3.0
QUIET_END_S = 4.0
QUIET_SHARE = 0.25  # of windows
MOST_AT_ONCE = 3
STAGGER_S = 1.0  # faults of one window begin within this time
SHARE_OF_LOAD = 1 / 6  # the longest that a fault lasts, if the nemesis allows it


def least_time_limit_s(names: Sequence[str]) -> float:
    """The minimum load time, in whole seconds, in which each of these nemeses can act once.

    Raises: UsageError for an unknown nemesis.
    """
    return _least(tuple(parse(name) for name in names))


def draw(names: Sequence[str], shape: Shape, *, seed: int, load_s: float) -> tuple[FaultSpec, ...]:
    """The schedule of a load phase of this many seconds; the same for the same arguments. Sorted by time.

    names: as `nemeses.engine.selection.parse` reads them; empty for a run without faults.
    Raises: UsageError for a name, cluster or role that does not exist, or a load that is too short.
    """
    selections = tuple(parse(name) for name in names)
    targets = {s.text: tuple(s.targets(shape)) for s in selections}
    if not selections:
        return ()
    least = _least(selections)
    if load_s < least:
        raise UsageError(
            f"a time limit of {load_s:g} s is too short for {', '.join(s.text for s in selections if not s.moment)} "
            f"to act and heal once each; give at least {least:g} s"
        )
    return _Drawing(selections, targets, shape, Random(f"schedule {seed}"), load_s).schedule()


def _least(selections: Sequence[Selection]) -> float:
    loading = [s for s in selections if not s.moment]
    if not loading:
        return 0.0
    return math.ceil(QUIET_START_S + QUIET_END_S + sum(s.nemesis.timing.need_s for s in loading))


class _Drawing:
    """One drawing: windows from the quiet start to the quiet end."""

    def __init__(
        self,
        selections: Sequence[Selection],
        targets: Mapping[str, Sequence[Target]],
        shape: Shape,
        rng: Random,
        load_s: float,
    ) -> None:
        self._targets, self._shape, self._rng = targets, shape, rng
        self._load_s = load_s
        self._end = load_s - QUIET_END_S
        self._waiting = [s for s in selections if s.nemesis.timing.whole_run]
        self._at_moments = [s for s in selections if s.moment]
        self._selections = [s for s in selections if not s.nemesis.timing.whole_run and not s.moment]
        self._due = list(self._selections)
        rng.shuffle(self._due)
        self._faults: list[FaultSpec] = []

    def schedule(self) -> tuple[FaultSpec, ...]:
        at = QUIET_START_S
        while self._selections:
            chosen = self._choose(at)
            if not chosen:
                break
            at = self._window(at, chosen)
            if self._rng.random() < QUIET_SHARE:
                at += min(self._rng.uniform(2.0, 6.0), max(0.0, self._end - at - self._reserve()))
        self._faults += [self._draw(s, self._targets[s.text][0], at_s=0.0, duration_s=0.0) for s in self._waiting]
        self._faults.sort(key=lambda spec: spec.at_s)
        self._faults += [self._at_moment(s) for s in self._at_moments]
        return tuple(dataclasses.replace(spec, fault_id=number) for number, spec in enumerate(self._faults, start=1))

    def _at_moment(self, selection: Selection) -> FaultSpec:
        begin, end, hold_s = selection.moments(self._shape)
        target = self._rng.choice(list(self._targets[selection.text]))
        return dataclasses.replace(self._draw(selection, target, at_s=0.0, duration_s=hold_s), at_step=begin, until=end)

    def _reserve(self) -> float:
        """Time to reserve for the nemeses that have not acted yet, one after the other."""
        return sum(s.nemesis.timing.need_s for s in self._due)

    def _choose(self, at: float) -> list[tuple[Selection, Target]]:
        """The faults of the window that begins here: the first one due, then others that can act at the same time."""
        room = self._end - at
        fitting = [s for s in self._selections if s.nemesis.timing.need_s <= room]
        order = [*self._due, *self._rng.sample(fitting, len(fitting))]
        count = self._rng.randint(1, min(MOST_AT_ONCE, len(self._selections)))
        chosen: list[tuple[Selection, Target]] = []
        for selection in order:
            if len(chosen) == count:
                break
            if any(selection is other for other, _ in chosen):
                continue
            if chosen and selection.nemesis.timing.need_s > room - self._reserve():
                continue  # the nemeses still due would not fit after it
            candidates = list(self._targets[selection.text])
            self._rng.shuffle(candidates)
            free = next((t for t in candidates if self._beside(selection, t, chosen)), None)
            if free is not None:
                chosen.append((selection, free))
                self._due = [s for s in self._due if s is not selection]
        return chosen

    def _beside(self, selection: Selection, target: Target, chosen: Sequence[tuple[Selection, Target]]) -> bool:
        """Whether a fault can act together with those already chosen for the window."""
        if any(_wants_writes(s, t) for s, t in ((selection, target), *chosen)) and chosen:
            return False
        kind = selection.nemesis.kind
        same = [s for s, t in chosen if s.nemesis.kind == kind and t.cluster == target.cluster]
        if not same:
            return True
        if kind != "broker" or any(s.nemesis.loses_acknowledged for s in (*same, selection)):
            return False
        return len(same) < (len(self._shape.brokers[target.cluster]) - 1) // 2

    def _window(self, at: float, chosen: Sequence[tuple[Selection, Target]]) -> float:
        """Place the faults; returns where the window ends."""
        budget = self._end - at - self._reserve()
        end = at
        for selection, target in chosen:
            timing = selection.nemesis.timing
            slack = max(0.0, budget - timing.need_s)
            start = self._rng.uniform(0.0, min(STAGGER_S, slack / 2))
            longest = min(timing.most_s, max(timing.least_s, self._load_s * SHARE_OF_LOAD))
            duration = min(self._rng.uniform(timing.least_s, longest), timing.least_s + slack - start)
            self._faults.append(self._draw(selection, target, at_s=at + start, duration_s=duration))
            end = max(end, at + start + duration + timing.settle_s)
        return end

    def _draw(self, selection: Selection, target: Target, *, at_s: float, duration_s: float) -> FaultSpec:
        nemesis = selection.nemesis
        params = nemesis.draw(self._rng, selection.narrowed(self._shape), target)
        return FaultSpec(
            fault_id=0,
            nemesis=nemesis.name,
            at_s=round(at_s, 3),
            duration_s=round(duration_s, 3),
            cluster="link" if nemesis.kind == "link" else target.cluster,
            role=target.role,
            params={**params, **selection.fixed},
        )


def _wants_writes(selection: Selection, target: Target) -> bool:
    """Whether it needs writes to a destination, and so a healthy source, mirror and links."""
    return selection.nemesis.loses_acknowledged and target.cluster != SOURCE


def to_json(schedule: Iterable[FaultSpec]) -> list[dict[str, Any]]:
    """The schedule as JSON values, for run.json; `at_step` and `until` only of faults that have them."""
    rows = [{**dataclasses.asdict(spec), "params": dict(spec.params)} for spec in schedule]
    return [{key: value for key, value in row.items() if value or key not in _MOMENTS} for row in rows]


_MOMENTS = ("at_step", "until")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "fault_id": (int,),
    "nemesis": (str,),
    "at_s": (int, float),
    "duration_s": (int, float),
    "cluster": (str,),
    "role": (str,),
    "params": (dict,),
    **dict.fromkeys(_MOMENTS, (str,)),
}


def from_json(stored: object, *, where: str = "the stored schedule") -> tuple[FaultSpec, ...]:
    """Reads the output of `to_json`, for a replay.

    Raises: UsageError that names the entry and the key that is missing, unknown or of the wrong kind.
    """
    if not isinstance(stored, list):
        raise UsageError(f"{where} must be a list of faults, not {type(stored).__name__}")
    faults = []
    for number, entry in enumerate(stored, start=1):
        here = f"{where}, fault {number}"
        if not isinstance(entry, dict):
            raise UsageError(f"{here} must be an object, not {type(entry).__name__}")
        for key in sorted(_TYPES.keys() - entry.keys() - set(_MOMENTS)):
            raise UsageError(f"{here} has no {key!r}")
        for key, value in entry.items():
            if key not in _TYPES:
                raise UsageError(f"{here}: unknown key {key!r}")
            if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
                raise UsageError(f"{here}: {key!r} is {value!r}, which is no {_TYPES[key][-1].__name__}")
        if entry["nemesis"] not in REGISTRY:
            raise UsageError(f"{here}: no nemesis is called {entry['nemesis']!r}; known: {', '.join(sorted(REGISTRY))}")
        if entry["at_s"] < 0 or entry["duration_s"] < 0:
            raise UsageError(f"{here}: at_s and duration_s must not be negative")
        faults.append(FaultSpec(**entry))
    ids = [spec.fault_id for spec in faults]
    if len(set(ids)) != len(ids):
        raise UsageError(f"{where}: two faults have the same fault_id")
    return tuple(sorted(faults, key=lambda spec: spec.at_s))
