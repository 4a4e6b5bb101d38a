"""The interface of a nemesis: faults drawn from a seed, injected into roles, proven to bite, always healed.

A nemesis keeps no state. The undo of each act is registered in the fault's `UndoStack` *before* the act, so that the
conductor can undo it whatever happens to the nemesis afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol, TypeVar

from harness.core.clock import Clock
from harness.core.errors import FaultError
from harness.core.wait import wait_until
from harness.history.recording import Recorder
from harness.topology.topology import Topology
from nemeses.reservations import Reservations
from nemeses.undo import UndoStack

T = TypeVar("T")

NemesisKind = Literal["broker", "link", "mirror"]
NO_CHOICES: Mapping[str, tuple[str, ...]] = {}


class FaultStoppedError(FaultError):
    """The run is ending: the fault gave up waiting."""


@dataclass(frozen=True)
class Availability:
    """Whether a nemesis can act on a topology, and why not."""

    yes: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The input of a schedule: known before anything runs, so that a seed gives the same schedule.

    brokers: cluster letter → broker ids; topics: names on A; partitions: per topic.
    replication: replicas per partition; mirror_nodes: containers of the mirror's own; links: clusters that the mirror
    reaches through the proxy; None: all. crash_points: named steps of a mirror that the run reaches, as parameters
    of a fault (route, step). moments: those of the scenario at which faults can begin and be healed, in order.
    moment_links: the links that are there for faults of moments, those of mirrors that the scenario starts later
    included. state_on: clusters in whose topics a mirror keeps its state.
    """

    brokers: Mapping[str, tuple[int, ...]]
    topics: tuple[str, ...]
    partitions: int
    separate_controllers: bool = False
    mirror_nodes: int = 1
    replication: int = 3
    links: tuple[str, ...] | None = None
    crash_points: tuple[Mapping[str, str], ...] = ()
    moments: tuple[str, ...] = ()
    moment_links: tuple[str, ...] | None = None
    state_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """Where a fault acts: a cluster's letter (of a link: the far end's) or `mirror`, and a role there."""

    cluster: str
    role: str


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long a nemesis takes, in seconds.

    least_s and most_s: from injection to healing; settle_s: what healing usually takes on a small machine.
    whole_run: it waits for its trigger from the start of the load until the scenario is over, concurrently with all
    others.
    """

    least_s: float = 2.0
    most_s: float = 8.0
    settle_s: float = 2.0
    whole_run: bool = False

    @property
    def need_s(self) -> float:
        """The minimum time of one fault, healing included."""
        return self.least_s + self.settle_s


@dataclass(frozen=True, kw_only=True)
class FaultSpec:
    """One fault as it is drawn and stored: JSON values only.

    at_s: seconds after the start of the load phase; duration_s: until it is healed.
    cluster: A, B, link (params["link"] says which) or mirror. role: leader, follower, controller, any, all, …
    resolved at injection.
    at_step: the moment of the scenario at which it begins, instead of at_s; until: the one at which it is healed, if
    duration_s (0: unlimited) has not passed before. Both are empty for a fault of the load.
    """

    fault_id: int
    nemesis: str
    at_s: float
    duration_s: float
    cluster: str
    role: str
    params: Mapping[str, Any] = field(default_factory=dict)
    at_step: str = ""
    until: str = ""


@dataclass(kw_only=True)
class FaultContext:
    """The context of one fault. `stop` is set when the run is ending: give up waiting."""

    topology: Topology
    recorder: Recorder
    clock: Clock
    reservations: Reservations
    undo: UndoStack
    began: Callable[[str, Mapping[str, Any]], None]  # to be called with target and params right before the act
    stop: threading.Event = field(default_factory=threading.Event)

    def wait(
        self,
        condition: Callable[[], T | None],
        *,
        timeout_s: float,
        what: str,
        instead: Callable[[], str] | None = None,
        interval_s: float = 0.2,
        swallow: tuple[type[Exception], ...] = (),
    ) -> T:
        """`wait_until`, cut short when the run is ending. For injection; healing waits its full time.

        Raises: WaitTimeoutError, FaultStoppedError.
        """

        def unless_stopped() -> T | None:
            if self.stop.is_set():
                raise FaultStoppedError(f"the run ended while the fault waited for {what}")
            return condition()

        return wait_until(
            unless_stopped, timeout_s=timeout_s, what=what, instead=instead, interval_s=interval_s, swallow=swallow
        )


@dataclass(frozen=True, kw_only=True)
class Bite:
    """Whether a fault really took effect, by a probe or an observed state, and what was seen."""

    yes: bool
    seen: str


@dataclass(kw_only=True)
class Injected:
    """A live fault: its target, whether it bit, and the data needed to verify its healing. beside: partitions that it
    hit in addition to the one that it was drawn for."""

    spec: FaultSpec
    target: str
    nodes: Sequence[str]
    bite: Bite
    beside: Sequence[str] = ()
    state: dict[str, Any] = field(default_factory=dict)


class Nemesis(Protocol):
    """One way of breaking things. No state between calls but what `Injected` carries."""

    name: str
    description: str  # one line
    kind: NemesisKind
    clusters: tuple[str, ...]  # what it acts on, for listings: A, B, link, mirror
    roles: tuple[str, ...]  # every role it has
    default_roles: tuple[str, ...] = ()  # those drawn when the user names none; empty: all roles
    needs: str  # what a run must have; completes "it needs …"
    timing: Timing
    choices: Mapping[str, tuple[str, ...]] = NO_CHOICES  # parameters that a user may fix, and their values
    loses_acknowledged: bool = False  # whether Kafka itself may lose acknowledged writes because of it
    color: str  # of its shading in reports

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Every cluster and role it can act on; empty when it cannot act on this shape at all. Pure."""
        ...

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Choose the parameters, JSON values; pure. Everything random is drawn here: a stored spec repeats it."""
        ...

    def fix(self, fixed: Mapping[str, str]) -> dict[str, str]:
        """The parameters that a user fixed, each of which is one of `choices`, with those that follow from them. Pure.

        Raises: UsageError when they do not go together.
        """
        return dict(fixed)

    def available(self, topology: Topology) -> Availability:
        """Whether it can act here."""
        ...

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Inject it, and prove that it bit.

        Order: resolve the role, take the reservations, register the undo, call `context.began`, act, prove.
        Raises: FaultSkippedError before anything is done when another fault forbids it; FaultError when it
        cannot be done (the conductor then runs the undo stack).
        """
        ...

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Run the undo stack and wait (bounded) until the system has recovered; returns what was seen.

        Safe to call twice. Raises: ShatterError when the system is not healthy after it.
        """
        ...
