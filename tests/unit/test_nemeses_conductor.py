"""The conductor: order, records, healing after errors, hangs and crashes. Plain objects replace a topology."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from harness.core.clock import MonotonicClock
from harness.core.errors import FaultError, StorageError
from harness.core.wait import wait_until
from nemeses.base import NO_CHOICES, Availability, Bite, FaultContext, FaultSpec, Injected, Shape, Target, Timing
from nemeses.engine import conductor as conductor_module
from nemeses.engine.conductor import HEALTH_FAULT_ID, Conductor
from nemeses.engine.outcomes import FaultState
from nemeses.reservations import FaultSkippedError

pytestmark = pytest.mark.unit


@dataclass
class Nothing:
    """An empty topology."""

    run_id: str = "r"
    clusters: Mapping[str, Any] = field(default_factory=dict)
    links: Mapping[str, Any] = field(default_factory=dict)
    mirrors: Any = ()
    test_topics: Sequence[str] = ()

    def nodes(self) -> Sequence[Any]:
        return []


class Journal:
    """Records faults in a list."""

    def __init__(self, *, full_disk_at: str | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.full_disk_at = full_disk_at
        self.clock = MonotonicClock()

    def fault(self, **row: Any) -> None:
        if row["action"] == self.full_disk_at:
            raise StorageError("no space left on the disk")
        self.rows.append(row)

    def steps(self, fault_id: int) -> list[tuple[str, bool]]:
        return [(row["action"], row["ok"]) for row in self.rows if row["fault_id"] == fault_id]


class Scripted:
    """A nemesis that appends its acts to a shared list, and can fail anywhere."""

    name = "scripted"
    description = "for tests"
    kind = "broker"
    clusters = ("A",)
    roles = ("any",)
    default_roles = ("any",)
    needs = "nothing"
    timing = Timing()
    choices = NO_CHOICES
    loses_acknowledged = False
    color = "#000000"

    def __init__(self, world: list[str]) -> None:
        self.world = world
        self.hooks: dict[tuple[str, int], Callable[[FaultContext], None]] = {}
        self.bites = True
        self.why_not = ""

    def targets(self, shape: Shape) -> Sequence[Target]:
        return (Target("A", "any"),)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        return {}

    def available(self, topology: object) -> Availability:
        return Availability(not self.why_not, self.why_not)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        number = spec.fault_id
        node = str(spec.params.get("node", f"n{number}"))
        context.reservations.take(number, [node], group="g", limit=int(spec.params.get("limit", 9)))
        context.undo.push(f"undo {number}", lambda: self._undo(context, number))
        context.began(node, {})
        self.world.append(f"act {number}")
        self._hook("act", number, context)
        return Injected(spec=spec, target=node, nodes=[node], bite=Bite(yes=self.bites, seen=f"seen {number}"))

    def heal(self, context: FaultContext, injected: Injected) -> str:
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        self._hook("heal", injected.spec.fault_id, context)
        return "well"

    def _undo(self, context: FaultContext, number: int) -> None:
        self._hook("undo", number, context)
        self.world.append(f"undo {number}")

    def _hook(self, step: str, number: int, context: FaultContext) -> None:
        hook = self.hooks.get((step, number))
        if hook is not None:
            hook(context)


def spec(fault_id: int, *, at_s: float = 0.0, duration_s: float = 60.0, **params: object) -> FaultSpec:
    return FaultSpec(
        fault_id=fault_id,
        nemesis="scripted",
        at_s=at_s,
        duration_s=duration_s,
        cluster="A",
        role="any",
        params=params,
    )


@pytest.fixture
def world() -> list[str]:
    return []


@pytest.fixture
def nemesis(world: list[str]) -> Scripted:
    return Scripted(world)


def conduct(nemesis: Scripted, *schedule: FaultSpec, journal: Journal | None = None) -> tuple[Conductor, Journal]:
    journal = journal or Journal()
    made = Conductor(
        topology=Nothing(),
        recorder=journal,  # type: ignore[arg-type]
        clock=journal.clock,
        schedule=schedule,
        registry={"scripted": nemesis},
    )
    made.start()
    return made, journal


def await_states(conductor: Conductor, *states: FaultState) -> None:
    wait_until(
        lambda: tuple(outcome.state for outcome in conductor.outcomes()) == states,
        timeout_s=5,
        what=f"faults to be {states}",
        instead=lambda: str(conductor.outcomes()),
        interval_s=0.005,
    )


def fail(text: str) -> Callable[[FaultContext], None]:
    def hook(_: FaultContext) -> None:
        raise RuntimeError(text)

    return hook


def test_a_fault_is_injected_held_healed_and_recorded(nemesis: Scripted, world: list[str]) -> None:
    conductor, journal = conduct(nemesis, spec(1, duration_s=0.05))
    assert conductor.wait(5)
    assert world == ["act 1", "undo 1"]
    assert journal.steps(1) == [("inject", True), ("bit", True), ("heal", True)]
    assert [row["result"] for row in journal.rows] == ["begins", "seen 1", "well"]
    assert {row["target"] for row in journal.rows} == {"n1"}
    (outcome,) = conductor.outcomes()
    assert (outcome.state, outcome.bit, outcome.target) == (FaultState.HEALED, True, "n1")
    assert conductor.bites() == 1
    healing = conductor.heal_all()
    assert healing.ok
    assert journal.rows[-1]["fault_id"] == HEALTH_FAULT_ID
    assert journal.rows[-1]["ok"]


def test_faults_begin_in_time_and_may_overlap(nemesis: Scripted, world: list[str]) -> None:
    conductor, _ = conduct(nemesis, spec(2, at_s=0.1, duration_s=0.05), spec(1, at_s=0.0, duration_s=0.3))
    began = time.monotonic()
    assert conductor.wait(5)
    assert world == ["act 1", "act 2", "undo 2", "undo 1"]
    assert 0.25 < time.monotonic() - began < 2


def test_a_fault_that_did_not_bite_says_so(nemesis: Scripted) -> None:
    nemesis.bites = False
    conductor, journal = conduct(nemesis, spec(1, duration_s=0.01))
    assert conductor.wait(5)
    assert ("bit", False) in journal.steps(1)
    assert conductor.outcomes()[0].bit is False
    assert conductor.bites() == 0


def test_stop_begins_nothing_new_and_heals_in_reverse_order(nemesis: Scripted, world: list[str]) -> None:
    conductor, journal = conduct(nemesis, spec(1), spec(2, at_s=0.02), spec(3, at_s=0.04), spec(4, at_s=30))
    await_states(conductor, FaultState.LIVE, FaultState.LIVE, FaultState.LIVE, FaultState.WAITING)
    began = time.monotonic()
    healing = conductor.heal_all()
    assert healing.ok
    assert time.monotonic() - began < 3
    assert world == ["act 1", "act 2", "act 3", "undo 3", "undo 2", "undo 1"]
    assert journal.steps(4) == [("skip", False)]
    assert conductor.outcomes()[3].why == "the run ended before its time"


def at(fault_id: int, moment: str, until: str, *, duration_s: float = 0.0) -> FaultSpec:
    return replace(spec(fault_id, duration_s=duration_s), at_step=moment, until=until)


def test_faults_of_moments_begin_when_these_come_and_last_until_others(nemesis: Scripted, world: list[str]) -> None:
    conductor, journal = conduct(nemesis, spec(1), at(2, "stop", "return"), at(3, "stop", "end"), at(4, "write", "end"))
    await_states(conductor, FaultState.LIVE, FaultState.WAITING, FaultState.WAITING, FaultState.WAITING)
    assert conductor.beginning("stop")
    assert not conductor.ending("return")
    assert conductor.reach("stop") == ()
    assert sorted(world) == ["act 1", "act 2", "act 3"]
    assert conductor.ending("return")
    assert conductor.reach("return") == ()
    assert world[3:] == ["undo 2"]
    assert [o.state for o in conductor.outcomes()] == [
        *(FaultState.LIVE, FaultState.HEALED, FaultState.LIVE, FaultState.WAITING),
    ]
    assert conductor.heal_all().ok
    assert journal.steps(2) == [("inject", True), ("bit", True), ("heal", True)]
    assert journal.steps(4) == [("skip", False)]


def test_a_fault_of_a_moment_can_last_for_some_time_only(nemesis: Scripted, world: list[str]) -> None:
    conductor, _ = conduct(nemesis, at(1, "stop", "end", duration_s=0.05))
    assert conductor.reach("stop") == ()
    await_states(conductor, FaultState.HEALED)
    assert conductor.reach("end") == ()
    assert world == ["act 1", "undo 1"]


def test_what_cannot_be_healed_at_its_moment_is_reported_then_and_at_the_end(nemesis: Scripted) -> None:
    nemesis.hooks["undo", 1] = fail("no such node")
    conductor, _ = conduct(nemesis, at(1, "stop", "return"))
    conductor.reach("stop")
    (error,) = conductor.reach("return")
    assert "no such node" in error
    assert error in conductor.heal_all().errors


def test_healing_twice_does_nothing_twice(nemesis: Scripted, world: list[str]) -> None:
    conductor, journal = conduct(nemesis, spec(1))
    await_states(conductor, FaultState.LIVE)
    first = conductor.heal_all()
    rows = list(journal.rows)
    assert conductor.heal_all() == first
    assert journal.rows == rows
    assert world == ["act 1", "undo 1"]


def test_a_conductor_that_never_started_can_be_healed(nemesis: Scripted) -> None:
    journal = Journal()
    conductor = Conductor(
        topology=Nothing(),
        recorder=journal,  # type: ignore[arg-type]
        clock=journal.clock,
        schedule=[spec(1)],
        registry={"scripted": nemesis},
    )
    assert conductor.heal_all().ok
    assert conductor.outcomes()[0].state is FaultState.SKIPPED


def test_leaving_the_context_heals(nemesis: Scripted, world: list[str]) -> None:
    conductor, _ = conduct(nemesis, spec(1))
    await_states(conductor, FaultState.LIVE)
    with pytest.raises(KeyboardInterrupt), conductor:
        raise KeyboardInterrupt
    assert world == ["act 1", "undo 1"]


def test_an_error_while_injecting_is_recorded_undone_and_ends_only_that_fault(
    nemesis: Scripted, world: list[str]
) -> None:
    nemesis.hooks["act", 1] = fail("the node is gone")
    conductor, journal = conduct(nemesis, spec(1), spec(2, at_s=0.05, duration_s=0.01))
    assert conductor.wait(5)
    assert world == ["act 1", "undo 1", "act 2", "undo 2"]
    assert journal.steps(1) == [("inject", True), ("inject", False), ("heal", True)]
    first, second = conductor.outcomes()
    assert (first.state, first.bit, first.why) == (FaultState.FAILED, False, "the node is gone")
    assert second.state is FaultState.HEALED
    assert conductor.heal_all().ok


def test_an_error_while_healing_never_stops_the_others_and_is_reported(nemesis: Scripted, world: list[str]) -> None:
    nemesis.hooks["undo", 2] = fail("no answer from the engine")
    conductor, journal = conduct(nemesis, spec(1), spec(2, at_s=0.02), spec(3, at_s=0.04))
    await_states(conductor, FaultState.LIVE, FaultState.LIVE, FaultState.LIVE)
    healing = conductor.heal_all()
    assert not healing.ok
    assert len(healing.errors) == 1
    assert "fault 2 (scripted): cannot undo 2: no answer from the engine" in healing.errors[0]
    assert world[3:] == ["undo 3", "undo 1"]
    assert journal.steps(2)[-1] == ("heal", False)
    assert journal.rows[-1]["ok"] is False
    # the engine answers again: a second call heals what is left, and only that
    del nemesis.hooks["undo", 2]
    assert conductor.heal_all().ok
    assert world[5:] == ["undo 2"]
    assert conductor.outcomes()[1].state is FaultState.HEALED


def test_a_system_that_is_not_well_after_healing_keeps_its_nodes_from_other_faults(nemesis: Scripted) -> None:
    nemesis.hooks["heal", 1] = fail("still out of sync")
    conductor, journal = conduct(
        nemesis, spec(1, duration_s=0.02, node="n"), spec(2, at_s=0.15, duration_s=0.01, node="n")
    )
    assert conductor.wait(5)
    assert conductor.outcomes()[0].state is FaultState.UNHEALED
    assert journal.steps(2) == [("skip", False)]
    assert conductor.outcomes()[1].why == "n is held by fault 1"


def test_a_fault_that_may_not_act_is_skipped_with_the_reason(nemesis: Scripted, world: list[str]) -> None:
    conductor, journal = conduct(nemesis, spec(1), spec(2, at_s=0.05, limit=1))
    await_states(conductor, FaultState.LIVE, FaultState.SKIPPED)
    assert conductor.outcomes()[1].why == "g tolerates the loss of 1 node at once, not 2 (n1 already)"
    assert conductor.outcomes()[1].bit is None
    conductor.heal_all()
    nemesis.why_not = "no mirror runs"
    other, journal = conduct(nemesis, spec(7))
    assert other.wait(5)
    assert journal.rows == [
        {
            "fault_id": 7,
            "name": "scripted",
            "action": "skip",
            "cluster": "A",
            "target": None,
            "ok": False,
            "result": "no mirror runs",
            "params": {},
        }
    ]


def test_released_nodes_can_be_hit_again(nemesis: Scripted, world: list[str]) -> None:
    conductor, _ = conduct(
        nemesis, spec(1, duration_s=0.02, node="n"), spec(2, at_s=0.2, duration_s=0.02, node="n", limit=1)
    )
    assert conductor.wait(5)
    assert world == ["act 1", "undo 1", "act 2", "undo 2"]


def test_a_wait_of_an_injection_is_cut_short_and_undone(nemesis: Scripted, world: list[str]) -> None:
    nemesis.hooks["act", 1] = lambda context: context.wait(lambda: None, timeout_s=60, what="a sign")
    conductor, _journal = conduct(nemesis, spec(1))
    wait_until(lambda: world == ["act 1"], timeout_s=5, what="the act")
    began = time.monotonic()
    assert conductor.heal_all().ok
    assert time.monotonic() - began < 3
    assert world == ["act 1", "undo 1"]
    assert conductor.outcomes()[0].state is FaultState.UNDONE
    assert "while the fault waited for a sign" in conductor.outcomes()[0].why


def test_a_thread_that_is_stuck_is_given_up_and_its_late_act_undone(
    nemesis: Scripted, world: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hangs in the act, healing continues without it, and when the act takes effect later it is undone."""
    monkeypatch.setattr(conductor_module, "THREADS_S", 0.2)
    release = threading.Event()

    def hang(_: FaultContext) -> None:
        release.wait(10)
        world.append("late act 1")

    nemesis.hooks["act", 1] = hang
    conductor, _journal = conduct(nemesis, spec(1), spec(2, at_s=0.02))
    wait_until(lambda: world == ["act 1", "act 2"], timeout_s=5, what="both acts")
    began = time.monotonic()
    assert conductor.heal_all(timeout_s=5).ok
    assert time.monotonic() - began < 3
    assert world == ["act 1", "act 2", "undo 2", "undo 1"]
    assert conductor.outcomes()[0].state is FaultState.UNDONE
    release.set()
    assert conductor.wait(5)
    assert world[4:] == ["late act 1", "undo 1"]


