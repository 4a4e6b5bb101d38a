"""The driver of the authors' Cluster Mirroring in whole, judged runs, on processes of the reference mirror."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from harness.clusters.docker.images import ImageSet
from tests.cluster.face_pair import native_on_reference
from tests.cluster.judged_run import judged, rows


def test_failover_and_failback(images: ImageSet, tmp_path: Path, spark: SparkSession) -> None:
    """Created, started, stopped, and mirrored back by processes on the old source; states are sampled meanwhile."""
    with native_on_reference():
        results = judged(
            images,
            tmp_path,
            spark,
            **{
                "mirror": "native",
                "contract": "cluster-mirror/strict",
                "scenario": "failover-failback",
                "brokers": 1,
                "time-limit": 8,
            },
        )
    assert results.verdict == "valid", [a.sentences() for a in results.forbidden] or results.why
    states = {(row["mirror"], row["state"]) for row in rows(tmp_path, "mirror_states")}
    assert states >= {("A-B", "MIRRORING"), ("A-B", "STOPPED"), ("B-A", "MIRRORING")}
