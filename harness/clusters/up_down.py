"""A topology that stays: `shatter up` starts one and ends, `shatter down` finds it by its labels and removes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.clusters.docker import labels as label
from harness.clusters.docker.cleanup import LabelledObject, clean, labelled_objects
from harness.clusters.docker.clients import DockerClients
from harness.clusters.pair import READY_S, RunningTopology, start_topology
from harness.clusters.plan.topology import TopologySpec
from harness.core.errors import UsageError


def up(spec: TopologySpec, *, ready_s: float = READY_S, logs_dir: Path | None = None) -> RunningTopology:
    """Start a topology that outlives this process. Call `detach` on it, not `stop`; `pair.attach` finds it again.

    Raises what `start_topology` raises; then nothing is left running.
    """
    return start_topology(replace(spec, keep=True), ready_s=ready_s, logs_dir=logs_dir)


def down(run_id: str) -> list[LabelledObject]:
    """Remove everything of a run that is up; returns the removed objects. Raises UsageError when there is none."""
    clients = DockerClients()
    try:
        removed = clean(clients, run=run_id, force=True)
        if not removed:
            runs = runs_up(clients)
            raise UsageError(f"no run {run_id} is up; up: {', '.join(runs) if runs else 'none'}")
        return removed
    finally:
        clients.close()


def runs_up(clients: DockerClients) -> Sequence[str]:
    """Ids of all runs with a network."""
    return tuple(sorted({found.run_id for found in labelled_objects(clients) if found.kind == "network"}))


def describe(topology: RunningTopology) -> str:
    """The addresses and ids for using a topology by hand."""
    lines = [f"run {topology.run_id}, network {topology.plan.subnet} (label {label.RUN}={topology.run_id})"]
    for cluster in topology.plan.clusters.values():
        lines += [
            f"cluster {cluster.name}  id {cluster.cluster_id}",
            f"  clients      {cluster.bootstrap}",
            f"  for a mirror {cluster.link_bootstrap}",
        ]
    return "\n".join(lines)
