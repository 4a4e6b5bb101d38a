"""One test, phase by phase: provision, warm up, load under faults, heal, scenario, final reads, evidence, tear down.

The load's clients keep working into the scenario, whose steps stop them or move them.
Whatever happens, every fault is healed, what was recorded is kept, evidence is captured as far as the clusters still
answer, and everything that was started is stopped. The run is judged afterwards, from what is stored alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import start_topology
from harness.core.errors import ShatterError, WaitTimeoutError
from harness.core.progress import Display
from harness.core.signals import Interrupts
from harness.evidence.sampler import Sampler
from harness.history.ops import Phase
from harness.history.recorder import RunRecorder
from harness.history.runmeta import Status
from harness.run.plan import RunPlan, topology_spec
from harness.run.run_folder import first_meta, make_run_folder
from harness.run.scenario_steps import RunSteps
from harness.run.scenarios import Route
from harness.run.state import Stage
from harness.run.teardown import dump_threads, wind_up
from harness.topology.clusters import NodeRole
from harness.topology.mirror import Mirror
from mirrors import MirrorContext
from mirrors.site import TopologySite
from nemeses import REGISTRY as NEMESES
from nemeses.engine.conductor import Conductor
from nemeses.engine.health import check
from nemeses.engine.running import OVER
from workloads.base import FinalRead

SETTLED_QUIET_S = 1.0
LAST_CHECK_S = 20.0
ENDING = (
    "ending the run: healing, saving what was recorded, taking everything down; a second signal leaves out the copying "
    "of evidence"
)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The outcome of a run. error: why it did not finish; None when it did."""

    folder: Path
    status: Status
    why: str
    error: ShatterError | None = None

    @property
    def timed_out(self) -> bool:
        """Whether a bounded wait ended it: a hang is a verdict (unknown), not a failure of the program."""
        return isinstance(self.error, WaitTimeoutError)


