"""Values that the runner gives to a mirror driver: clusters, settings, and a site to run its processes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from harness.clusters.docker.images import ImageSet
    from harness.clusters.pair import RunningTopology
    from harness.topology.clusters import Cluster, Node
    from harness.topology.mirror import Mirror


@dataclass(frozen=True, kw_only=True)
class MirrorSettings:
    """The user's choices. contract: what the mirror must promise. options: `--mirror-option NAME=VALUE` pairs.

    design: switch → value, of a mirror whose design can be chosen. texts: name → text of the files that options name.
    aliases: letters of the test's mirrored clusters. flows: `A->B` of each mirror that runs from the start.
    """

    contract: str = "mm2-exactly-once"
    options: Mapping[str, str] = field(default_factory=dict)
    mirror_nodes: int = 1
    design: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    aliases: Sequence[str] = ("A", "B")
    flows: Sequence[str] = ("A->B",)


@dataclass(frozen=True)
class Membership:
    """A mirror process as a broker of a cluster that it joins. link: its address for mirrors that read from there."""

    broker_id: int
    link: tuple[str, int]


class MirrorSite(Protocol):
    """Where a mirror's processes run: containers in the run's network."""

    def address(self, number: int) -> str:
        """The fixed IPv4 address of the mirror process with this number, from 1; known before it is made."""
        ...

    def membership(self, number: int, cluster: str) -> Membership:
        """Process `number` as a broker of a cluster that was planned with it. Raises KeyError for another."""
        ...

    def make(
        self,
        number: int,
        *,
        command: Sequence[str],
        files: Mapping[str, str],
        environment: Mapping[str, str],
        image: str | None = None,
        entry_point: Sequence[str] = (),
    ) -> Node:
        """Create and start the container of process `number` from the mirror's image, or from another one.

        command: arguments of the entry point. files: path inside → text. entry_point: of another image; the image's own
        if empty.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class MirrorContext:
    """The arguments of a driver. image: of the destination's brokers, for messages."""

    source: Cluster
    destination: Cluster
    site: MirrorSite
    settings: MirrorSettings
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class CrashSteps:
    """Named steps at which a mirror's processes can be made to crash, by what leads there: a start, a stop, or a source
    that lost records which the mirror has."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    source_loss: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.start, *self.stop, *self.source_loss)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a mirror is like with its options. fails_back: it can mirror back over the old source's log. links: the ends
    of its route (`source`, `destination`) that it reaches through the proxy. nodes: its containers, for each of
    `--mirror-nodes`."""

    fails_back: bool = False
    links: tuple[str, ...] = ("source", "destination")
    nodes: int = 1


@dataclass(frozen=True, kw_only=True)
class MirrorSpec:
    """One entry of the registry.

    contracts: names it can be judged by, the default first. options: name → what it does. check: validates settings
    before anything starts (raises UsageError). make: the driver; nothing runs until its `start`. image: the one of
    harness.clusters.docker.images.ImageSet that its processes run in. registers: they join the destination as brokers,
    and use only the source's link. in_brokers: it runs within the destination's brokers, which use only the source's
    link; for it the clusters get broker_config (number of brokers and options → configuration of every node) and are
    formatted with format_features, and their image has to have class_in_brokers (a path in the jars of Kafka's
    clients), which our own images lack. fails_back: it can mirror back over the old source's log. traits: options and
    the texts of files that they name → its traits, where these depend on them. keeps_state: it keeps state in topics of
    its destination (harness.topology.mirror.KeepsTopics). design: `--design`
    arguments → (the contract they are judged by, switch → value); None: there is nothing to choose. designs: what there
    is to choose, as rows of `shatter list designs`. contract: options
    and the texts of files that they name → the contract; None: the first one. crash_steps: where its processes can be
    made to crash. version: of the mirror in these images, where it is known. reads: options that name a file, whose
    text is kept with the run.
    """

    name: str
    description: str
    contracts: tuple[str, ...]
    options: Mapping[str, str]
    check: Callable[[MirrorSettings, Sequence[str]], None]
    make: Callable[[MirrorContext], Mirror]
    image: str = "mirror"
    registers: bool = False
    in_brokers: bool = False
    broker_config: Callable[[int, Mapping[str, str]], Mapping[str, str]] = lambda _brokers, _options: {}
    format_features: Mapping[str, str] = field(default_factory=dict)
    class_in_brokers: str = ""
    fails_back: bool = False
    traits: Callable[[Mapping[str, str], Mapping[str, str]], Traits] | None = None
    keeps_state: bool = False
    design: Callable[[Sequence[str]], tuple[str, Mapping[str, str]]] | None = None
    designs: Callable[[bool], list[dict[str, Any]]] = lambda _verbose: []
    contract: Callable[[Mapping[str, str], Mapping[str, str]], str] | None = None
    crash_steps: CrashSteps = CrashSteps()
    version: Callable[[ImageSet], str] = lambda _: ""
    reads: tuple[str, ...] = ()

    def traits_of(self, options: Mapping[str, str], texts: Mapping[str, str]) -> Traits:
        """Its traits with these options. Raises: UsageError for options that are wrong."""
        if self.traits is not None:
            return self.traits(options, texts)
        links = ("source",) if self.registers or self.in_brokers else Traits.links
        return Traits(fails_back=self.fails_back, links=links, nodes=0 if self.in_brokers else 1)


class TopologySite:
    """Implements MirrorSite on a running topology (harness.clusters.pair.RunningTopology).

    image, entry_point: `mirror` and `entry_point` of harness.clusters.docker.images.ImageSet. first: number of this
    mirror's first container; a second mirror of the same run begins elsewhere.
    """

    def __init__(self, topology: RunningTopology, *, image: str, entry_point: Sequence[str], first: int = 1) -> None:
        self._topology = topology
        self._image = image
        self._entry_point = tuple(entry_point)
        self._first = first

    def address(self, number: int) -> str:
        """See MirrorSite."""
        return self._topology.plan.mirror_address(self._first + number - 1)

    def membership(self, number: int, cluster: str) -> Membership:
        """See MirrorSite."""
        planned = self._topology.plan
        hosts = {spec.name: spec.mirror_hosts for spec in planned.spec.clusters}[cluster]
        which = self._first + number - 1
        if which not in hosts:
            raise KeyError(f"mirror process {which} was not planned on cluster {cluster}")
        proxy = planned.clusters[cluster].mirror_proxies[hosts.index(which)]
        return Membership(proxy.broker, (planned.toxiproxy.address, proxy.listen_port))

    def make(
        self,
        number: int,
        *,
        command: Sequence[str],
        files: Mapping[str, str],
        environment: Mapping[str, str],
        image: str | None = None,
        entry_point: Sequence[str] = (),
    ) -> Node:
        """See MirrorSite. Raises EngineError, ImageError, UsageError."""
        from harness.clusters.plan.topology import NodePlan
        from harness.topology.clusters import NodeRole  # late, to avoid an import cycle

        which = self._first + number - 1
        return self._topology.launch(
            NodePlan(
                name=f"mirror-{which}",
                cluster="mirror",
                role=NodeRole.MIRROR,
                node_id=which,
                address=self.address(number),
                image=image or self._image,
                entrypoint=tuple(entry_point) if image else self._entry_point,
                command=tuple(command),
                environment=dict(environment),
                files=dict(files),
                user="0",
            )
        )
