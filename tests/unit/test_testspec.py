"""Parameters of a test."""

from __future__ import annotations

import pytest

from harness.core.errors import UsageError
from harness.core.testspec import TestSpec, check_name, parse_spec

pytestmark = pytest.mark.unit


def test_dashes_and_underscores_are_the_same() -> None:
    assert parse_spec({"time-limit": 5}, where="x") == parse_spec({"time_limit": 5}, where="x")


def test_a_comma_list_of_nemeses_is_split() -> None:
    assert parse_spec({"nemesis": "a, b,"}, where="x").nemesis == ("a", "b")


def test_a_spec_survives_json() -> None:
    spec = TestSpec(seed=4, nemesis=("broker-kill",), mirror_options={"k": "v"})
    assert parse_spec(spec.model_dump(mode="json"), where="run.json") == spec


@pytest.mark.parametrize(("brokers", "replication", "min_isr"), [(1, 1, 1), (2, 2, 2), (3, 3, 2), (9, 3, 2)])
def test_replication_follows_the_brokers(brokers: int, replication: int, min_isr: int) -> None:
    spec = TestSpec(brokers=brokers)
    assert (spec.replication, spec.min_isr) == (replication, min_isr)


@pytest.mark.parametrize("values", [{"controllers": 2}, {"name": "Has Space"}, {"producer": "idempotent", "acks": "1"}])
def test_impossible_combinations_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        parse_spec(values, where="x")


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean broker-kill"):
        check_name("nemesis", "broker-kil", ["broker-kill", "mirror-kill"])
    with pytest.raises(UsageError, match="known: a, b"):
        check_name("thing", "zzz", ["b", "a"])
