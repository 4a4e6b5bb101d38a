"""A new run's folder, and its run.json before anything was started."""

from __future__ import annotations

import platform
import secrets
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import __version__
from harness.core.errors import StorageError
from harness.history.runfile import ClusterInfo, RunMeta, TestParameters
from harness.run.plan import RunPlan
from nemeses.engine.schedule import to_json


def make_run_folder(out: Path, name: str) -> Path:
    """A new folder OUT/TIME-NAME-xxxx, where nothing else writes; its name is the run's id.

    Raises: StorageError when it cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%m%d-%H%M%S")
    folder = out / f"{stamp}-{name[:28].rstrip('-.')}-{secrets.token_hex(2)}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except OSError as error:
        raise StorageError(
            f"the run's folder {folder} cannot be made: {error.strerror}; choose another with --out"
        ) from error
    return folder


def first_meta(plan: RunPlan, run_id: str, *, faults_to_bite: int) -> RunMeta:
    """run.json before anything was started."""
    return RunMeta(
        run_id=run_id,
        shatter_version=__version__,
        versions={
            "shatter": __version__,
            "python": platform.python_version(),
            "spark": metadata.version("pyspark"),
        },
        test=_parameters(plan),
        clusters={name: ClusterInfo() for name in plan.scenario.clusters},
        schedule=to_json(plan.schedule),
        floor=_floor(plan, faults_to_bite),
    )


def _parameters(plan: RunPlan) -> TestParameters:
    spec = plan.spec
    return TestParameters(
        name=spec.name,
        files=dict(plan.given),
        spec=spec.model_dump(mode="json"),
        mirror=spec.mirror,
        mirror_options={**plan.settings.design, **spec.mirror_options},
        design=plan.contract.partition("+")[0].partition("/")[2] or None,
        scenario=spec.scenario,
        workload=spec.workload,
        workload_options={
            "producer": spec.producer,
            "producers": spec.producers,
            "consumers": spec.consumers,
            "max_records": spec.max_records,
            "client_life": spec.client_life,
            "txn_hold": spec.txn_hold,
            "isolation": spec.isolation,
            "acks": spec.acks,
            "min_insync_replicas": spec.min_isr,
            "replication": spec.replication,
            "cleanup_policy": spec.cleanup_policy,
            "authorizer": spec.authorizer,
        },
        nemeses=list(spec.nemesis),
        contract=plan.contract,
        seed=spec.seed,
        time_limit_s=spec.time_limit,
        brokers=dict.fromkeys(plan.scenario.clusters, spec.brokers),
        topics=spec.topics,
        partitions=spec.partitions,
        rate=spec.rate,
    )


def _floor(plan: RunPlan, faults_to_bite: int) -> dict[str, Any]:
    """The least that the run must have done to be judged valid."""
    floor = plan.workload.floor(plan.options, time_limit_s=plan.spec.time_limit)
    return {
        "ok_sends": floor.ok_sends,
        "ok_polls": floor.ok_polls,
        "polled_records_on_destination": floor.polled_records_on_destination,
        "faults_bit": max(floor.faults_bit, faults_to_bite),
        "carried_under_fault": floor.carried_under_fault,
        "partitions_under_faults": floor.partitions_under_faults,
    }
