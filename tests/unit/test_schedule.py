"""The schedule: deterministic, within its bounds, complete, with quiet periods, stored and read back exactly."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import UsageError
from nemeses import DESCRIPTIONS, REGISTRY
from nemeses.base import FaultSpec, Shape
from nemeses.engine.schedule import (
    QUIET_END_S,
    QUIET_START_S,
    draw,
    from_json,
    least_time_limit_s,
    to_json,
)
from nemeses.engine.selection import parse

pytestmark = pytest.mark.unit

PAIR = Shape(brokers={"A": (1, 2, 3), "B": (1, 2, 3)}, topics=("t0", "t1"), partitions=4)
ALL = tuple(name for name, nemesis in REGISTRY.items() if not nemesis.timing.whole_run)
COMES_TO = (
    {"route": "A-B", "step": "stop.hold"},
    {"route": "A-B", "step": "stop.cut"},
    {"route": "B-A", "step": "prepare.led"},
    {"route": "B-A", "step": "stop.cut"},
)


def shapes() -> st.SearchStrategy[Shape]:
    def build(a: int, b: int, partitions: int, separate: bool, nodes: int) -> Shape:
        return Shape(
            brokers={"A": tuple(range(1, a + 1)), "B": tuple(range(1, b + 1))},
            topics=("t0", "t1", "t2"),
            partitions=partitions,
            separate_controllers=separate,
            mirror_nodes=nodes,
            replication=min(3, a, b),
        )

    return st.builds(build, st.integers(3, 9), st.integers(3, 9), st.integers(1, 50), st.booleans(), st.integers(1, 3))


@settings(deadline=None, max_examples=150)
@given(
    shape=shapes(),
    names=st.lists(st.sampled_from(ALL), min_size=1, max_size=len(ALL), unique=True),
    seed=st.integers(0, 2**63),
    extra=st.floats(0, 400),
)
def test_every_schedule_keeps_its_promises(shape: Shape, names: list[str], seed: int, extra: float) -> None:
    load_s = least_time_limit_s(names) + extra
    schedule = draw(names, shape, seed=seed, load_s=load_s)
    assert draw(names, shape, seed=seed, load_s=load_s) == schedule
    assert {spec.nemesis for spec in schedule} == set(names)
    assert [spec.fault_id for spec in schedule] == list(range(1, len(schedule) + 1))
    assert [spec.at_s for spec in schedule] == sorted(spec.at_s for spec in schedule)
    for spec in schedule:
        timing = REGISTRY[spec.nemesis].timing
        assert spec.at_s >= QUIET_START_S
        assert timing.least_s - 0.001 <= spec.duration_s <= timing.most_s
        assert end_s(spec) <= load_s - QUIET_END_S + 0.01
        nemesis = REGISTRY[spec.nemesis]
        assert spec.role in (nemesis.default_roles or nemesis.roles)
    assert from_json(json.loads(json.dumps(to_json(schedule)))) == schedule


@settings(deadline=None, max_examples=100)
@given(shape=shapes(), seed=st.integers(0, 2**32), load_s=st.floats(90, 600))
def test_faults_of_one_time_do_not_get_into_each_others_way(shape: Shape, seed: int, load_s: float) -> None:
    """At the drawn times, no link or mirror has two faults, and no cluster more victims than its minority."""
    schedule = draw(ALL, shape, seed=seed, load_s=load_s)
    for spec in schedule:
        beside = [other for other in schedule if other is not spec and overlap(spec, other)]
        assert len(beside) <= 2
        if spec.cluster == "link":
            assert all(other.params.get("link") != spec.params["link"] for other in beside if other.cluster == "link")
        elif spec.cluster == "mirror":
            assert all(other.cluster != "mirror" for other in beside)
        else:
            victims = [other for other in beside if other.cluster == spec.cluster]
            assert len(victims) < max(1, (len(shape.brokers[spec.cluster]) - 1) // 2)
            if spec.nemesis == "unclean-election":
                assert not victims
                assert spec.cluster == "A" or not beside


def end_s(spec: FaultSpec) -> float:
    return spec.at_s + spec.duration_s + REGISTRY[spec.nemesis].timing.settle_s


def overlap(one: FaultSpec, other: FaultSpec) -> bool:
    return one.at_s < end_s(other) - 0.01 and other.at_s < end_s(one) - 0.01


def test_a_long_load_has_faults_at_once_and_quiet_periods() -> None:
    schedule = draw(["link-partition", "broker-pause", "mirror-kill"], PAIR, seed=7, load_s=600)
    assert any(overlap(a, b) for a, b in pairwise(schedule))
    ends = [max(end_s(spec) for spec in schedule[:n]) for n in range(1, len(schedule))]
    gaps = [spec.at_s - end for spec, end in zip(schedule[1:], ends, strict=True)]
    quiet = [gap for gap in gaps if gap >= 2.0]
    windows = sum(gap > -0.01 for gap in gaps) + 1
    assert 0.1 < len(quiet) / windows < 0.4
    assert len(schedule) > 60  # of 600 s most are not quiet


def test_other_seeds_give_other_schedules() -> None:
    drawn = [draw(ALL, PAIR, seed=seed, load_s=120) for seed in range(20)]
    assert len({json.dumps(to_json(schedule)) for schedule in drawn}) == 20
    clusters = {spec.cluster for schedule in drawn for spec in schedule if spec.nemesis == "unclean-election"}
    assert clusters == {"A", "B"}
    roles = {spec.role for schedule in drawn for spec in schedule if spec.nemesis == "broker-kill"}
    assert roles == {"leader", "follower", "controller", "any"}


FAILOVER = dataclasses.replace(
    PAIR,
    moments=("stop.A-B", "stopping.A-B", "work", "write.B", "settle", "end"),
    moment_links=("A", "B"),
    links=("A",),
)


@pytest.mark.parametrize(
    ("text", "at_step", "until", "duration_s"),
    [
        ("broker-kill:A/all@stop", "stop.A-B", "settle", 0),
        ("broker-kill:A@stopping.A-B..write", "stopping.A-B", "write.B", 0),
        ("broker-pause:A+how=sigstop@work..2.5s", "work", "settle", 2.5),
        ("link-partition:B/all@settle", "settle", "end", 0),
        ("retention@write.B..end", "write.B", "end", 0),
    ],
)
def test_faults_of_moments_begin_and_end_there(text: str, at_step: str, until: str, duration_s: float) -> None:
    (fault,) = draw([text], FAILOVER, seed=1, load_s=1)
    assert (fault.at_step, fault.until, fault.at_s, fault.duration_s) == (at_step, until, 0, duration_s)
    (stored,) = to_json([fault])
    assert from_json(json.loads(json.dumps([stored]))) == (fault,)
    with_load = draw(["mirror-kill", text], FAILOVER, seed=1, load_s=60)
    assert [bool(f.at_step) for f in with_load] == [False] * (len(with_load) - 1) + [True]
    assert [f.fault_id for f in with_load] == list(range(1, len(with_load) + 1))
    assert all("at_step" not in row and "until" not in row for row in to_json(with_load[:-1]))


def test_a_whole_cluster_and_the_coordinator_are_never_drawn() -> None:
    shape = dataclasses.replace(FAILOVER, state_on=("B",))
    drawn = [f for seed in range(40) for f in draw(["broker-kill", "broker-pause"], shape, seed=seed, load_s=120)]
    assert {f.role for f in drawn} == {"leader", "follower", "controller", "any"}
    assert draw(["broker-pause:B/coordinator"], shape, seed=1, load_s=60)[0].role == "coordinator"
    with pytest.raises(UsageError, match="role 'coordinator' does not exist"):
        draw(["broker-pause:A/coordinator"], shape, seed=1, load_s=60)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("broker-kill@stpo", "the scenario has no moment 'stpo'; did you mean stop"),
        ("broker-kill@end", "the scenario has no moment 'end'"),
        ("broker-kill@write..stop", "the scenario after write has no moment 'stop'; known: end, settle"),
        ("broker-kill@write..", "the scenario has no moment 'write..'"),
        ("broker-kill@write..0s", "a fault of 0 s breaks nothing"),
        ("mirror-crash@stop", "mirror-crash waits for a step of its own; leave out @stop"),
        ("broker-kill@", "cannot be read; write NAME"),
    ],
)
def test_moments_that_do_not_exist_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        draw([text], FAILOVER, seed=1, load_s=60)


def test_durations_scale_with_the_load() -> None:
    short = [s.duration_s for seed in range(30) for s in draw(["broker-pause"], PAIR, seed=seed, load_s=18)]
    long = [s.duration_s for seed in range(30) for s in draw(["broker-pause"], PAIR, seed=seed, load_s=120)]
    assert max(short) <= 3.0
    assert 7.0 < max(long) <= 8.0


def test_no_nemesis_gives_no_fault() -> None:
    assert draw([], PAIR, seed=1, load_s=1) == ()
    assert least_time_limit_s([]) == 0


def test_a_load_that_is_too_short_is_refused_with_the_least_time() -> None:
    names = ["unclean-election", "broker-kill"]
    least = least_time_limit_s(names)
    with pytest.raises(UsageError, match=rf"time limit of 20 s is too short for .*; give at least {least:g} s"):
        draw(names, PAIR, seed=1, load_s=20)
    assert draw(names, PAIR, seed=1, load_s=least)


def test_the_default_campaign_fits_its_time() -> None:
    """Names and time limits of `shatter campaign default`."""
    assert least_time_limit_s(["link-partition", "broker-pause"]) <= 40
    assert least_time_limit_s(["unclean-election:A"]) <= 40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("broker-kil", "no nemesis is called 'broker-kil'; did you mean broker-kill or"),
        ("broker-kill:C", "no cluster 'C' to act on; known: A, B"),
        ("broker-kill:A/leadr", "no role 'leadr'; did you mean leader?"),
        ("broker-kill+how=sigstop", "no parameter 'how' to fix; it has none"),
        ("broker-pause+how=freeze", "how cannot be 'freeze'; known: cgroup, sigstop"),
        ("link-partition+mode", "no parameter 'mode' to fix"),
        ("link-partition+mode=down+direction=to_cluster", "only mode=black_hole cuts one direction alone"),
        ("broker-kill/leader", "no nemesis is called 'broker-kill/leader'"),
        ("", "cannot be read; write NAME"),
    ],
)
def test_a_wrong_selection_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        draw([text], PAIR, seed=1, load_s=100)


def test_a_selection_fixes_cluster_role_and_parameters() -> None:
    text = "broker-pause:B/follower+how=sigstop"
    selection = parse(text)
    assert (selection.cluster, selection.role, dict(selection.fixed)) == ("B", "follower", {"how": "sigstop"})
    for spec in draw([text, "link-partition:A+mode=down"], PAIR, seed=3, load_s=100):
        if spec.nemesis == "broker-pause":
            assert (spec.cluster, spec.role, spec.params["how"]) == ("B", "follower", "sigstop")
        else:
            assert (spec.params["link"], spec.params["mode"], spec.params["direction"]) == ("A", "down", "both")


def test_the_eligible_leader_case_is_drawn_only_when_asked_for() -> None:
    drawn = {spec.role for seed in range(30) for spec in draw(["unclean-election"], PAIR, seed=seed, load_s=90)}
    assert drawn == {"leader"}
    assert {spec.role for spec in draw(["unclean-election:A/elr"], PAIR, seed=0, load_s=90)} == {"elr"}


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("mirror-kill", Shape(brokers={"A": (1,)}, topics=("t",), partitions=1, mirror_nodes=0), "needs a mirror"),
        (
            "link-partition",
            Shape(brokers={"A": (1,)}, topics=("t",), partitions=1, links=()),
            "needs a mirror whose",
        ),
        ("unclean-election", Shape(brokers={"A": (1, 2)}, topics=("t",), partitions=1), "at least three brokers"),
        ("broker-partition", Shape(brokers={"A": (1,)}, topics=("t",), partitions=1, replication=1), "two brokers"),
    ],
)
def test_a_nemesis_that_cannot_act_on_the_run_is_refused(name: str, shape: Shape, message: str) -> None:
    with pytest.raises(UsageError, match=f"nemesis {name} cannot act on this run: it needs .*{message[6:]}"):
        draw([name], shape, seed=1, load_s=100)


def test_a_small_run_has_no_role_that_does_not_exist() -> None:
    one = Shape(brokers={"A": (1,), "B": (1,)}, topics=("t",), partitions=1, replication=1)
    roles = {spec.role for seed in range(30) for spec in draw(["broker-kill"], one, seed=seed, load_s=60)}
    assert roles == {"leader", "controller", "any"}
    with pytest.raises(UsageError, match="role 'follower' does not exist on clusters of this size"):
        draw(["broker-kill:A/follower"], one, seed=1, load_s=60)
    parts = [spec for seed in range(30) for spec in draw(["link-partition"], one, seed=seed, load_s=60)]
    assert {spec.role for spec in parts} == {"all"}


def test_a_crash_point_is_active_over_the_whole_run_with_other_faults() -> None:
    shape = dataclasses.replace(PAIR, crash_points=COMES_TO)
    drawn = [draw(["mirror-crash", "broker-kill"], shape, seed=seed, load_s=60) for seed in range(40)]
    crashes = [[spec for spec in schedule if spec.nemesis == "mirror-crash"] for schedule in drawn]
    assert [(len(one), one[0].at_s, one[0].duration_s) for one in crashes] == [(1, 0.0, 0.0)] * 40
    assert {(one[0].params["route"], one[0].params["step"]) for one in crashes} == {
        (point["route"], point["step"]) for point in COMES_TO
    }
    assert {spec.nemesis for spec in draw(["mirror-crash"], shape, seed=1, load_s=8)} == {"mirror-crash"}


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("mirror-crash+step=stop.cut", {("A-B", "stop.cut"), ("B-A", "stop.cut")}),
        ("mirror-crash+route=B-A", {("B-A", "prepare.led"), ("B-A", "stop.cut")}),
        ("mirror-crash+step=stop.hold+route=A-B", {("A-B", "stop.hold")}),
    ],
)
def test_a_crash_point_fixed_by_a_user_keeps_to_the_steps_of_the_run(text: str, points: set[tuple[str, str]]) -> None:
    shape = dataclasses.replace(PAIR, crash_points=COMES_TO)
    drawn = {(s.params["route"], s.params["step"]) for n in range(40) for s in draw([text], shape, seed=n, load_s=9)}
    assert drawn == points


def test_a_crash_point_that_the_run_does_not_reach_is_refused() -> None:
    shape = dataclasses.replace(PAIR, crash_points=COMES_TO)
    with pytest.raises(UsageError, match=r"'mirror-crash\+step=reconcile.cut': the run does not reach it"):
        draw(["mirror-crash+step=reconcile.cut"], shape, seed=1, load_s=60)
    with pytest.raises(UsageError, match="needs a mirror with named steps"):
        draw(["mirror-crash"], PAIR, seed=1, load_s=60)


GOOD = {
    "fault_id": 1,
    "nemesis": "broker-kill",
    "at_s": 3,
    "duration_s": 2.5,
    "cluster": "A",
    "role": "any",
    "params": {},
}


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({}, "run.json must be a list of faults, not dict"),
        ([3], "run.json, fault 1 must be an object, not int"),
        ([GOOD, {**GOOD, "fault_id": 2, "at": 1}], "run.json, fault 2: unknown key 'at'"),
        ([{k: v for k, v in GOOD.items() if k != "role"}], "run.json, fault 1 has no 'role'"),
        ([{**GOOD, "at_s": "soon"}], "run.json, fault 1: 'at_s' is 'soon', which is no float"),
        ([{**GOOD, "fault_id": True}], "'fault_id' is True, which is no int"),
        ([{**GOOD, "at_s": -1}], "must not be negative"),
        ([{**GOOD, "nemesis": "asteroid"}], "no nemesis is called 'asteroid'; known: broker-kill"),
        ([GOOD, GOOD], "two faults have the same fault_id"),
    ],
)
def test_a_damaged_schedule_is_refused_with_its_place(stored: object, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        from_json(stored, where="run.json")


def test_a_good_stored_schedule_is_read() -> None:
    assert from_json([GOOD]) == (FaultSpec(**GOOD),)  # type: ignore[arg-type]


def test_the_registry_is_complete() -> None:
    assert set(DESCRIPTIONS) == set(REGISTRY)
    colors = [nemesis.color for nemesis in REGISTRY.values()]
    assert len(set(colors)) == len(colors)
    for name, nemesis in REGISTRY.items():
        assert nemesis.name == name
        assert "\n" not in nemesis.description
        assert set(nemesis.default_roles) <= set(nemesis.roles)
        assert nemesis.kind in ("broker", "link", "mirror")
        assert nemesis.timing.least_s <= nemesis.timing.most_s
