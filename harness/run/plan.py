"""Planning before a test touches a cluster: names, options, the fault schedule, the clusters to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from harness.clusters.docker.images import ImageSet
from harness.clusters.plan.kraft_config import check_extra
from harness.clusters.plan.topology import ClusterSpec, TopologySpec
from harness.core import contracts
from harness.core.errors import UsageError
from harness.core.given import read_given
from harness.core.hints import closest
from harness.core.testspec import TestSpec, check_name
from harness.run.cluster_config import AUTHORIZER, BROKERS, TOPICS
from harness.run.rehearsal import Rehearsed, rehearse
from harness.run.scenarios import DISASTER, Route, Scenario
from harness.run.scenarios import REGISTRY as SCENARIOS
from mirrors import REGISTRY as MIRRORS
from mirrors import MirrorSettings, MirrorSpec, Traits
from nemeses import REGISTRY as NEMESES
from nemeses.base import FaultSpec, Shape
from nemeses.engine.schedule import draw, from_json
from nemeses.engine.selection import parse
from workloads import REGISTRY as WORKLOADS
from workloads.base import AsksOfMirror, TopicSpec, Workload, WorkloadOptions


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One test, validated, with its fault schedule drawn. given: name → text of every file that it was made from.
    traits: of the mirror, with its options."""

    spec: TestSpec
    scenario: Scenario
    contract: str
    mirror: MirrorSpec
    traits: Traits
    settings: MirrorSettings
    workload: Workload
    options: WorkloadOptions
    topics: tuple[TopicSpec, ...]
    schedule: tuple[FaultSpec, ...]
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic_names(self) -> list[str]:
        """The workload's topics, by their names on the source."""
        return [topic.name for topic in self.topics]

    @property
    def source(self) -> str:
        """Letter of the cluster that the load is written to."""
        return self.scenario.routes[0][0]

    def first_process(self, route: Route) -> int:
        """Number of a route's first mirror process, from 1; each route has as many as the test asks for."""
        routes = (*self.scenario.routes, *self.scenario.later)
        return 1 + routes.index(route) * self.spec.mirror_nodes * max(1, self.traits.nodes)


def make_plan(
    spec: TestSpec, *, schedule: Sequence[dict[str, Any]] | None = None, given: Mapping[str, str] | None = None
) -> RunPlan:
    """Check every name and combination, and draw the fault schedule (or take a stored one).

    given: name → text of files that the test was made from; other files that its options name are read now, once.
    Raises: UsageError for whatever does not exist or cannot be combined.
    """
    check_name("mirror", spec.mirror, MIRRORS)
    check_name("scenario", spec.scenario, SCENARIOS)
    check_name("workload", spec.workload, WORKLOADS)
    mirror, workload = MIRRORS[spec.mirror], WORKLOADS[spec.workload]
    spec = spec.model_copy(update={"mirror_options": {**_asked_of(mirror, workload), **spec.mirror_options}})
    texts = {**(given or {}), **_read(spec, mirror, given or {})}
    traits = mirror.traits_of(spec.mirror_options, texts)
    scenario = SCENARIOS[spec.scenario].with_mirror(fails_back=traits.fails_back)
    _check_failback(mirror, scenario, traits)
    own_contract, design = _design(spec, mirror, texts)
    settings = MirrorSettings(
        contract=_base_contract(spec, mirror, own_contract),
        options=dict(spec.mirror_options),
        mirror_nodes=spec.mirror_nodes,
        design=design,
        texts=texts,
        aliases=scenario.clusters,
        flows=[f"{source}->{destination}" for source, destination in scenario.routes],
    )
    _check_broker_config(spec, scenario)
    options = _workload_options(spec)
    topics = tuple(workload.topics(options))
    mirror.check(settings, [topic.name for topic in topics])
    if schedule is None:
        drawn = _draw(spec, mirror, traits, scenario, topics)
    else:
        drawn = from_json(schedule)
        _check_moments(drawn, scenario)
    return RunPlan(
        spec=spec,
        scenario=scenario,
        contract=_with_producers(spec.contract or _default_contract(own_contract, drawn), spec),
        mirror=mirror,
        traits=traits,
        settings=settings,
        workload=workload,
        options=options,
        topics=topics,
        schedule=drawn,
        given=texts,
    )


def _check_failback(mirror: MirrorSpec, scenario: Scenario, traits: Traits) -> None:
    if scenario.fails_back and not traits.fails_back:
        able = ", ".join(name for name, other in MIRRORS.items() if other.fails_back)
        others = ", ".join(n for n, other in SCENARIOS.items() if not other.with_mirror(fails_back=False).fails_back)
        raise UsageError(
            f"scenario {scenario.name} mirrors back, which mirror {mirror.name} cannot; use scenario {others}, "
            f"or mirror {able}"
        )


