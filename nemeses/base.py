"""The shape of a nemesis: faults drawn from a seed, injected into roles, proven to bite, always healed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from harness.clock import Clock
from harness.clusters.base import Topology
from harness.history.recording import Recorder


@dataclass(frozen=True)
class Availability:
    """Whether a nemesis can act on a topology, and why not."""

    yes: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a schedule may depend on: known before anything runs, so that a seed gives the same schedule.

    brokers: cluster letter → broker ids; topics: names on A; partitions: per topic.
    """

    brokers: Mapping[str, tuple[int, ...]]
    topics: tuple[str, ...]
    partitions: int
    separate_controllers: bool = False
    mirror_nodes: int = 1


@dataclass(frozen=True, kw_only=True)
class FaultSpec:
    """One fault as it is drawn and stored: JSON values only.

    at_s: seconds after the start of the load phase; duration_s: until it is healed.
    cluster: A, B, link or mirror. role: leader, follower, controller, any, all, … (resolved at injection).
    """

    fault_id: int
    nemesis: str
    at_s: float
    duration_s: float
    cluster: str
    role: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class FaultContext:
    """What a fault acts with. `stop` says that the run wants to end: give up waiting, heal."""

    topology: Topology
    recorder: Recorder
    clock: Clock
    rng: Random
    exclusive: set[str] = field(default_factory=set)  # names of nodes that another fault holds now


@dataclass(frozen=True, kw_only=True)
class Bite:
    """Whether a fault really acted, by a probe or a state that was seen, and what was seen."""

    yes: bool
    seen: str


@dataclass(kw_only=True)
class Injected:
    """A live fault: what it hit, whether it bit, and what its healing needs."""

    spec: FaultSpec
    target: str
    nodes: Sequence[str]
    bite: Bite
    state: dict[str, Any] = field(default_factory=dict)


class Nemesis(Protocol):
    """One way of breaking things. No state between calls but what `Injected` carries."""

    name: str
    clusters: tuple[str, ...]  # on what it can act: A, B, link, mirror
    roles: tuple[str, ...]
    color: str  # of its shading in reports

    def available(self, topology: Topology) -> Availability:
        """Whether it can act here."""
        ...

    def draw(self, rng: Random, shape: Shape, *, fault_id: int, at_s: float, duration_s: float) -> FaultSpec:
        """Choose target role and parameters; pure."""
        ...

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Do it, and prove that it bit. Raises FaultError when it cannot be done (undoing its own parts)."""
        ...

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Undo it and wait (bounded) until the system shows it; returns what was seen. Safe to call twice."""
        ...
