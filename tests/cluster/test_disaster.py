"""Disasters: a cluster is gone during the stop and the move of the clients, and comes back; whole runs, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.clusters.docker.images import ImageSet
from harness.history.runfile import read_meta
from harness.report.results import Results
from tests.cluster.judged_run import judged, rows

MM2 = {"mirror": "mm2", "contract": "mm2-exactly-once"}


def times(out: Path, action: str, *, fault_id: int = 1) -> list[int]:
    """When a fault's steps of this kind were recorded as done."""
    found = [row for row in rows(out, "faults") if row["fault_id"] == fault_id and row["action"] == action]
    assert all(row["ok"] for row in found), [row["result"] for row in found]
    return [row["time_ns"] for row in found]


def requests(out: Path, f: str) -> list[list[dict[str, Any]]]:
    """The events of each of the scenario's requests with this function, in order."""
    ops = sorted((row for row in rows(out, "ops") if row["f"] == f), key=lambda row: row["index"])
    begun = [row["index"] for row in ops if row["type"] == "invoke"]
    return [[row for row in ops if index in (row["index"], row["invoke_index"])] for index in begun]


def why(results: Results) -> object:
    return [a.sentences() for a in results.forbidden] or results.why


def outlasts(out: Path, request: list[dict[str, Any]]) -> None:
    """The fault was proven before the request began, and healed only after it had succeeded."""
    (bit,), (healed,) = times(out, "bit"), times(out, "heal")
    begin, end = request
    assert bit < begin["time_ns"] < end["time_ns"] < healed
    assert end["type"] == "ok"


@pytest.mark.parametrize(
    ("nemesis", "producer"),
    [
        pytest.param("broker-kill:A/all@disaster", "transactional", marks=pytest.mark.long),
        ("link-partition:A/all@disaster", "idempotent"),
    ],
    ids=["kill", "link"],
)
def test_strict_fails_over_without_its_source_and_back_to_it(
    images: ImageSet, tmp_path: Path, spark: SparkSession, nemesis: str, producer: str
) -> None:
    keys = {"scenario": "disaster", "producer": producer, "nemesis": nemesis, "time-limit": 12}
    results = judged(images, tmp_path, spark, **keys)
    assert results.verdict == "valid", why(results)
    ((*request,),) = requests(tmp_path, "mirror_stop")
    outlasts(tmp_path, request)
    ((_, back),) = requests(tmp_path, "mirror_failback")
    assert back["type"] == "ok"


@pytest.mark.long
def test_strict_survives_the_loss_of_the_cluster_that_it_mirrors_back(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    results = judged(images, tmp_path, spark, scenario="disaster-failback", seed=3, **{"time-limit": 12})
    assert results.verdict == "valid", why(results)
    _, request = requests(tmp_path, "mirror_stop")
    outlasts(tmp_path, request)


@pytest.mark.long
def test_strict_holds_under_faults_within_the_stop_and_the_truncation(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    """Transactions that are held open keep the mirror stopping until they are decided, so that the fault finds it."""
    nemesis = ["broker-kill:B/coordinator@stopping..4s", "link-partition:B/all+mode=down@truncation..4s"]
    keys = {"producer": "transactional", "txn-hold": 2, "time-limit": 12}
    results = judged(images, tmp_path, spark, scenario="failover-failback", nemesis=nemesis, **keys)
    assert results.verdict == "valid", why(results)
    (stop, _), ((start, started),) = requests(tmp_path, "mirror_stop"), requests(tmp_path, "mirror_failback")
    (struck,), (cut,) = times(tmp_path, "inject", fault_id=1), times(tmp_path, "inject", fault_id=2)
    assert stop[0]["time_ns"] < struck < stop[1]["time_ns"]
    assert start["time_ns"] < cut < started["time_ns"]


@pytest.mark.long
def test_mm2_fails_over_without_its_source(images: ImageSet, tmp_path: Path, spark: SparkSession) -> None:
    keys = {"scenario": "disaster", "nemesis": "broker-kill:A/all@disaster", "time-limit": 15}
    results = judged(images, tmp_path, spark, **MM2, **keys)
    assert results.verdict == "valid", why(results)
    ((*request,),) = requests(tmp_path, "mirror_stop")
    outlasts(tmp_path, request)
    assert not requests(tmp_path, "mirror_failback")
    assert {row["cluster"] for row in rows(tmp_path, "final_reads") if row["complete"]} == {"A", "B"}


def test_a_failover_to_a_cluster_that_is_gone_is_found_and_ends_no_run(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    """MM2's positions are on B: with B dead its stop cannot say where it ended."""
    keys = {"scenario": "failover", "nemesis": "broker-kill:B/all@stop", "time-limit": 15}
    results = judged(images, tmp_path, spark, **MM2, **keys)
    assert results.verdict == "invalid"
    assert {a.kind for a in results.forbidden} == {"failover_refused"}, why(results)
    ((_, ended),) = requests(tmp_path, "mirror_stop")
    assert (ended["type"], ended["error"]) == ("info", "timeout")
    (folder,) = tmp_path.iterdir()
    assert any("the stop of mirror A→B did not end" in note for note in read_meta(folder).notes)
    assert {row["cluster"] for row in rows(tmp_path, "final_reads") if row["complete"]} == {"A", "B"}