def _check_broker_config(spec: TestSpec, scenario: Scenario) -> None:
    """Every key names a cluster that there is, and none that the harness sets."""
    for cluster, config in spec.broker_settings().items():
        if cluster is not None and cluster not in scenario.clusters:
            key, there = f"{cluster}:{next(iter(config))}", ", ".join(scenario.clusters)
            raise UsageError(f"broker-config {key}: scenario {scenario.name} has no cluster {cluster}, only {there}")
    for cluster in scenario.clusters:
        check_extra(spec.broker_config_of(cluster), f"broker-config of cluster {cluster}")


def _base_contract(spec: TestSpec, mirror: MirrorSpec, own_contract: str) -> str:
    """The contract without modifiers, which must be one that the mirror can be judged by."""
    base = contracts.load(spec.contract or own_contract).base
    if mirror.contracts and base not in mirror.contracts:
        raise UsageError(
            f"mirror {spec.mirror} does not promise contract {base}; it can be judged by " + ", ".join(mirror.contracts)
        )
    return base


def _check_moments(schedule: Sequence[FaultSpec], scenario: Scenario) -> None:
    """A stored fault begins at a moment that the scenario has."""
    there = rehearse(scenario).moments
    for fault in schedule:
        for moment in filter(None, (fault.at_step, fault.until)):
            if moment not in there:
                raise UsageError(
                    f"fault {fault.fault_id} ({fault.nemesis}): scenario {scenario.name} has no moment {moment!r}; "
                    + closest(moment, there)
                )


def _draw(
    spec: TestSpec, mirror: MirrorSpec, traits: Traits, scenario: Scenario, topics: Sequence[TopicSpec]
) -> tuple[FaultSpec, ...]:
    """The fault schedule, drawn from the seed."""
    rehearsed = rehearse(scenario)
    every = (*scenario.routes, *scenario.later)
    shape = Shape(
        brokers=dict.fromkeys(scenario.reached, tuple(range(1, spec.brokers + 1))),
        topics=tuple(topic.name for topic in topics),
        partitions=spec.partitions,
        separate_controllers=bool(spec.controllers),
        mirror_nodes=spec.mirror_nodes * traits.nodes * len(scenario.routes),
        replication=spec.replication,
        links=_links(traits, scenario.routes),
        crash_points=_crash_points(spec, mirror, scenario, rehearsed),
        moments=tuple(rehearsed.moments),
        moment_links=_links(traits, every),
        state_on=tuple(sorted({destination for _, destination in every})) if mirror.keeps_state else (),
    )
    return draw((*spec.nemesis, *_disaster(spec, scenario, shape)), shape, seed=spec.seed, load_s=spec.time_limit)


def _links(traits: Traits, routes: Sequence[Route]) -> tuple[str, ...]:
    """Letters of the clusters that the mirrors of these routes reach through the proxy."""
    ends = {"source": 0, "destination": 1}
    return tuple(sorted({route[ends[end]] for route in routes for end in traits.links}))


def _disaster(spec: TestSpec, scenario: Scenario, shape: Shape) -> tuple[str, ...]:
    """The fault of a scenario's disaster, drawn from the seed unless the test names one for that moment: all nodes of
    the cluster killed or paused, or the mirror's link to it cut."""
    if not scenario.struck or any(parse(text).moment == DISASTER for text in spec.nemesis):
        return ()
    where = f"{scenario.struck}/all@{DISASTER}"
    sorts = ["broker-kill", "broker-pause"]
    sorts += ["link-partition"] if scenario.struck in (shape.moment_links or ()) else []
    return (f"{Random(f'disaster {spec.seed}').choice(sorts)}:{where}",)


def _read(spec: TestSpec, mirror: MirrorSpec, given: Mapping[str, str]) -> Mapping[str, str]:
    """Name → text of the files that the mirror's options name and that were not given."""
    named = [spec.mirror_options[option] for option in mirror.reads if option in spec.mirror_options]
    return {name: read_given(name, what="the mirror's file") for name in named if name not in given}


def _asked_of(mirror: MirrorSpec, workload: Workload) -> Mapping[str, str]:
    """Options of the mirror that the workload needs, as far as this mirror has them."""
    asked = workload.mirror_options if isinstance(workload, AsksOfMirror) else {}
    return {name: value for name, value in asked.items() if name in mirror.options}


def _crash_points(
    spec: TestSpec, mirror: MirrorSpec, scenario: Scenario, rehearsed: Rehearsed
) -> tuple[Mapping[str, str], ...]:
    """Crash points of the mirror that the test reaches after its start: route and step of each."""
    started, stopped = dict.fromkeys(rehearsed.started), dict.fromkeys(rehearsed.stopped)
    source_loss = scenario.routes if any(parse(text).nemesis.loses_acknowledged for text in spec.nemesis) else ()
    steps = mirror.crash_steps
    reached = ((steps.start, started), (steps.stop, stopped), (steps.source_loss, source_loss))
    return tuple(
        {"route": f"{source}-{destination}", "step": step}
        for names, routes in reached
        for source, destination in routes
        for step in names
    )


