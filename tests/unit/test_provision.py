"""What is settled before a test starts: contracts that follow from faults and producers."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import UsageError
from harness.provision import make_plan
from harness.testspec import parse_spec

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


def test_what_producers_do_not_promise_is_always_in_the_contract() -> None:
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
