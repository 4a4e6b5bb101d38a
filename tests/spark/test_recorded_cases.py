"""The recorded cases in tests/histories get exactly their verdicts, from the file to results.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from harness.history.imports import as_run_folder

CASES = Path(__file__).parent.parent / "histories"
VERDICTS: list[dict[str, Any]] = json.loads((CASES / "verdicts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("verdict", VERDICTS, ids=[v["id"] for v in VERDICTS])
def test_recorded_case(spark: SparkSession, verdict: dict[str, Any]) -> None:
    with as_run_folder(CASES / verdict["file"]) as run:
        judge(run, verdict["contract"], spark)
        results = json.loads((run / "results.json").read_text(encoding="utf-8"))
        assert not list((run / "results").glob("scratch*")), "intermediate results are removed"
    assert set(results["anomalies"]) == set(verdict["anomalies"]), results["anomalies"]
    assert results["valid"] is verdict["valid"], results["why"]
    for body in results["anomalies"].values():
        assert body["count"] >= len(body["witnesses"]) > 0
        assert all(w["explain"] for w in body["witnesses"])


def test_every_case_has_a_verdict() -> None:
    assert {v["file"] for v in VERDICTS} == {p.name for p in CASES.glob("*.jsonl")}


def test_a_loss_that_the_contract_allows_is_counted_and_shown(spark: SparkSession) -> None:
    with as_run_folder(CASES / "D05-replica-divergence-fast-failover.jsonl") as run:
        results = judge(run, "kafka-unclean", spark).to_json()
    lost = results["anomalies"]["lost_write"]
    assert (lost["count"], lost["allowed"]) == (1, True)
    assert lost["witnesses"][0]["value"] == "x1"
    assert results["anomalies"]["replica_divergence"]["allowed"] is False
