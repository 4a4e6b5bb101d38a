"""The workload `administration`: what its administrator does on which cluster, and what is recorded."""

from __future__ import annotations

from itertools import islice

import pytest

from harness.history.ops import F
from harness.wire.administration import agreed
from harness.wire.client import WireError
from workloads.admin_plan import Act, AdminPlan, Situation, situation

pytestmark = pytest.mark.unit

TOPICS = ("append-0", "append-1")
UNDER_LOAD = situation("A", ("A", "B"), {"A": True, "B": False})
AFTER_FAILOVER = situation("A", ("A", "B"), {"B": True})


def drawn(where: Situation, count: int = 60, *, authorizer: bool = True, seed: int = 3) -> list[Act]:
    return list(islice(AdminPlan(seed=seed, topics=TOPICS, authorizer=authorizer).acts(where), count))


def test_situations() -> None:
    assert Situation(source="A", writable=("A",), mirrored_to=("B",), left=()) == UNDER_LOAD
    assert Situation(source="A", writable=("B",), mirrored_to=(), left=("A",)) == AFTER_FAILOVER


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(UNDER_LOAD) == drawn(UNDER_LOAD) != drawn(UNDER_LOAD, seed=4)


def test_under_load_the_source_is_configured_and_only_the_destination_denies() -> None:
    acts = drawn(UNDER_LOAD)
    assert {a.cluster for a in acts if a.f is F.ALTER_CONFIG} == {"A"}
    made = [(a.cluster, a.binding.permission) for a in acts if a.f is F.ACL_CREATE and a.binding]
    assert set(made) == {("A", "ALLOW"), ("B", "DENY")}
    assert {(a.cluster, a.binding.permission) for a in acts if a.f is F.ACL_DELETE and a.binding} == {("A", "ALLOW")}


def test_after_the_failover_both_are_configured_differently() -> None:
    acts = [a for a in drawn(AFTER_FAILOVER) if a.f is F.ALTER_CONFIG]
    assert {a.cluster for a in acts[:2]} == {"A", "B"}
    retention = [a.entries["retention.ms"] for a in acts]
    assert len(set(retention)) == len(retention)
    assert min(int(ms) for ms in retention) >= 2 * 24 * 3600 * 1000


def test_a_rule_is_deleted_only_after_it_was_made() -> None:
    made: set[tuple[str, str]] = set()
    for act in drawn(UNDER_LOAD, 200):
        place = (act.cluster, act.value)
        if act.f is F.ACL_CREATE:
            made.add(place)
        elif act.f is F.ACL_DELETE:
            made.remove(place)


def test_without_an_authorizer_only_configurations_change() -> None:
    assert {a.f for a in drawn(UNDER_LOAD, authorizer=False)} == {F.ALTER_CONFIG}


def test_a_snapshot_counts_when_all_brokers_that_answer_agree() -> None:
    says = iter([([1, 2], []), ([], ["broker 1 is silent"]), ([1, 1], []), ([2], ["broker 1 is silent"])])
    assert agreed(lambda: next(says), lambda n: n > 1, within_s=5, what="it", again_s=0) == 2


def test_brokers_that_never_agree_are_given_up_in_time() -> None:
    with pytest.raises(WireError, match=r"waited 0 s for all brokers to show it \(broker 3 is silent\)"):
        agreed(lambda: ([1, 2], ["broker 3 is silent"]), lambda _: True, within_s=0, what="it")
