"""The scoreboard: every claim can be run, and stored runs count for the right designs only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.contracts import Level, load
from harness.core.errors import UsageError
from harness.core.testspec import TestSpec
from harness.history.runfile import RUN_FILE
from harness.history.runmeta import RunMeta, TestParameters
from harness.report import scoreboard_page as page
from harness.report.scoreboard import (
    Claim,
    Outcome,
    Role,
    claim_results,
    load_claims,
    missing,
    named,
    outcome,
    publish,
    published,
    read_published,
    stored_results,
)
from harness.run.plan import make_plan
from mirrors.reference.server.design import PRESETS, design_values, parse_design

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs"

CLAIMS = load_claims()
TESTED = [(claim, design) for claim in CLAIMS if claim.test is not None for design in (*claim.holds, *claim.breaks)]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_can_be_broken_and_held(claim: Claim) -> None:
    assert claim.holds
    assert claim.breaks
    assert claim.argument
    assert (claim.test is None) == bool(claim.why_not)
    assert set(claim.kinds) <= set(load("cluster-mirror/strict").clauses)
    for design in (*claim.holds, *claim.breaks):
        parse_design(design.split())


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"strict"}))
def test_each_preset_is_run_over_a_failover_and_a_failback_for_kinds_that_its_contract_expects(preset: str) -> None:
    mine = [claim for claim in CLAIMS if claim.breaks == (preset,)]
    assert {claim.test["scenario"] for claim in mine if claim.test is not None} == {"failover", "failback"}
    contract = load(f"cluster-mirror/{preset}")
    expected = {kind for kind in contract.clauses if contract.clause(kind, cluster="B").level is Level.EXPECTED}
    for claim in mine:
        assert claim.each
        assert set(claim.kinds) <= expected
        assert claim.holds == ("",)


@pytest.mark.parametrize(("claim", "design"), TESTED)
def test_every_test_of_a_claim_can_be_planned(claim: Claim, design: str) -> None:
    plan = make_plan(claim.spec(design))
    assert plan.contract.startswith("cluster-mirror/")


@pytest.mark.parametrize(
    ("role", "broken", "others", "verdicts", "expected"),
    [
        (Role.HOLDS, False, False, [], Outcome.NOT_RUN),
        (Role.HOLDS, False, False, ["valid"], Outcome.SHOWN),
        (Role.HOLDS, False, False, ["unknown"], Outcome.UNKNOWN),
        (Role.HOLDS, True, False, ["valid", "invalid"], Outcome.CONTRADICTED),
        (Role.HOLDS, True, True, ["invalid"], Outcome.CONTRADICTED),
        (Role.HOLDS, False, True, ["invalid"], Outcome.OTHERS),
        (Role.BREAKS, True, False, ["valid"], Outcome.SHOWN),
        (Role.BREAKS, True, True, ["invalid"], Outcome.OTHERS),
        (Role.BREAKS, False, False, ["valid"], Outcome.NOT_SHOWN),
        (Role.BREAKS, False, False, [], Outcome.NOT_RUN),
    ],
)
def test_outcomes(role: Role, broken: bool, others: bool, verdicts: list[str], expected: Outcome) -> None:
    assert outcome(role, broken=broken, others=others, verdicts=verdicts) is expected


CLAIM = Claim(
    name="swallowed",
    argument="ids",
    holds=("",),
    breaks=("producer_ids=verbatim",),
    kinds=("pid_swallowed",),
    test={"scenario": "failover"},
)


def store(
    folder: Path,
    name: str,
    design: str,
    *,
    found: dict[str, int],
    valid: Any = True,
    allowed: set[str] | None = None,
    **more: Any,
) -> None:
    """A run's folder as `shatter run` leaves it, without its tables. allowed: kinds; None: all of them."""
    spec = TestSpec(name=name, mirror="reference", **{"scenario": "failover", **more})
    path = folder / name
    path.mkdir(parents=True)
    test = TestParameters(
        mirror="reference",
        spec=spec.model_dump(mode="json"),
        mirror_options=dict(design_values(parse_design(design.split()))),
    )
    meta = RunMeta(run_id=name, status="finished", test=test)
    (path / RUN_FILE).write_text(meta.model_dump_json())
    anomalies = {
        kind: {"count": count, "severity": "S1", "allowed": allowed is None or kind in allowed}
        for kind, count in found.items()
    }
    (path / "results.json").write_text(json.dumps({"valid": valid, "contract": "x", "anomalies": anomalies}))


def test_runs_count_for_their_own_design_and_test(tmp_path: Path) -> None:
    store(tmp_path, "one", "", found={"pid_collision": 3})
    store(tmp_path, "two", "producer_ids=verbatim", found={"pid_swallowed": 2})
    store(tmp_path, "three", "producer_ids=verbatim", found={"pid_swallowed": 5})
    store(tmp_path, "steady", "producer_ids=verbatim", found={"pid_swallowed": 100}, scenario="steady")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / RUN_FILE).write_text("{")
    stored = stored_results(tmp_path)
    assert len(stored) == 4
    holds, breaks = claim_results(CLAIM, stored)
    assert (holds.outcome, holds.runs, holds.found) == (Outcome.SHOWN, ("one",), {})
    assert (breaks.outcome, breaks.runs, breaks.found) == (Outcome.SHOWN, ("three", "two"), {"pid_swallowed": 7})
    assert (holds.shown, breaks.shown) == (1, 2)


