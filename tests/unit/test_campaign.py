"""Campaign files: defaults, matrices, names, and one clear sentence per mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.run.campaign import builtin_campaigns, load_campaign, parse_campaign
from harness.run.plan import make_plan

pytestmark = pytest.mark.unit


def test_defaults_reach_every_test_and_a_test_wins() -> None:
    campaign = parse_campaign(
        """
        name = "x"
        [defaults]
        time-limit = 7
        seed = 3
        [[test]]
        name = "one"
        [[test]]
        name = "two"
        seed = 9
        """,
        where="t.toml",
    )
    assert campaign.name == "x"
    assert [(t.name, t.time_limit, t.seed) for t in campaign.tests] == [("one", 7, 3), ("two", 7, 9)]


def test_a_matrix_is_every_combination_with_distinct_names() -> None:
    campaign = parse_campaign(
        """
        [[test]]
        name = "m"
        [test.matrix]
        seed = [1, 2]
        nemesis = [["broker-kill"], ["broker-pause", "link-partition"]]
        """,
        where="t.toml",
    )
    assert [(t.seed, t.nemesis) for t in campaign.tests] == [
        (1, ("broker-kill",)),
        (1, ("broker-pause", "link-partition")),
        (2, ("broker-kill",)),
        (2, ("broker-pause", "link-partition")),
    ]
    names = [t.name for t in campaign.tests]
    assert len(set(names)) == 4
    assert names[0] == "m-broker-kill-seed-1"


def test_tests_without_names_get_different_ones() -> None:
    campaign = parse_campaign("[[test]]\nseed = 1\n[[test]]\nseed = 1\n", where="t.toml")
    assert len({t.name for t in campaign.tests}) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[test]]\nsede = 1\n", ["t.toml, [[test]] number 1", "'sede'", "did you mean seed"]),
        ("nam = 'x'\n[[test]]\n", ["t.toml", "'nam'", "did you mean name"]),
        ("name = 'x'\n", ["t.toml", "no test"]),
        ("[[test]]\nbrokers = 0\n", ["[[test]] number 1", "'brokers'", "greater than or equal to 1"]),
        ("[[test]]\nproducer = 'fast'\n", ["'producer'", "'fast'", "idempotent"]),
        ("[[test]]\nbrokers = 2\nmin-insync-replicas = 3\n", ["min-insync-replicas 3", "2 replicas"]),
        ("[[test]]\nproducer = 'idempotent'\nacks = '1'\n", ["acks=all"]),
        ("[[test]\n", ["t.toml is not valid TOML"]),
        ("defaults = 3\n[[test]]\n", ["[defaults]", "table"]),
        ("[[test]]\n[test.matrix]\nseed = 3\n", ["'seed'", "list"]),
        ("name = 3\n[[test]]\n", ["'name'", "string"]),
    ],
)
def test_mistakes_are_named_with_the_fix(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_campaign(text, where="t.toml")
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_builtin_campaigns_are_valid_and_found_by_name() -> None:
    assert "default" in builtin_campaigns()
    for name in builtin_campaigns():
        plans = [make_plan(spec) for spec in load_campaign(name).tests]
        assert plans
        assert all(plan.schedule for plan in plans)
    assert len(load_campaign("default").tests) >= 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml does not exist"):
        load_campaign(str(tmp_path / "none.toml"))
