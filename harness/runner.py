"""One test, phase by phase: provision, warm up, load under faults, heal, scenario, final reads, evidence, tear down.

Whatever happens, every fault is healed, what was recorded stays, evidence is captured as far as the clusters still
answer, and everything that was started is stopped. Judging comes afterwards, from the stored run alone.
"""

from __future__ import annotations

import dataclasses
import faulthandler
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.clusters.base import NodeRole, NodeState
from harness.clusters.images import ImageSet
from harness.clusters.pair import RunningTopology, start_topology
from harness.errors import ShatterError, WaitTimeoutError
from harness.evidence.capture import capture
from harness.evidence.looks import Sampler, look_all
from harness.history.ops import F, OpType, Phase
from harness.history.recorder import RunRecorder
from harness.history.runmeta import CapabilityInfo, ClusterInfo, Status
from harness.mirrors import MirrorContext
from harness.mirrors.base import Cut, Mirror, PartitionState
from harness.mirrors.site import TopologySite
from harness.progress import Display, phase
from harness.provision import DESTINATION, SOURCE, Plan, first_meta, make_run_folder, topology_spec
from harness.scenarios import REGISTRY as SCENARIOS
from harness.signals import Interrupts
from nemeses.conductor import Conductor
from workloads.base import Endpoint, FinalRead, Load, LoadCounts, WorkloadContext