def test_missing_tests_run_until_every_design_has_enough(tmp_path: Path) -> None:
    holds, breaks = CLAIM.spec(""), CLAIM.spec("producer_ids=verbatim")
    twin = replace(CLAIM, name="twin")  # shares the first one's runs
    assert missing([CLAIM, twin], []) == [holds, breaks, holds, breaks, holds, breaks, holds, holds]
    for n in range(4):
        store(tmp_path, f"h{n}", "", found={})
        store(tmp_path, f"b{n}", "producer_ids=verbatim", found={"pid_swallowed": 2})
    assert missing([CLAIM], stored_results(tmp_path)) == [holds]


def test_a_published_board_is_read_and_other_files_are_refused(tmp_path: Path) -> None:
    assert read_published(DOCS / "claims.json")
    (tmp_path / "c.json").write_text("[{}]")
    for none in ("c.json", "absent.json"):
        with pytest.raises(UsageError, match=r"is no claims\.json"):
            read_published(tmp_path / none)


def test_claims_are_chosen_by_name() -> None:
    claims = load_claims()
    assert named(claims, ()) == claims
    assert [one.name for one in named(claims, ["state topic", "restart"])] == ["restart", "state topic"]
    with pytest.raises(UsageError, match=r"no claim is called 'restrat'.*restart"):
        named(claims, ["restrat"])


def test_runs_that_do_not_show_a_claim_are_counted_too(tmp_path: Path) -> None:
    store(tmp_path, "valid", "", found={})
    store(tmp_path, "thin", "", found={}, valid="unknown")
    store(tmp_path, "broke", "producer_ids=verbatim", found={"pid_swallowed": 2})
    store(tmp_path, "did-not", "producer_ids=verbatim", found={})
    holds, breaks = found = claim_results(CLAIM, stored_results(tmp_path))
    assert [(f.outcome, f.shown, len(f.runs)) for f in found] == [(Outcome.SHOWN, 1, 2), (Outcome.SHOWN, 1, 2)]
    text = page.markdown([(CLAIM, [holds, breaks])])
    assert "| shown, 1 of 2 |" in text
    assert "| shown, 1 of 2: pid_swallowed 2 |" in text


def test_kinds_that_the_contract_never_allows_are_an_outcome_of_their_own(tmp_path: Path) -> None:
    store(tmp_path, "one", "producer_ids=verbatim", found={"pid_swallowed": 2, "stuck": 1}, allowed={"pid_swallowed"})
    _, breaks = claim_results(CLAIM, stored_results(tmp_path))
    assert (breaks.outcome, breaks.forbidden) == (Outcome.OTHERS, ("stuck",))
    assert "other kinds found, 0 of 1: pid_swallowed 2; not allowed: stuck" in page.markdown([(CLAIM, [breaks])])


def test_a_claim_of_each_kind_wants_all_of_them(tmp_path: Path) -> None:
    claim = replace(CLAIM, kinds=("lost_write", "pid_swallowed"), each=True)
    store(tmp_path, "one", "producer_ids=verbatim", found={"pid_swallowed": 2})
    _, breaks = claim_results(claim, stored_results(tmp_path))
    assert (breaks.outcome, breaks.missing) == (Outcome.NOT_SHOWN, ("lost_write",))
    assert "not shown, 0 of 1: pid_swallowed 2; not found: lost_write" in page.markdown([(claim, [breaks])])
    store(tmp_path, "two", "producer_ids=verbatim", found={"lost_write": 1})
    _, breaks = claim_results(claim, stored_results(tmp_path))
    assert (breaks.outcome, breaks.missing) == (Outcome.SHOWN, ())


def test_a_published_board_gives_the_same_board_and_holds_no_other_runs(tmp_path: Path) -> None:
    store(tmp_path, "one", "", found={"cross_partition": 3})
    store(tmp_path, "two", "producer_ids=verbatim", found={"pid_swallowed": 2})
    store(tmp_path, "other", "acl_sync=off", found={})
    stored = stored_results(tmp_path)
    text = publish(stored, [CLAIM])
    assert [one["run"] for one in json.loads(text)] == ["one", "two"]
    assert claim_results(CLAIM, published(text)) == claim_results(CLAIM, stored)


def test_the_pages_name_every_design_and_what_was_found(tmp_path: Path) -> None:
    store(tmp_path, "two", "producer_ids=verbatim", found={"pid_swallowed": 2})
    board = [(CLAIM, claim_results(CLAIM, stored_results(tmp_path)))]
    text = page.markdown(board)
    assert "| swallowed | strict | hold | pid_swallowed | not run |  |" in text
    assert (
        "| swallowed | producer_ids=verbatim | break | pid_swallowed | shown, 1 of 1: pid_swallowed 2 | two |" in text
    )
    assert "<td>shown, 1 of 1: pid_swallowed 2</td>" in page.html(board)
