"""The headline of a verdict: a valid one lists what was allowed, most severe first, in one line of bounded length."""

from __future__ import annotations

import pytest

from checkers.base import Severity
from checkers.catalogue import CATALOGUE
from checkers.judge.headline import LONGEST, Found, headline, why_green
from harness.core.contracts import Level, load

pytestmark = pytest.mark.unit


def found(kind: str, count: int, level: str = "allowed", cluster: str | None = "A", reason: str = "so it is") -> Found:
    return Found(CATALOGUE[kind], cluster, count, Level(level), reason)


def test_a_valid_verdict_lists_what_was_allowed() -> None:
    assert headline("valid", "", []) == "valid"
    one = [found("lost_write", 107)]
    assert headline("valid", "", one) == "valid, 107 allowed: A lost acknowledged writes (S1)"
    more = [found("duplicate", 3_000, cluster="B"), found("cycle_G0", 9_999), *one, found("duplicate", 1, cluster="C")]
    assert headline("valid", "", more) == (
        "valid, 13,107 allowed: B and C held values twice (S1, 3,001), A lost acknowledged writes (S1, 107), "
        "A let transactions overwrite each other in a cycle (S2, 9,999)"
    )


def test_a_design_that_broke_as_predicted_is_not_plainly_valid() -> None:
    predicted = [found("pid_swallowed", 4, "expected", "B")]
    assert headline("valid", "", predicted) == "broken as predicted: B treated new writes as duplicates (S1, 4)"
    both = [*predicted, found("topic_id", 2, cluster="B")]
    assert headline("valid", "", both) == (
        "broken as predicted: B treated new writes as duplicates (S1, 4); "
        "2 allowed: B had other topic IDs than its source (S4)"
    )


def test_never_allowed_comes_before_allowed_and_unknown_has_its_reason() -> None:
    both = [found("lost_write", 107), found("mirror_loss", 2, "never", "B"), found("stuck", 1, "expected", None)]
    assert headline("invalid", "ignored", both) == (
        "invalid, 2 never allowed: B lacked records of its source (S1); "
        "1 predicted: the system made no progress after healing (S3); 107 allowed: A lost acknowledged writes (S1)"
    )
    assert headline("unknown", "the run was interrupted", both) == "unknown: the run was interrupted"
    long = headline("unknown", "word " * 200, [])
    assert len(long) <= LONGEST
    assert long.endswith(" …")


def test_many_kinds_stay_one_bounded_line() -> None:
    every = [found(kind, n + 1) for n, kind in enumerate(CATALOGUE)]
    told = headline("valid", "", every)
    assert len(told) <= LONGEST
    assert told.startswith("valid, ")
    assert "\n" not in told


def test_a_valid_verdict_has_reasons() -> None:
    contract = load("kafka-clean+unclean-a")
    told = why_green(contract, [found("cycle_G0", 3, reason="no isolation"), found("lost_write", 1, reason="unclean")])
    assert told == (
        "nothing was found that the contract never allows; lost_write is allowed: unclean; "
        "cycle_G0 is allowed: no isolation"
    )
    assert "predicts" not in told
    nothing = why_green(load("cluster-mirror/kip-2026-02"), [])
    assert nothing.endswith("; nothing that the contract predicts of this design was seen")


def test_every_kind_has_a_phrase_to_follow_a_cluster_name() -> None:
    assert [k.name for k in CATALOGUE.values() if not k.violation and k.severity is not Severity.UNKNOWN] == []
    assert {len(f"A {k.violation}") < 80 for k in CATALOGUE.values()} == {True}
