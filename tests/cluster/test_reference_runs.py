"""Whole runs of the reference mirror as a user starts them: strict is valid under faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.clusters.docker.images import ImageSet
from harness.history.runfile import read_meta
from tests.cluster.judged_run import judged


@pytest.mark.parametrize(
    ("seed", "producer", "nemesis"),
    [
        pytest.param(1, "idempotent", "link-partition,mirror-kill", marks=pytest.mark.long),
        (2, "transactional", "broker-kill:A/leader,mirror-pause"),
    ],
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
