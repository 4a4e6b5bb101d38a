"""The state of one running test, shared by its phases: clients, mirrors, notes, topic names."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.clusters.docker.images import ImageSet
from harness.clusters.docker.provenance import engine_version, images_used
from harness.clusters.pair import RunningTopology
from harness.core.errors import EngineError, WaitTimeoutError
from harness.core.progress import Display, phase
from harness.core.signals import Interrupts
from harness.evidence.capture import capture
from harness.evidence.sampler import Sampler
from harness.evidence.snapshots import snapshot_all
from harness.history.ops import Phase
from harness.history.recorder import RunRecorder
from harness.history.runmeta import CapabilityInfo, ClusterInfo
from harness.run.plan import RunPlan
from harness.run.scenarios import Route
from harness.topology.mirror import Mirror, topic_on
from nemeses.engine.conductor import Conductor
from nemeses.engine.outcomes import FaultState
from workloads.base import Endpoint, Load, LoadCounts, WorkloadContext

STOP_LOAD_S = 30.0
STOP_LATE_S = 60.0  # more, for clients of a cluster that a fault has taken away
TICK_S = 0.25


@dataclass(kw_only=True)
class Stage:
    """Everything that exists at the moment. mirrors: by route, in the order of their first start.

    running_routes: those whose mirror runs now. waiting: conducts faults that wait for their moment during the whole
    run, or begin at a moment of the scenario.
    """

    plan: RunPlan
    images: ImageSet
    folder: Path
    recorder: RunRecorder
    display: Display
    interrupts: Interrupts
    keep: bool = False
    started: RunningTopology | None = None
    mirrors: dict[Route, Mirror] = field(default_factory=dict)
    running_routes: list[Route] = field(default_factory=list)
    conductor: Conductor | None = None
    waiting: Conductor | None = None
    sampler: Sampler | None = None
    under_way: Load | None = None
    context: WorkloadContext | None = None
    captured: bool = False

    @property
    def topology(self) -> RunningTopology:
        """The clusters. Only after `provision`."""
        assert self.started is not None
        return self.started

    @contextmanager
    def phase(self, stamp: Phase, title: str, *, seconds: float | None = None) -> Iterator[None]:
        """A phase of the run: stamped on what is recorded, shown to the user. None begins after an interrupt."""
        self.interrupts.raise_if_any()
        self.recorder.set_phase(stamp)
        with phase(self.display, title, seconds=seconds):
            yield

    def note(self, text: str) -> None:
        """A sentence that stays with the run."""
        self.display.note(text)
        self.recorder.run_file.add_note(text)

    def topic_names(self, cluster: str) -> Mapping[str, str]:
        """Name on A → name on this cluster, of the workload's topics."""
        mirrors = list(self.mirrors.values())
        return {topic: topic_on(mirrors, cluster, topic) for topic in self.plan.topic_names}

    def topics_on(self, cluster: str) -> list[str]:
        """The workload's topics by their names on this cluster."""
        return list(self.topic_names(cluster).values())

    def start_load(self, *, writable: Sequence[str], reading: Sequence[str]) -> None:
        """Start the workload's clients."""
        self.context = self.new_context(writable=writable, reading=reading)
        self.under_way = self.plan.workload.start(self.context)

    def stop_load(self) -> None:
        """End the clients, if any are at work; while a fault is live they get more time than else."""
        load, self.under_way = self.under_way, None
        if load is None:
            return
        try:
            load.stop(timeout_s=STOP_LOAD_S)
        except WaitTimeoutError as error:
            if not self.live_faults():
                raise
            self.note(f"{error}; their cluster may be gone")
            load.stop(timeout_s=STOP_LATE_S)

    def live_faults(self) -> list[str]:
        """Nemeses of the faults that are live now."""
        conductors = [c for c in (self.conductor, self.waiting) if c is not None]
        return [o.spec.nemesis for c in conductors for o in c.outcomes() if o.state is FaultState.LIVE]

    def work(self, seconds: float) -> None:
        """Let the clients that were started work so long, showing what they do; their own errors end the run."""
        load = self.under_way
        assert load is not None
        end = self.recorder.clock.now_ns() + int(seconds * 1e9)
        while self.recorder.clock.now_ns() < end:
            error = load.error()
            if error is not None:
                raise error
            self.display.say(_figures(load.counts(), self.live_faults()))
            self.interrupts.raise_if_any()
            time.sleep(TICK_S)

    def new_context(self, *, writable: Sequence[str], reading: Sequence[str]) -> WorkloadContext:
        """The workload's context; values stay unique over all parts of a run."""
        endpoints = {
            cluster: Endpoint(
                cluster=cluster,
                bootstrap=self.topology.clusters[cluster].bootstrap,
                topic_names=self.topic_names(cluster),
                writable=cluster in writable,
            )
            for cluster in reading
        }
        if self.context is not None:
            return dataclasses.replace(self.context, endpoints=endpoints)
        return WorkloadContext(
            run_id=self.folder.name,
            seed=self.plan.spec.seed,
            options=self.plan.options,
            endpoints=endpoints,
            recorder=self.recorder,
            clock=self.recorder.clock,
        )

    def describe_in_meta(self) -> None:
        """Write clusters, mirrors, versions and images into run.json."""
        clusters = self.topology.clusters
        names = {cluster: dict(self.topic_names(cluster)) for cluster in clusters if cluster != self.plan.source}
        first = next(iter(self.mirrors.values()))
        versions, images = self._made_with()
        self.recorder.run_file.update(
            versions=versions,
            images=images,
            clusters={
                name: ClusterInfo(
                    cluster_id=cluster.cluster_id,
                    kafka_version=self.images.brokers(source=name == self.plan.source).kafka_version,
                    brokers=sorted(cluster.brokers),
                )
                for name, cluster in clusters.items()
            },
            topic_map=names.pop(first.destination, {}),
            topic_maps=names,
            capabilities={
                str(capability): CapabilityInfo(yes=support.yes, why=support.why)
                for capability, support in first.capabilities().items()
            },
        )

    def _made_with(self) -> tuple[dict[str, str], dict[str, str]]:
        """Versions, and image → digest, as far as the engine knows them."""
        clients = self.topology.clients
        versions = {
            **self.recorder.run_file.meta.versions,
            "kafka": self.images.kafka_version,
            "mirror": f"{self.plan.mirror.name} {self.plan.mirror.version(self.images)}".strip(),
        }
        try:
            versions["docker"] = engine_version(clients)
            return versions, images_used(clients, self.folder.name)
        except EngineError as error:
            self.note(str(error))
            return versions, {}

    def capture(self) -> None:
        """Take the last snapshots, and copy the logs of every replica."""
        for note in snapshot_all(self.topology, self.recorder):
            self.note(note)
        captured = capture(self.topology, self.folder)
        for note in captured.notes:
            self.note(note)
        self.captured = True
        replicas = sum(len(folders) for brokers in captured.replicas.values() for folders in brokers.values())
        self.display.say(f"logs of {replicas} replicas")


def _figures(counts: LoadCounts, faults: Sequence[str]) -> str:
    read = ", ".join(f"{cluster} {records}" for cluster, records in sorted(counts.polled_records.items()))
    broken = f"  now: {', '.join(faults)}" if faults else ""
    return (
        f"sends {counts.ok_sends} ok, {counts.failed_sends} failed, {counts.info_sends} unknown; "
        f"read {read or 'nothing yet'}{broken}"
    )
