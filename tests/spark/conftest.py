"""One Spark session for all Spark tests, and `find`: run one checker on a literal history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))

from literal import History

from checkers.base import ANOMALY_COLUMNS, Checker
from checkers.spark.session import spark_session
from checkers.views.tables import Tables

Find = Callable[[Checker, History], list[dict[str, Any]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests in this folder need Spark."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(master="local[2]", memory="2g", app="tests")
    yield session
    session.stop()


@pytest.fixture
def find(spark: SparkSession, tmp_path: Path) -> Iterator[Find]:
    """`find(CHECKER, history)` → its anomaly rows as dicts, sorted by kind, rank, cluster, topic, partition, offset."""
    opened: list[Tables] = []

    def run(checker: Checker, history: History) -> list[dict[str, Any]]:
        tables = Tables.open(history.write(tmp_path / f"run{len(opened)}"), spark)
        opened.append(tables)
        frame = checker.check(tables)
        if frame is None:
            return []
        assert [f.name for f in frame.schema.fields] == [name for name, _ in ANOMALY_COLUMNS]
        rows = [r.asDict() for r in frame.orderBy("kind", "rank", "cluster", "topic", "partition", "offset").collect()]
        names = {k.name for k in checker.kinds}
        assert {r["kind"] for r in rows} <= names, "a checker must find its own kinds only"
        assert all(r["explain"] for r in rows)
        return rows

    yield run
    for tables in opened:
        tables.close()


@pytest.fixture
def cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run counts as large, in many small ranges and buckets."""
    monkeypatch.setattr("checkers.views.tables.SMALL_ROWS", 0)
    monkeypatch.setattr("checkers.prefilter.spans.SPAN_ROWS", 500)
    monkeypatch.setattr("checkers.views.prefiltered.BUCKET_ROWS", 1000)
    monkeypatch.setattr("checkers.views.history_facts.AT_A_GLANCE", 0)
