"""Checks whether everything is healthy again: nodes run, links pass, every replica is in sync."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TypeVar

from harness.core.errors import ShatterError, WaitTimeoutError
from harness.topology.clusters import Cluster, Link, Node, NodeRole, NodeState
from harness.topology.topology import Topology
from nemeses.support.recovery import out_of_sync, stopped_by_signal

T = TypeVar("T")

LEAST_S = 2.0  # what each check gets, even when the time is up


@dataclass(frozen=True, kw_only=True)
class Health:
    """The problems found. seen: the same in one line. unhealed: those that the harness has to heal, without the
    mirror's own. A mirror's process that ended by itself, and is therefore missing from in-sync sets, is the mirror's
    own problem; no mirror removes, pauses or stops (SIGSTOP) itself."""

    problems: tuple[str, ...]
    unhealed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    @property
    def seen(self) -> str:
        """One line for the record."""
        return "; ".join(self.problems) or "every node runs, every link passes, every replica is in sync"


def bounded(action: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """Call in a thread of its own and give up waiting, but not the thread, after the time.

    For calls that should be bounded, which the container engine does not guarantee.
    Raises: WaitTimeoutError, and whatever the action raises.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(action())
        except BaseException as error:  # re-raised in the caller
            failure.append(error)

    thread = Thread(target=run, name=f"bounded: {what}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failure:
        raise failure[0]
    if thread.is_alive():
        raise WaitTimeoutError(f"waited {timeout_s:g} s to {what}")
    return result[0]


def check(topology: Topology, *, timeout_s: float, idle: Collection[str] = ()) -> Health:
    """Check everything, waiting up to the time-out for recovery. Never raises for what it finds.

    idle: names of nodes that need not run, such as those of a mirror that a scenario has stopped.
    """
    deadline = time.monotonic() + timeout_s
    down: set[str] = set()

    def left(*needed: str) -> float:
        """Time left, or none for a check that needs nodes that are down: after healing nothing starts them."""
        return LEAST_S if down & set(needed) else max(LEAST_S, deadline - time.monotonic())

    checks: list[tuple[str, Callable[[], str | None]]] = []
    nodes = [node for node in topology.nodes() if node.name not in idle]
    its_own: dict[str, Callable[[], bool]] = {
        **{node.name: partial(_ended, node) for node in nodes if node.role is NodeRole.MIRROR},
        **{f"cluster {name}": partial(_lacks_mirrors_only, cluster) for name, cluster in topology.clusters.items()},
    }
    checks += [(node.name, partial(_node, node)) for node in nodes]
    checks += [
        (f"cluster {name}", partial(_cluster, cluster, partial(left, name)))
        for name, cluster in topology.clusters.items()
    ]
    checks += [
        (f"link to broker {broker} of {name}", partial(_link, link, broker, partial(left, name, "link")))
        for name, link in topology.links.items()
        for broker in link.brokers
    ]
    problems, unhealed = [], []
    for what, action in checks:
        try:
            found = bounded(action, timeout_s=left() + LEAST_S, what=f"check {what}")
        except Exception as error:
            found = f"{what}: {error}"
        if found:
            problems.append(found)
            down |= {node.cluster for node in nodes if node.name == what}
            if what not in its_own or not its_own[what]():
                unhealed.append(found)
    return Health(problems=tuple(problems), unhealed=tuple(unhealed))


def _ended(mirror: Node) -> bool:
    """Whether a mirror's process ended, or does not work, by itself."""
    try:
        state = mirror.state()
        return state is NodeState.STOPPED or (state is NodeState.RUNNING and not stopped_by_signal(mirror))
    except ShatterError:  # neither the engine nor the container answers
        return True


def _lacks_mirrors_only(cluster: Cluster) -> bool:
    """Whether every broker of the cluster is in sync everywhere, so that only processes of a mirror, which join it as
    brokers, are missing."""
    try:
        return not any(out_of_sync(cluster, broker, among=cluster.brokers) for broker in cluster.brokers)
    except ShatterError:
        return False


def _node(node: Node) -> str | None:
    state = node.state()
    if state is not NodeState.RUNNING:
        return f"{node.name} is {state}"
    if node.role is not NodeRole.PROXY and stopped_by_signal(
        node
    ):  # no fault stops the proxy, and its container has no shell
        return f"{node.name} is stopped by a signal"
    return None


def _cluster(cluster: Cluster, left: Callable[[], float]) -> str | None:
    cluster.await_full_isr(timeout_s=left())
    return None


def _link(link: Link, broker: int, left: Callable[[], float]) -> str | None:
    if link.passes(broker, timeout_s=left()):  # a broker that was just started may be slow to answer
        return None
    return f"no request passes the link to broker {broker} of {link.cluster}"