def run_test(
    plan: RunPlan,
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
        stage = Stage(
            plan=plan,
            images=images,
            folder=folder,
            recorder=recorder,
            display=display,
            interrupts=interrupts,
            keep=keep,
        )
        return _Run(stage).execute()


class _Run:
    """Its methods are the phases, in order."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.plan = stage.plan
        self.steps = RunSteps(stage, self.make_mirror)
        self.gone: list[str] = []  # problems of mirror processes right after healing

    def execute(self) -> RunResult:
        stage = self.stage
        status: Status = "finished"
        error: ShatterError | None = None
        why = ""
        try:
            with stage.interrupts.exposed(ENDING):
                self.provision()
                self.warm_up()
                self.load()
                self.heal()
                self.plan.scenario.steps(self.steps)
                self.end_waiting()
                self.final_reads()
                self.evidence()
        except KeyboardInterrupt:
            phases = stage.recorder.run_file.meta.phases
            during = f" during {phases[-1].name}" if phases else ""
            status, why = "interrupted", f"{stage.interrupts.first} came{during}"
        except ShatterError as failure:
            status, why, error = "failed", str(failure), failure
            if isinstance(failure, WaitTimeoutError):
                dump_threads(stage)
        except Exception as failure:
            status, why = "failed", f"{type(failure).__name__}: {failure}"
            error = ShatterError(f"this is a fault of shatterproof itself: {why}; please report it")
            error.__cause__ = failure
        wind_up(stage, salvage=status != "finished", check=self.note_unhealed)
        with suppress(ShatterError):
            stage.recorder.run_file.update(status=status, why=why)
        return RunResult(folder=stage.folder, status=status, why=why, error=error)

    def provision(self) -> None:
        stage, plan = self.stage, self.plan
        with stage.phase(Phase.PROVISION, "provision"):
            spec = topology_spec(plan, stage.images, stage.folder.name, keep=stage.keep)
            topology = stage.started = start_topology(spec, logs_dir=stage.folder / "logs")
            source = topology.clusters[plan.source]
            for topic in plan.topics:
                source.create_topic(
                    topic.name, partitions=topic.partitions, replication=topic.replication, config=topic.config
                )
            topology.test_topics = plan.topic_names
            for route in plan.scenario.routes:
                self.steps.launch(route)
            stage.describe_in_meta()
            brokers = ", ".join(f"{len(c.brokers)} brokers in {n}" for n, c in topology.clusters.items())
            stage.display.say(f"{brokers}, mirror {plan.mirror.name}, network {topology.plan.subnet}")

    def make_mirror(self, route: Route) -> Mirror:
        """The driver of a route; nothing runs until its `start`."""
        stage, plan = self.stage, self.plan
        clusters, images = stage.topology.clusters, stage.images
        site = TopologySite(
            stage.topology,
            image=getattr(images, plan.mirror.image),
            entry_point=images.entry_point if plan.mirror.image == "mirror" else (),
            first=plan.first_process(route),
        )
        source, destination = route
        return plan.mirror.make(
            MirrorContext(
                source=clusters[source],
                destination=clusters[destination],
                site=site,
                settings=plan.settings,
                image=images.brokers(source=destination == plan.source).name,
            )
        )

    def warm_up(self) -> None:
        with self.stage.phase(Phase.WARM_UP, "warm up"):
            took = sum(self.steps.warm_up(route) for route in self.plan.scenario.routes)
            self.stage.display.say(f"a probe record was mirrored on each of {took} partitions")

    def load(self) -> None:
        stage, seconds = self.stage, self.plan.spec.time_limit
        with stage.phase(Phase.LOAD, "load", seconds=seconds):
            stage.sampler = Sampler(stage.topology, stage.recorder)
            stage.sampler.start()
            stage.start_load(writable=(self.plan.source,), reading=self.plan.scenario.reached)
            stage.waiting = self.conductor(whole_run=True)
            stage.conductor = self.conductor(whole_run=False)
            stage.waiting.start()
            stage.conductor.start()
            stage.work(seconds)
            stage.conductor.wait(seconds)  # the schedule ends before the load; late faults get as long again

    def conductor(self, *, whole_run: bool) -> Conductor:
        """A conductor of the faults that wait for their moment in the whole run or the scenario, or of the others."""
        stage = self.stage
        return Conductor(
            topology=stage.topology,
            recorder=stage.recorder,
            clock=stage.recorder.clock,
            schedule=[
                s for s in self.plan.schedule if (bool(s.at_step) or NEMESES[s.nemesis].timing.whole_run) is whole_run
            ],
        )

    def heal(self) -> None:
        stage = self.stage
        assert stage.conductor is not None
        with stage.phase(Phase.HEAL, "heal"):
            healing = stage.conductor.heal_all()
            for problem in healing.errors:
                stage.note(problem)
            if not healing.health.ok:
                stage.note(f"after healing: {healing.health.seen}")
            mirrors = tuple(f"{n.name} " for n in stage.topology.nodes() if n.role is NodeRole.MIRROR)
            self.gone = (
                [problem for problem in healing.health.unhealed if problem.startswith(mirrors)] if mirrors else []
            )
            bites, faults = stage.conductor.bites(), len(stage.conductor.outcomes())
            stage.work(SETTLED_QUIET_S)
            stage.display.say(f"{bites} of {faults} faults bit; {healing.health.seen}")

    def end_waiting(self) -> None:
        """Heal what still lasts, give up the faults whose moment never came, and note them."""
        stage = self.stage
        assert stage.waiting is not None
        outcomes = stage.waiting.outcomes()
        if not outcomes:
            return
        healed = all(outcome.state in OVER for outcome in outcomes)
        with stage.phase(Phase.SCENARIO if healed else Phase.HEAL, "end of waiting faults"):
            healing = stage.waiting.heal_all()
            missed = [o for o in stage.waiting.outcomes() if o.bit is not True]
            for note in (
                *healing.errors,
                *(f"{o.spec.nemesis} {dict(o.spec.params)} did not bite: {o.why}" for o in missed),
            ):
                stage.note(note)
            stage.display.say(f"{stage.waiting.bites()} of {len(stage.waiting.outcomes())} bit; {healing.health.seen}")

    def final_reads(self) -> None:
        stage, limit = self.stage, self.plan.spec.final_limit
        with stage.phase(Phase.FINAL, "final reads"):
            stage.stop_load()
            if stage.sampler is not None:
                stage.sampler.stop()
            context = stage.new_context(writable=(), reading=self.plan.scenario.clusters)
            reads = self.plan.workload.final_reads(context, timeout_s=limit)
            cut_off = [read for read in reads if not read.complete]
            if cut_off:
                stage.recorder.run_file.update(final_reads_cut_off=True)
                stage.note(f"{len(cut_off)} of {len(reads)} final reads did not finish: {_first(cut_off)}")
            stage.display.say(f"{len(reads) - len(cut_off)} of {len(reads)} complete")

    def evidence(self) -> None:
        with self.stage.phase(Phase.EVIDENCE, "evidence"):
            self.note_unhealed()
            self.stage.capture()

    def note_unhealed(self) -> None:
        """Store what could not be healed, what is unhealthy at the end, and mirror processes gone after healing.

        Mirrors that a scenario has stopped, or that have ended by themselves, are left out.
        """
        stage = self.stage
        conductors = [c for c in (stage.conductor, stage.waiting) if c is not None]
        found = [error for c in conductors if c.healing is not None for error in c.healing.errors]
        idle = [n.name for route, m in stage.mirrors.items() if route not in stage.running_routes for n in m.nodes()]
        found += self.gone
        found += check(stage.topology, timeout_s=LAST_CHECK_S, idle=idle).unhealed
        if found:
            found = list(dict.fromkeys(found))
            stage.recorder.run_file.update(unhealed=found)
            stage.note(f"the harness could not heal: {'; '.join(found)}")


def _first(reads: Sequence[FinalRead]) -> str:
    read = reads[0]
    return f"{read.cluster} {read.topic}-{read.partition} at {read.position} of {read.target} ({read.error})"
