"""The faults with known Jepsen verdicts (docs/jepsen.md): our exact counts for the same faults, from our own tables and
from the exported EDN."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from jepsen_reference import PLANTED, build
from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from harness.history.edn.importer import export_edn, import_edn

Counts = dict[str, Counter[str]]


def expected(planted: dict[str, int]) -> Counts:
    """topic → kind → count."""
    return {
        "lost": Counter(lost_write=3),
        "duplicated": Counter(duplicate=3),
        "aborted": Counter(aborted_read=planted["aborted"]),
        "precommitted": Counter(precommitted_read=3),
        "one_offset_for_two": Counter(inconsistent_offsets=3, lost_write=3),
        "phantom": Counter(phantom=1),
    }


def counts(run: Path, spark: SparkSession) -> Counts:
    """topic → kind → count, as found by the judge."""
    judgement = judge(run, "kafka-clean", spark)
    assert judgement.verdict == "invalid", judgement.why
    found: Counts = {}
    for row in spark.read.parquet(str(run / "results" / "anomalies")).groupBy("topic", "kind").count().collect():
        found.setdefault(row["topic"], Counter())[row["kind"]] += row["count"]
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    return build(tmp_path_factory.mktemp("reference"))


def test_our_kinds_find_what_was_planted(reference: tuple[Path, dict[str, int]], spark: SparkSession) -> None:
    run, planted = reference
    assert set(planted) == set(PLANTED)
    assert 3 <= planted["aborted"] <= 12
    assert {**planted, "aborted": 3} == {n: {"clean": 0, "phantom": 1}.get(n, 3) for n in PLANTED}
    assert counts(run, spark) == expected(planted)


def test_the_export_has_the_same_counts(
    reference: tuple[Path, dict[str, int]], spark: SparkSession, tmp_path: Path
) -> None:
    run, planted = reference
    exported = export_edn(run, tmp_path / "history.edn")
    assert exported.left_out == 0
    again = import_edn(exported.path, tmp_path / "again")
    assert counts(again, spark) == expected(planted)
