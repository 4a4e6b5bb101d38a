"""Shared by the faults on the link from the mirror to a cluster: roles (`all` or `some` of the brokers), reserving."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError, ShatterError
from harness.core.wait import wait_until
from harness.topology.clusters import Link
from harness.topology.topology import Topology
from nemeses.base import Availability, FaultContext, FaultSpec, Shape, Target
from nemeses.support.recovery import node_serves

LINK_ROLES: tuple[str, ...] = ("all", "some")
LINK_NEEDS = "a mirror whose links pass through the proxy"


def link_targets(shape: Shape, roles: tuple[str, ...]) -> tuple[Target, ...]:
    """All brokers of a link, or some of them where there are several; nothing if no link passes through the proxy."""
    return tuple(
        Target(cluster, role)
        for cluster, brokers in sorted(shape.brokers.items())
        if shape.links is None or cluster in shape.links
        for role in roles
        if role == "all" or len(brokers) > 1
    )


def link_params(rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
    """The link, and for role `some` which brokers: at least one, never all."""
    params: dict[str, Any] = {"link": target.cluster}
    if target.role == "some":
        ids = sorted(shape.brokers[target.cluster])
        params["brokers"] = sorted(rng.sample(ids, rng.randint(1, len(ids) - 1)))
    return params


def links_available(topology: Topology) -> Availability:
    """Whether there are links."""
    return Availability(True) if topology.links else Availability(False, "the run has no link through the proxy")


def reserve_link(context: FaultContext, spec: FaultSpec) -> tuple[Link, Sequence[int], str]:
    """The link, the brokers affected, and a name for the target, held for this fault.

    One fault per link at a time: healing a link removes everything that was done to it.
    Raises: FaultError for a link or broker that does not exist; FaultSkippedError.
    """
    letter = str(spec.params.get("link", ""))
    link = context.topology.links.get(letter)
    if link is None:
        raise FaultError(f"no link to cluster {letter!r}; there are {', '.join(sorted(context.topology.links))}")
    brokers = sorted(spec.params.get("brokers") or link.brokers)
    unknown = [broker for broker in brokers if broker not in link.brokers]
    if unknown:
        raise FaultError(f"the link to {letter} has no broker {unknown[0]}; it has {sorted(link.brokers)}")
    context.reservations.take(spec.fault_id, [f"link-{letter}"])
    partly = "" if len(brokers) == len(link.brokers) else " to broker " + ", ".join(str(broker) for broker in brokers)
    return link, brokers, f"link-{letter}{partly}"


def await_link(context: FaultContext, link: Link, brokers: Sequence[int], *, timeout_s: float) -> str:
    """Wait until requests pass again to these brokers, except those that do not answer directly either.

    Raises: WaitTimeoutError.
    """
    cluster = context.topology.clusters[link.cluster]

    def blocked() -> list[int]:
        return [
            broker for broker in brokers if not link.passes(broker) and node_serves(cluster, cluster.brokers[broker])
        ]

    wait_until(
        lambda: not blocked(),
        timeout_s=timeout_s,
        what=f"requests to pass the link to {link.cluster} again",
        instead=lambda: f"none passes to broker {', '.join(str(broker) for broker in blocked())}",
        swallow=(ShatterError,),
    )
    passing = [broker for broker in brokers if link.passes(broker)]
    return f"requests pass the link to broker {', '.join(str(broker) for broker in passing) or 'none'}"