def test_healing_that_hangs_is_bounded_and_named(
    nemesis: Scripted, world: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    nemesis.hooks["heal", 1] = lambda _: release.wait(20) and None
    monkeypatch.setattr(conductor_module, "THREADS_S", 0.2)
    conductor, _ = conduct(nemesis, spec(1))
    await_states(conductor, FaultState.LIVE)
    began = time.monotonic()
    try:
        healing = conductor.heal_all(timeout_s=2)
        assert time.monotonic() - began < 10
        assert "heal fault 1 (scripted)" in healing.errors[0]
        assert world == ["act 1", "undo 1"]  # what could be undone was
    finally:
        release.set()


def test_a_full_disk_does_not_stop_healing(nemesis: Scripted, world: list[str]) -> None:
    conductor, _journal = conduct(nemesis, spec(1), journal=Journal(full_disk_at="heal"))
    await_states(conductor, FaultState.LIVE)
    healing = conductor.heal_all()
    assert world == ["act 1", "undo 1"]
    assert healing.errors == ("step heal of fault 1 was not recorded: no space left on the disk",)


def test_a_crash_of_the_conductors_own_thread_leaves_nothing_behind(nemesis: Scripted, world: list[str]) -> None:
    lost = FaultSpec(fault_id=2, nemesis="unknown", at_s=0.05, duration_s=1, cluster="A", role="any")
    conductor, _journal = conduct(nemesis, spec(1), lost, spec(3, at_s=0.1))
    wait_until(lambda: conductor.error() is not None, timeout_s=5, what="the crash")
    healing = conductor.heal_all()
    assert world == ["act 1", "undo 1"]
    assert "the fault schedule ended early" in healing.errors[0]
    assert [outcome.state for outcome in conductor.outcomes()] == [
        FaultState.HEALED,
        FaultState.SKIPPED,
        FaultState.SKIPPED,
    ]


def test_a_skip_after_an_act_is_a_failure(nemesis: Scripted, world: list[str]) -> None:
    def too_late(_: FaultContext) -> None:
        raise FaultSkippedError("changed its mind")

    nemesis.hooks["act", 1] = too_late
    conductor, _journal = conduct(nemesis, spec(1))
    assert conductor.wait(5)
    assert world == ["act 1", "undo 1"]
    assert conductor.outcomes()[0].state is FaultState.FAILED
