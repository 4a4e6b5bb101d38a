"""Workloads that distinguish right and wrong designs of the reference mirror, in whole runs on small clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.clusters.docker.images import ImageSet
from tests.cluster.judged_run import judged, rows

SHORT_LIVES = {"scenario": "failover", "brokers": 1, "client-life": 3, "max-records": 1, "time-limit": 6}


@pytest.mark.long
def test_kept_producer_ids_swallow_writes_of_short_lived_producers_after_a_failover(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    """B's brokers assign the same producer ids as A's, and drop writes as duplicates of mirrored ones."""
    results = judged(images, tmp_path, spark, design="producer_ids=verbatim", **SHORT_LIVES)
    found = {a.kind: a.count for a in results.anomalies}
    assert found.get("pid_swallowed", 0) > 0
    assert results.verdict == "valid", [a.sentences() for a in results.forbidden] or results.why


GROUPS_MOVE = {"workload": "groups", "scenario": "failover", "brokers": 1, "rate": 100, "time-limit": 8}


def test_groups_resume_on_the_destination_and_miss_nothing_but_with_raw_offsets(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    """Transactions that are open at the stop leave group offsets beyond the destination's log: clamped, or raw.

    That needs a log that ends at the source's last stable offset: one that is mirrored on until every transaction is
    decided ends beyond most groups' offsets.
    """
    ends_early = "fetch_limit=last_stable stop_at=carried"
    clamped = judged(images, tmp_path / "clamped", spark, design=ends_early, **GROUPS_MOVE)
    assert clamped.verdict == "valid", [a.sentences() for a in clamped.forbidden] or clamped.why
    raw = judged(images, tmp_path / "raw", spark, design=f"{ends_early} group_offsets=raw", **GROUPS_MOVE)
    found = {a.kind for a in raw.anomalies if a.count}
    assert found >= {"group_out_of_range", "group_skip", "share_group"}
    assert raw.verdict == "valid", [a.sentences() for a in raw.forbidden] or raw.why


ADMINISTERED = {
    "workload": "administration",
    "scenario": "failover",
    "authorizer": True,
    "brokers": 1,
    "rate": 100,
    "time-limit": 8,
}


@pytest.mark.long
def test_local_rules_and_configurations_are_left_alone_but_for_wrong_designs(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    strict = judged(images, tmp_path / "strict", spark, **ADMINISTERED)
    assert strict.verdict == "valid", [a.sentences() for a in strict.forbidden] or strict.why
    acls = rows(tmp_path / "strict", "acls")
    made = {r["binding"] for r in acls if r["cluster"] == "B" and r["actor"] == "admin" and r["event"] == "create"}
    assert {binding.split()[0] for binding in made} == {"ALLOW", "DENY"}
    brought = {r["binding"] for r in acls if r["actor"] == "mirror A-B" and "User:app-" in r["binding"]}
    assert brought
    configs = rows(tmp_path / "strict", "configs")
    assert {r["actor"] for r in configs if r["event"] == "alter" and r["cluster"] == "B"} == {"admin", "mirror A-B"}
    wrong = judged(
        images, tmp_path / "wrong", spark, design="acl_sync=source_wins config_sync_after_stop=on", **ADMINISTERED
    )
    assert {a.kind for a in wrong.anomalies if a.count} == {"acl_lost", "config_reverted"}
    assert wrong.verdict == "valid", [a.sentences() for a in wrong.forbidden] or wrong.why


@pytest.mark.long
def test_records_that_expire_before_they_are_mirrored_are_reported(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    results = judged(images, tmp_path, spark, nemesis="retention", brokers=1, rate=100, **{"time-limit": 12})
    assert results.verdict == "valid", [a.sentences() for a in results.forbidden] or results.why
    told = [r for r in rows(tmp_path, "mirror_states") if r["error"]]
    assert told
    assert all("expired on the source" in r["error"] and r["state"] == "MIRRORING" for r in told)
    place = ("cluster", "topic", "partition")
    gapped = {("A", r["topic"], r["partition"]) for r in told}
    ends = rows(tmp_path, "log_ends")
    assert gapped <= {tuple(r[c] for c in place) for r in ends if (r["log_start"] or 0) > 0}
