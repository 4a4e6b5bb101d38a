"""The driver of the authors' Cluster Mirroring in whole runs: on a build (SHATTER_NATIVE_IMAGE names its image), or on
stock brokers with processes of the reference mirror that serve its requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from pyspark.sql import SparkSession

from harness.clusters.docker.images import ImageSet, ensure_images
from tests.cluster.face_pair import native_on_reference
from tests.cluster.judged_run import judged, rows

RIGHT = "cluster-mirror/strict"  # what the processes promise with their design


@dataclass(frozen=True)
class Native:
    """images: of the clusters. build: whether their brokers have Cluster Mirroring themselves."""

    images: ImageSet
    build: bool


@pytest.fixture
def native(request: pytest.FixtureRequest, engine_client: docker.DockerClient) -> Iterator[Native]:
    named = os.environ.get("SHATTER_NATIVE_IMAGE")
    if named:
        yield Native(ensure_images(engine_client, kafka_image=named), build=True)
        return
    with native_on_reference():
        yield Native(request.getfixturevalue("images"), build=False)


def test_failover_and_failback(native: Native, tmp_path: Path, spark: SparkSession) -> None:
    """A mirror is created, started and stopped, and another one mirrors back. What a build does right is its own
    matter; the reference mirror's processes do everything right."""
    keys = {"scenario": "failover-failback", "time-limit": 8, "brokers": 1}
    if not native.build:
        keys["contract"] = RIGHT
    results = judged(native.images, tmp_path, spark, mirror="native", **keys)
    states = {(row["cluster"], row["state"]) for row in rows(tmp_path, "mirror_states")}
    assert states >= {("B", "MIRRORING"), ("B", "STOPPED"), ("A", "MIRRORING")}
    if not native.build:
        assert results.verdict == "valid", [a.sentences() for a in results.forbidden] or results.why
