"""Fifty small histories after public reports (tests/histories/reports) get the verdicts of `verdicts.json`.

It has for each: the contract, the verdict, the kinds that must be found and how often, kinds that may be found too, and
`any_of`: kinds of which at least one must be found. Each is judged as a small and as a large history.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from harness.history.edn.export import export_edn
from harness.history.imports import as_run_folder

CASES = Path(__file__).parent.parent / "histories" / "reports"
VERDICTS: list[dict[str, Any]] = json.loads((CASES / "verdicts.json").read_text(encoding="utf-8"))
EXPORTED = [v for v in VERDICTS if v.get("same_after_export")]


def check(spark: SparkSession, path: Path, verdict: dict[str, Any]) -> None:
    """Judge a history and compare with its verdict."""
    with as_run_folder(path) as run:
        judgement = judge(run, verdict["contract"], spark)
    found = {f.kind.name: f.count for f in judgement.findings}
    told = {f.kind.name: [w["explain"] for w in f.witnesses] for f in judgement.findings}
    assert judgement.to_json()["valid"] == verdict["valid"], (judgement.why, told)
    assert {kind: found.get(kind, 0) for kind in verdict["anomalies"]} == verdict["anomalies"], told
    any_of = set(verdict.get("any_of", ()))
    assert not any_of or any_of & set(found), told
    breaches = {f.kind.name for f in judgement.findings if f.breaches}
    assert breaches <= {*verdict["anomalies"], *verdict["also_accepted"], *any_of}, told


@pytest.mark.parametrize("verdict", VERDICTS, ids=[v["file"] for v in VERDICTS])
def test_report(spark: SparkSession, verdict: dict[str, Any]) -> None:
    check(spark, CASES / verdict["file"], verdict)


@pytest.mark.usefixtures("cut_up")
@pytest.mark.parametrize("verdict", VERDICTS, ids=[v["file"] for v in VERDICTS])
def test_report_judged_as_a_large_history(spark: SparkSession, verdict: dict[str, Any]) -> None:
    check(spark, CASES / verdict["file"], verdict)


@pytest.mark.parametrize("verdict", EXPORTED, ids=[v["file"] for v in EXPORTED])
def test_report_says_the_same_after_export(spark: SparkSession, tmp_path: Path, verdict: dict[str, Any]) -> None:
    with as_run_folder(CASES / verdict["file"]) as run:
        export_edn(run, tmp_path / "exported.edn")
    check(spark, tmp_path / "exported.edn", verdict)


def test_every_report_has_a_verdict() -> None:
    files = {p.name for p in CASES.iterdir() if p.suffix in (".jsonl", ".edn")}
    assert {v["file"] for v in VERDICTS} == files
    assert len(files) == 50
