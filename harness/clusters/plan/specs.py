"""Specification of a topology: clusters, their sizes, images and configuration. Fully validated, stored as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.clusters.plan import kraft_config as kafka
from harness.core.errors import UsageError

MAX_BROKERS = 9
MAX_CONTROLLERS = 5
MAX_CLUSTERS = 11
RUN_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,47}")


class Images(Protocol):
    """Names of the images to use. tools: a shell with iptables, iproute2 and GNU tar (our Kafka image has them)."""

    @property
    def kafka(self) -> str:
        """Brokers, controllers, Kafka's tools."""
        ...

    @property
    def toxiproxy(self) -> str:
        """The links."""
        ...

    @property
    def tools(self) -> str:
        """Helper containers."""
        ...


@dataclass(frozen=True, kw_only=True)
class ImageNames:
    """Image names as a plain value."""

    kafka: str
    toxiproxy: str
    tools: str


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """One cluster. config: Kafka configuration that overrides the harness's defaults, for all nodes.

    separate_controllers: 0 makes every broker a controller too, as long as there are at most 5 (then the first 5).
    format_features: feature → level that the storage is formatted with, beside the release's own. image: another Kafka
    image than the run's. heap: the JVM's -Xmx. mirror_hosts: numbers of the run's mirror processes
    that register here as brokers (the reference mirror does), in the order of their broker ids.
    """

    name: str
    brokers: int = 3
    separate_controllers: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    format_features: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    heap: str = "256m"
    mirror_hosts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        where = f"cluster {self.name}"
        if not re.fullmatch(r"[A-Z]", self.name) or ord(self.name) - ord("A") >= MAX_CLUSTERS:
            raise UsageError(
                f"cluster name {self.name!r}: it must be one letter from A to {chr(ord('A') + MAX_CLUSTERS - 1)}"
            )
        if not 1 <= self.brokers <= MAX_BROKERS:
            raise UsageError(f"{where}: {self.brokers} brokers; it must be 1 to {MAX_BROKERS}")
        if not 0 <= self.separate_controllers <= MAX_CONTROLLERS:
            raise UsageError(
                f"{where}: {self.separate_controllers} separate controllers; "
                f"it must be 0 (combined) to {MAX_CONTROLLERS}"
            )
        if not re.fullmatch(r"[1-9]\d*[kmgKMG]", self.heap):
            raise UsageError(f"{where}: heap {self.heap!r} is not a JVM size such as 256m")
        kafka.check_extra(self.config, where)


@dataclass(frozen=True, kw_only=True)
class TopologySpec:
    """A run's topology. subnet: a named /24 (None: any free one). keep: it outlives the process that started it."""

    run_id: str
    images: Images
    clusters: Sequence[ClusterSpec] = (ClusterSpec(name="A"), ClusterSpec(name="B"))
    subnet: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        if not RUN_ID.fullmatch(self.run_id):
            raise UsageError(
                f"run id {self.run_id!r}: it must be letters, digits, dots, dashes and underscores, at most 48, "
                "beginning with a letter or digit"
            )
        names = [cluster.name for cluster in self.clusters]
        if not names or len(set(names)) != len(names):
            raise UsageError(f"clusters {names}: at least one is needed, and each name once")


def to_json(spec: TopologySpec) -> dict[str, object]:
    """The spec as JSON values; `from_json` reads it back."""
    return {
        "run_id": spec.run_id,
        "images": {name: getattr(spec.images, name) for name in ("kafka", "toxiproxy", "tools")},
        "clusters": [
            {**vars(cluster), "config": dict(cluster.config), "format_features": dict(cluster.format_features)}
            for cluster in spec.clusters
        ],
        "subnet": spec.subnet,
        "keep": spec.keep,
    }


def from_json(document: Mapping[str, object]) -> TopologySpec:
    """A spec out of `to_json`'s values. Raises TypeError or KeyError when it is something else."""
    values: dict[str, object] = dict(document)
    values["images"] = ImageNames(**values["images"])  # type: ignore[arg-type]
    values["clusters"] = tuple(
        ClusterSpec(**{**cluster, "mirror_hosts": tuple(cluster.get("mirror_hosts", ()))})
        for cluster in values["clusters"]  # type: ignore[attr-defined]
    )
    return TopologySpec(**values)  # type: ignore[arg-type]
