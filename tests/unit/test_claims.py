"""The scoreboard: every claim can be run, and stored runs are counted for the right designs only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.claims import Claim, Outcome, Role, findings, load_claims, missing, outcome, stored_results
from harness.contracts import load
from harness.history.runfile import RUN_FILE
from harness.history.runmeta import RunMeta, TestParameters
from harness.mirrors.reference.design import design_values, parse_design
from harness.provision import make_plan
from harness.report import claims as page
from harness.testspec import TestSpec

pytestmark = pytest.mark.unit

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


@pytest.mark.parametrize(("claim", "design"), TESTED)
def test_every_test_of_a_claim_can_be_planned(claim: Claim, design: str) -> None:
    plan = make_plan(claim.spec(design))
    assert plan.contract.startswith("cluster-mirror/")


@pytest.mark.parametrize(
    ("role", "broken", "verdicts", "expected"),
    [
        (Role.HOLDS, False, [], Outcome.NOT_RUN),
        (Role.HOLDS, False, ["valid"], Outcome.SHOWN),
        (Role.HOLDS, False, ["unknown"], Outcome.UNKNOWN),
        (Role.HOLDS, True, ["valid", "invalid"], Outcome.CONTRADICTED),
        (Role.BREAKS, True, ["valid"], Outcome.SHOWN),
        (Role.BREAKS, False, ["valid"], Outcome.NOT_SHOWN),
        (Role.BREAKS, False, [], Outcome.NOT_RUN),
    ],
)
def test_outcomes(role: Role, broken: bool, verdicts: list[str], expected: Outcome) -> None:
    assert outcome(role, broken=broken, verdicts=verdicts) is expected


CLAIM = Claim(
    name="swallowed",
    argument="ids",
    holds=("",),
    breaks=("producer_ids=verbatim",),
    kinds=("pid_swallowed",),
    test={"scenario": "failover"},
)


def store(folder: Path, name: str, design: str, *, found: dict[str, int], valid: Any = True, **more: Any) -> None:
    """A run's folder as `shatter run` leaves it, without its tables."""
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
    anomalies = {kind: {"count": count, "severity": "S1", "allowed": True} for kind, count in found.items()}
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
    holds, breaks = findings(CLAIM, stored)
    assert (holds.outcome, holds.runs, holds.found) == (Outcome.SHOWN, ("one",), {})
    assert (breaks.outcome, breaks.runs, breaks.found) == (Outcome.SHOWN, ("three", "two"), {"pid_swallowed": 7})
    assert missing([CLAIM], stored) == []
    assert missing([CLAIM], []) == [(CLAIM, ""), (CLAIM, "producer_ids=verbatim")]


def test_the_pages_name_every_design_and_what_was_found(tmp_path: Path) -> None:
    store(tmp_path, "two", "producer_ids=verbatim", found={"pid_swallowed": 2})
    board = [(CLAIM, findings(CLAIM, stored_results(tmp_path)))]
    text = page.markdown(board)
    assert "| swallowed | strict | hold | pid_swallowed | not run |  |" in text
    assert "| swallowed | producer_ids=verbatim | break | pid_swallowed | shown: pid_swallowed 2 | two |" in text
    assert "<td>shown: pid_swallowed 2</td>" in page.html(board)
