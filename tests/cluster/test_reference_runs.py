"""Whole runs of the reference mirror as a user makes them: strict is valid under faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from checkers.session import spark_session
from harness.clusters.images import ImageSet
from harness.commands import check_run
from harness.history.runfile import read_meta
from harness.progress import RichDisplay
from harness.provision import make_plan
from harness.report.results import Results
from harness.runner import run_test
from harness.signals import Interrupts
from harness.testspec import parse_spec

SMALL = {"mirror": "reference", "topics": 1, "partitions": 3, "rate": 150, "producers": 2, "consumers": 1}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_session(master="local[2]")
    yield session
    session.stop()


def judged(images: ImageSet, out: Path, spark: SparkSession, **keys: object) -> Results:
    """Run a small test and judge it. A run that did not get to its end fails here, with its reason."""
    plan = make_plan(parse_spec({**SMALL, **keys}, where="test"))
    result = run_test(plan, images=images, out=out, display=RichDisplay(Console()), interrupts=Interrupts())
    assert result.status == "finished", result.why
    return check_run(result.folder, contract=None, spark=spark)


@pytest.mark.parametrize(
    ("seed", "producer", "nemesis"),
    [(1, "idempotent", "link-partition,mirror-kill"), (2, "transactional", "broker-kill:A/leader,mirror-pause")],
    ids=["seed-1", "seed-2"],
)
def test_strict_is_valid_over_failover_and_failback_under_faults(
    images: ImageSet, tmp_path: Path, spark: SparkSession, seed: int, producer: str, nemesis: str
) -> None:
    keys = {"scenario": "failover-failback", "producer": producer, "nemesis": nemesis, "seed": seed, "time-limit": 22}
    results = judged(images, tmp_path, spark, **keys)
    assert results.verdict == "valid", [a.sentences() for a in results.forbidden] or results.why
    (folder,) = tmp_path.iterdir()
    meta = read_meta(folder)
    assert meta.test.contract == "cluster-mirror/strict"
    assert meta.test.mirror_options["producer_ids"] == "reserved_block"
    assert {phase.name for phase in meta.phases} >= {"scenario", "settle", "final", "evidence"}
