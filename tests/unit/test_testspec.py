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


def test_configurations_may_be_numbers_and_booleans() -> None:
    spec = parse_spec({"topic-config": {"a": True, "b": 5, "c": "x", "d": 0.5}}, where="x")
    assert spec.topic_config == {"a": "true", "b": "5", "c": "x", "d": "0.5"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"topic-config": {"min.insync.replicas": 1}}, "use --min-insync-replicas"),
        ({"topic-config": {"cleanup.policy": "compact"}}, "use --cleanup-policy"),
        ({"broker-config": {"AB:x": "1"}}, "'AB:x' is not a key"),
        ({"broker-config": {"": "1"}}, "'' is not a key"),
        ({"broker-config": {"x": ["1"]}}, "broker-config.x"),
        ({"format-feature": {"mirror.version": "one"}}, "mirror.version=one is not a feature and its level"),
        ({"format-feature": {"x; rm": "1"}}, "is not a feature and its level"),
        ({"source-image": " "}, "'source-image' is empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_spec(values, where="x")


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean broker-kill"):
        check_name("nemesis", "broker-kil", ["broker-kill", "mirror-kill"])
    with pytest.raises(UsageError, match="known: a, b"):
        check_name("thing", "zzz", ["b", "a"])
