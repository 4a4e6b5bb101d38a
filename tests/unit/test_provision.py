"""What is decided before a test starts: contracts that follow from faults and producers."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.errors import UsageError
from harness.core.testspec import parse_spec
from harness.run.plan import make_plan

pytestmark = pytest.mark.unit


def contract(**values: Any) -> str:
    return make_plan(parse_spec(values, where="test")).contract


def test_the_contract_is_the_mirrors_own_unless_chosen() -> None:
    assert contract() == "mm2-exactly-once"
    assert contract(contract="mm2-at-least-once") == "mm2-at-least-once"


def test_faults_that_lose_acknowledged_writes_are_in_the_default_contract_only() -> None:
    values: dict[str, Any] = {"nemesis": "unclean-election:A", "time-limit": 40, "min-insync-replicas": 1}
    assert contract(**values) == "mm2-exactly-once+unclean-a"
    assert contract(**values, contract="mm2-exactly-once") == "mm2-exactly-once"


def test_missing_guarantees_of_producers_are_always_in_the_contract() -> None:
    assert contract(producer="plain") == "mm2-exactly-once+plain-producers"
    assert contract(producer="plain", acks="1", contract="mm2-at-least-once+unclean") == (
        "mm2-at-least-once+unclean+plain-producers+acks-1"
    )
    assert contract(producer="plain", contract="mm2-exactly-once+plain-producers") == "mm2-exactly-once+plain-producers"


def test_the_same_seed_draws_the_same_schedule() -> None:
    values: dict[str, Any] = {"nemesis": "link-partition,broker-pause", "time-limit": 40}

    def schedule(seed: int) -> Any:
        return make_plan(parse_spec({**values, "seed": seed}, where="test")).schedule

    assert schedule(3) == schedule(3)
    assert schedule(3) != schedule(4)


def test_a_contract_that_the_mirror_does_not_promise_is_refused() -> None:
    with pytest.raises(UsageError, match="mm2-exactly-once"):
        contract(contract="cluster-mirror/strict")


def crash_points(**values: Any) -> set[tuple[str, str]]:
    """(route, step) of 60 seeds' crash points."""
    keys: dict[str, Any] = {"mirror": "reference", "nemesis": "mirror-crash", "time-limit": 40, **values}
    plans = (make_plan(parse_spec({**keys, "seed": seed}, where="test")) for seed in range(60))
    drawn = [spec for plan in plans for spec in plan.schedule if spec.nemesis == "mirror-crash"]
    return {(spec.params["route"], spec.params["step"]) for spec in drawn}


def test_crash_points_are_those_that_the_scenario_reaches() -> None:
    kinds = {(route, step.partition(".")[0]) for route, step in crash_points(scenario="failover-failback")}
    assert kinds == {("A-B", "stop"), ("B-A", "prepare"), ("B-A", "stop")}
    assert {route for route, _ in crash_points(scenario="failover")} == {"A-B"}
    again = crash_points(scenario="round-trip", nemesis="mirror-crash+route=A-B")
    assert {step.partition(".")[0] for _, step in again} == {"prepare", "stop"}
    cut = crash_points(nemesis="mirror-crash,unclean-election:A")
    assert {(route, step.partition(".")[0]) for route, step in cut} == {("A-B", "reconcile")}


@pytest.mark.parametrize("values", [{"scenario": "steady"}, {"scenario": "failover", "mirror": "mm2"}])
def test_a_run_that_reaches_no_step_has_no_crash_point(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="needs a mirror with named steps"):
        crash_points(**values)