WARM_UP_S = 120.0
STOP_LOAD_S = 30.0
SETTLED_QUIET_S = 1.0
TICK_S = 0.25


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What is there after a run. error: why it did not get to its end; None when it did."""

    folder: Path
    status: Status
    why: str
    error: ShatterError | None = None

    @property
    def timed_out(self) -> bool:
        """Whether a bounded wait ended it: a hang is a verdict (unknown), not a failure of the program."""
        return isinstance(self.error, WaitTimeoutError)


def run_test(
    plan: Plan,
    *,
    images: ImageSet,
    out: Path,
    display: Display,
    interrupts: Interrupts,
    keep: bool = False,
) -> RunResult:
    """Run one test; returns when everything is stopped (or, with `keep`, left to `shatter down`).

    Raises: StorageError when not even the run's folder can be made. All other errors are in the result.
    """
    folder = make_run_folder(out, plan.spec.name)
    meta = first_meta(plan, folder.name, faults_to_bite=1 if plan.schedule else 0)
    with RunRecorder(folder, meta=meta) as recorder:
        run = _Run(plan, images, folder, recorder, display, interrupts, keep)
        return run.execute()


class _Run:
    """The state of one test while it runs. Its methods are the phases, in order."""

    def __init__(
        self,
        plan: Plan,
        images: ImageSet,
        folder: Path,
        recorder: RunRecorder,
        display: Display,
        interrupts: Interrupts,
        keep: bool,
    ) -> None:
        self.plan, self.images, self.folder = plan, images, folder
        self.recorder, self.display, self.interrupts, self.keep = recorder, display, interrupts, keep
        self.topology: RunningTopology | None = None
        self.mirror: Mirror | None = None
        self.conductor: Conductor | None = None
        self.sampler: Sampler | None = None
        self.load_under_way: Load | None = None
        self.context: WorkloadContext | None = None
        self.captured = False

    def execute(self) -> RunResult:
        status: Status = "finished"
        error: ShatterError | None = None
        why = ""
        try:
            self.provision()
            self.warm_up()
            self.load()
            self.heal()
            self.scenario()
            self.final_reads()
            self.evidence()
        except KeyboardInterrupt:
            status, why = "interrupted", "the run was interrupted"
        except ShatterError as failure:
            status, why, error = "failed", str(failure), failure
            if isinstance(failure, WaitTimeoutError):
                self._dump_threads()
        except Exception as failure:
            status, why = "failed", f"{type(failure).__name__}: {failure}"
            error = ShatterError(f"this is a fault of shatterproof itself: {why}; please report it")
            error.__cause__ = failure
        with self.interrupts.shielded():
            self._wind_up(salvage=status != "finished")
            with suppress(ShatterError):
                self.recorder.run_file.update(status=status, why=why)
        return RunResult(folder=self.folder, status=status, why=why, error=error)

    # The phases

    def provision(self) -> None:
        with self._phase(Phase.PROVISION, "provision"):
            spec = topology_spec(self.plan, self.images, self.folder.name, keep=self.keep)
            self.topology = start_topology(spec, logs_dir=self.folder / "logs")
            source = self.topology.clusters[SOURCE]
            for topic in self.plan.topics:
                source.create_topic(
                    topic.name, partitions=topic.partitions, replication=topic.replication, config=topic.config
                )
            self.topology.test_topics = self.plan.topic_names
            self.mirror = self.plan.mirror.make(
                MirrorContext(
                    source=source,
                    destination=self.topology.clusters[DESTINATION],
                    site=TopologySite(self.topology, image=self.images.mirror, entry_point=self.images.entry_point),
                    settings=self.plan.settings,
                )
            )
            self.topology.mirror = self.mirror
            self.mirror.start(self.plan.topic_names)
            self._describe_in_meta(self.topology, self.mirror)
            brokers = ", ".join(f"{len(c.brokers)} brokers in {n}" for n, c in self.topology.clusters.items())
            self.display.say(f"{brokers}, mirror {self.mirror.name}, network {self.topology.plan.subnet}")

    def warm_up(self) -> None:
        with self._phase(Phase.WARM_UP, "warm up"):
            topics = self.plan.topic_names
            took = self._mirror.await_carrying(topics, recorder=self.recorder, timeout_s=WARM_UP_S)
            self.display.say(f"the mirror carried a probe on each of {len(took)} partitions")

    def load(self) -> None:
        seconds = self.plan.spec.time_limit
        with self._phase(Phase.LOAD, "load", seconds=seconds):
            topology = self._topology
            self.sampler = Sampler(topology, self.recorder)
            self.sampler.start()
            self.context = self._context(writable=(SOURCE,), reading=(SOURCE, DESTINATION))
            self.load_under_way = self.plan.workload.start(self.context)
            self.conductor = Conductor(
                topology=topology, recorder=self.recorder, clock=self.recorder.clock, schedule=self.plan.schedule
            )
            self.conductor.start()
            self._work(self.load_under_way, seconds)
            self.conductor.wait(seconds)  # the schedule ends before the load; what is late gets as long again

    def heal(self) -> None:
        with self._phase(Phase.HEAL, "heal"):
            healing = self._conductor.heal_all()
            for problem in healing.errors:
                self._note(problem)
            if not healing.health.ok:
                self._note(f"after healing: {healing.health.seen}")
            bites, faults = self._conductor.bites(), len(self.plan.schedule)
            self._work(self._load, SETTLED_QUIET_S)
            self._stop_load()
            self.display.say(f"{bites} of {faults} faults bit; {healing.health.seen}")

    def scenario(self) -> None:
        SCENARIOS[self.plan.spec.scenario](self)

    def settle(self) -> None:
        limit = self.plan.spec.settle_limit
        with self._phase(Phase.SETTLE, "settle"):
            for told in self._mirror.revive():  # as an operator would; it is noted, and its states are in the tables
                self._note(told)
            missing = self._mirror.await_caught_up(self.plan.topic_names, timeout_s=limit)
            late = {where: lag for where, lag in missing.items() if lag != 0}
            if late:
                told = ", ".join(
                    f"{topic}-{partition} {'unknown' if lag is None else lag}"
                    for (topic, partition), lag in sorted(late.items())[:5]
                )
                self._note(f"after {limit:g} s the mirror had not carried everything: {told}")
            self.display.say("the mirror has caught up" if not late else f"{len(late)} partitions are behind")

    def stop_mirror(self) -> Cut:
        with self._phase(Phase.SCENARIO, "stop mirror"):
            index = self.recorder.invoke("scenario", F.MIRROR_STOP, cluster=DESTINATION)
            cut = self._mirror.stop(self.plan.topic_names)
            for (topic, partition), (source_offset, destination_offset) in sorted(cut.offsets.items()):
                self.recorder.row(
                    "mirror_states",
                    mirror=self._mirror.name,
                    cluster=DESTINATION,
                    topic=self._mirror.topic_on_destination(topic),
                    partition=partition,
                    state=PartitionState.STOPPED,
                    source_offset=source_offset,
                    destination_offset=destination_offset,
                )
            self.recorder.complete(index, OpType.OK)
            self.display.say(f"cut recorded for {len(cut.offsets)} partitions; {DESTINATION} is writable")
            return cut

    def write(self, cluster: str, *, seconds: float) -> None:
        with self._phase(Phase.SCENARIO, f"write to {cluster}", seconds=seconds):
            self.context = self._context(writable=(cluster,), reading=(cluster,))
            self.load_under_way = self.plan.workload.start(self.context)
            self._work(self.load_under_way, seconds)
            self._stop_load()

    def final_reads(self) -> None:
        limit = self.plan.spec.final_limit
        with self._phase(Phase.FINAL, "final reads"):
            if self.sampler is not None:
                self.sampler.stop()
            context = self._context(writable=(), reading=(SOURCE, DESTINATION))
            reads = self.plan.workload.final_reads(context, timeout_s=limit)
            cut_off = [read for read in reads if not read.complete]
            if cut_off:
                self.recorder.run_file.update(final_reads_cut_off=True)
                self._note(f"{len(cut_off)} of {len(reads)} final reads did not finish: {_first(cut_off)}")
            self.display.say(f"{len(reads) - len(cut_off)} of {len(reads)} complete")

    def evidence(self) -> None:
        with self._phase(Phase.EVIDENCE, "evidence"):
            self._capture()

    # The parts they share

    def _capture(self) -> None:
        for note in look_all(self._topology, self.recorder):
            self._note(note)
        captured = capture(self._topology, self.folder)
        for note in captured.notes:
            self._note(note)
        self.captured = True
        replicas = sum(len(folders) for brokers in captured.replicas.values() for folders in brokers.values())
        self.display.say(f"logs of {replicas} replicas")

    def _work(self, load: Load, seconds: float) -> None:
        """Let the clients work for this long, showing what they do; their own errors end the run."""
        end = self.recorder.clock.now_ns() + int(seconds * 1e9)
        while self.recorder.clock.now_ns() < end:
            error = load.error()
            if error is not None:
                raise error
            faults = [o.spec.nemesis for o in self._conductor.outcomes() if o.state == "live"] if self.conductor else []
            self.display.say(_figures(load.counts(), faults))
            self.interrupts.stop.wait(TICK_S)

    def _stop_load(self) -> None:
        load, self.load_under_way = self.load_under_way, None
        if load is not None:
            load.stop(timeout_s=STOP_LOAD_S)

    def _context(self, *, writable: Sequence[str], reading: Sequence[str]) -> WorkloadContext:
        topology, mirror = self._topology, self._mirror
        names = self.plan.topic_names
        endpoints = {
            cluster: Endpoint(
                cluster=cluster,
                bootstrap=topology.clusters[cluster].bootstrap,
                topic_names={
                    topic: mirror.topic_on_destination(topic) if cluster == DESTINATION else topic for topic in names
                },
                writable=cluster in writable,
            )
            for cluster in reading
        }
        if self.context is not None:  # values stay unique over all parts of a run
            return dataclasses.replace(self.context, endpoints=endpoints)
        return WorkloadContext(
            run_id=self.folder.name,
            seed=self.plan.spec.seed,
            options=self.plan.options,
            endpoints=endpoints,
            recorder=self.recorder,
            clock=self.recorder.clock,
        )

    def _describe_in_meta(self, topology: RunningTopology, mirror: Mirror) -> None:
        self.recorder.run_file.update(
            clusters={
                name: ClusterInfo(
                    cluster_id=cluster.cluster_id,
                    kafka_version=self.images.kafka_version,
                    brokers=sorted(cluster.brokers),
                )
                for name, cluster in topology.clusters.items()
            },
            topic_map={topic: mirror.topic_on_destination(topic) for topic in self.plan.topic_names},
            capabilities={
                str(capability): CapabilityInfo(yes=support.yes, why=support.why)
                for capability, support in mirror.capabilities().items()
            },
        )

    @contextmanager
    def _phase(self, stamp: Phase, title: str, *, seconds: float | None = None) -> Iterator[None]:
        self.recorder.set_phase(stamp)
        with phase(self.display, title, seconds=seconds):
            yield

    def _note(self, text: str) -> None:
        self.display.note(text)
        self.recorder.run_file.add_note(text)

    def _wind_up(self, *, salvage: bool) -> None:
        """Heal, stop, save and take down; each step is tried whatever the ones before it did."""
        self._try("heal", self._heal_quietly)
        self._try("stop the clients", self._stop_load)
        if self.sampler is not None:
            self._try("stop looking", self.sampler.stop)
        if salvage and self.topology is not None and not self.captured and not self.interrupts.hurried:
            self._try("capture evidence", self._salvage)
        self._try("write what was recorded", self.recorder.flush)
        if self.mirror is not None:
            self._try("close the mirror's clients", self.mirror.close)
        self._try("take down", self._take_down)

    def _heal_quietly(self) -> None:
        if self.conductor is not None:
            self.conductor.heal_all(timeout_s=60.0)

    def _salvage(self) -> None:
        with phase(self.display, "save"):
            self._capture()

    def _take_down(self) -> None:
        if self.topology is None:
            return
        if self.keep:
            self.topology.save_logs(self.folder / "logs")
            self.topology.detach()
            self._note(f"kept: `shatter down --name {self.folder.name}` takes it down")
            return
        with phase(self.display, "tear down"):
            self.topology.stop()

    def _try(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            with suppress(ShatterError):
                self._note(f"could not {what}: {error}")

    def _dump_threads(self) -> None:
        """After a wait that ended without what it waited for: where everybody was. JVMs print theirs to their logs."""
        logs = self.folder / "logs"
        with suppress(OSError):
            logs.mkdir(exist_ok=True)
            with (logs / "harness-threads.txt").open("w") as file:
                faulthandler.dump_traceback(file)
        for node in self.topology.nodes() if self.topology is not None else ():
            if node.role is not NodeRole.PROXY:
                with suppress(ShatterError):
                    if node.state() is NodeState.RUNNING:
                        node.signal("SIGQUIT")

    @property
    def _topology(self) -> RunningTopology:
        assert self.topology is not None
        return self.topology

    @property
    def _mirror(self) -> Mirror:
        assert self.mirror is not None
        return self.mirror

    @property
    def _conductor(self) -> Conductor:
        assert self.conductor is not None
        return self.conductor

    @property
    def _load(self) -> Load:
        assert self.load_under_way is not None
        return self.load_under_way


def _figures(counts: LoadCounts, faults: Sequence[str]) -> str:
    read = ", ".join(f"{cluster} {records}" for cluster, records in sorted(counts.polled_records.items()))
    broken = f"  now: {', '.join(faults)}" if faults else ""
    return (
        f"sends {counts.ok_sends} ok, {counts.failed_sends} failed, {counts.info_sends} unknown; "
        f"read {read or 'nothing yet'}{broken}"
    )


def _first(reads: Sequence[FinalRead]) -> str:
    read = reads[0]
    return f"{read.cluster} {read.topic}-{read.partition} at {read.position} of {read.target} ({read.error})"