def _design(spec: TestSpec, mirror: MirrorSpec, texts: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """(contract by which the mirror is judged with the chosen design, switch → value)."""
    if mirror.design is not None:
        return mirror.design(spec.design)
    if spec.design:
        able = ", ".join(name for name, other in MIRRORS.items() if other.design is not None)
        raise UsageError(f"mirror {mirror.name} has no design to choose; --design goes with mirror {able}")
    return mirror.contract(spec.mirror_options, texts) if mirror.contract else mirror.contracts[0], {}


def _default_contract(own: str, schedule: Sequence[FaultSpec]) -> str:
    """The mirror's own contract, with a modifier for each cluster that the faults make lose acknowledged writes."""
    losing = {fault.cluster for fault in schedule if NEMESES[fault.nemesis].loses_acknowledged}
    return own + "".join(f"+unclean-{cluster.lower()}" for cluster in sorted(losing))


def _with_producers(contract: str, spec: TestSpec) -> str:
    """The contract, with modifiers for weaker guarantees of the chosen producers."""
    weak = {"plain-producers": spec.producer == "plain", "acks-1": spec.acks == "1"}
    chosen = contract.split("+")
    return "+".join([*chosen, *(modifier for modifier, is_so in weak.items() if is_so and modifier not in chosen)])


def _workload_options(spec: TestSpec) -> WorkloadOptions:
    return WorkloadOptions(
        topics=spec.topics,
        partitions=spec.partitions,
        replication=spec.replication,
        rate=spec.rate,
        producer=spec.producer,
        producers=spec.producers,
        consumers=spec.consumers,
        max_records=spec.max_records,
        client_life=spec.client_life,
        txn_hold=spec.txn_hold,
        isolation=spec.isolation,
        acks=spec.acks,
        value_bytes=spec.value_bytes,
        topic_config={"min.insync.replicas": str(spec.min_isr), **TOPICS[spec.cleanup_policy], **spec.topic_config},
        authorizer=spec.authorizer,
    )


def topology_spec(plan: RunPlan, images: ImageSet, run_id: str, *, keep: bool) -> TopologySpec:
    """The clusters and toxiproxy of a test."""
    spec, mirror, prepared = plan.spec, plan.mirror, _prepared(plan)
    hosts = {name: _mirror_hosts(plan, name) for name in plan.scenario.clusters}
    return TopologySpec(
        run_id=run_id,
        images=images,
        clusters=tuple(
            ClusterSpec(
                name=name,
                brokers=spec.brokers,
                separate_controllers=spec.controllers,
                mirror_hosts=hosts[name],
                config={
                    **(AUTHORIZER if spec.authorizer else {}),
                    **BROKERS[spec.cleanup_policy],
                    **(mirror.broker_config(spec.brokers, spec.mirror_options) if name in prepared else {}),
                    **spec.broker_config_of(name),
                },
                format_features={**(mirror.format_features if name in prepared else {}), **spec.format_feature},
                image=images.brokers(source=name == plan.source).name,
            )
            for name in plan.scenario.clusters
        ),
        keep=keep,
    )


def _prepared(plan: RunPlan) -> tuple[str, ...]:
    """Letters of the clusters that are set up for a mirror within brokers.

    They are the destinations, and the source unless it has an image of its own, which may not know the features.
    """
    if plan.spec.source_image is None:
        return plan.scenario.clusters
    return tuple(sorted(plan.scenario.destinations))


def check_images(plan: RunPlan) -> None:
    """Raises: UsageError where the mirror is part of brokers that no image was named for: our own are stock brokers."""
    if not plan.mirror.in_brokers:
        return
    spec = plan.spec
    for cluster in sorted(plan.scenario.destinations):
        own, option = (
            (spec.source_image, "--source-image")
            if cluster == plan.source
            else (spec.destination_image, "--destination-image")
        )
        if not (own or spec.kafka_image):
            raise UsageError(
                f"test {spec.name}: mirror {plan.mirror.name} is part of the brokers of cluster {cluster}, and no "
                f"release of Kafka has it; name the image of a build that has it with --kafka-image or {option}: "
                "`shatter images --kafka-tgz FILE` makes one of a release archive (./gradlew releaseTarGz)"
            )


def images_of_mirror(plan: RunPlan, images: ImageSet) -> tuple[str, ...]:
    """Names of the images whose brokers have to have the mirror; none for a mirror with processes of its own."""
    if not plan.mirror.in_brokers:
        return ()
    brokers = (images.brokers(source=cluster == plan.source) for cluster in sorted(plan.scenario.destinations))
    return tuple(dict.fromkeys(image.name for image in brokers))


def _mirror_hosts(plan: RunPlan, cluster: str) -> tuple[int, ...]:
    """Numbers of the mirror processes that register with a cluster as brokers."""
    if not plan.mirror.registers:
        return ()
    routes = (*plan.scenario.routes, *plan.scenario.later)
    firsts = [plan.first_process(route) for route in routes if route[1] == cluster]
    return tuple(first + n for first in firsts for n in range(plan.spec.mirror_nodes))
