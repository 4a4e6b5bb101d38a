"""`link-partition`: cut the link from the mirror to a cluster, or to some of its brokers, in one of three ways.

`black_hole`: connections stay and nothing arrives, in both directions or in one; `reset`: connections are reset;
`down`: nothing listens. It proves: a Kafka request that passed before gets no answer, and one to another broker still
does. With one direction cut, the byte counts show which: requests arrive and answers do not, or neither.
It does not drop packets at random, reorder or duplicate them, which TCP hides anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError, UsageError
from harness.topology.clusters import Link
from harness.topology.topology import Topology
from nemeses.base import (
    Availability,
    Bite,
    FaultContext,
    FaultSpec,
    Injected,
    Nemesis,
    NemesisKind,
    Shape,
    Target,
    Timing,
)
from nemeses.support.link_targets import (
    LINK_NEEDS,
    LINK_ROLES,
    await_link,
    link_params,
    link_targets,
    links_available,
    reserve_link,
)

MODES = ("black_hole", "reset", "down")
DIRECTIONS = ("both", "to_cluster", "from_cluster")
HEAL_S = 15.0


class LinkPartition(Nemesis):
    """See the module."""

    name = "link-partition"
    description = (
        "cut the mirror's link to a cluster (black hole, reset or down; one direction or both; all or some brokers)"
    )
    kind: NemesisKind = "link"
    clusters: tuple[str, ...] = ("link",)
    roles = LINK_ROLES
    needs = LINK_NEEDS
    timing = Timing(least_s=2, most_s=8, settle_s=2)
    choices: Mapping[str, tuple[str, ...]] = {"mode": MODES, "direction": DIRECTIONS}
    color = "#f58518"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Either link, whole or in part."""
        return link_targets(shape, self.roles)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Mode, direction (one way only for a black hole), brokers."""
        mode = rng.choice(MODES)
        direction = rng.choice(DIRECTIONS) if mode == "black_hole" else "both"
        return {**link_params(rng, shape, target), "mode": mode, "direction": direction}

    def fix(self, fixed: Mapping[str, str]) -> dict[str, str]:
        """Only a black hole can cut one direction alone."""
        found = dict(fixed)
        if found.get("direction", "both") != "both" and found.setdefault("mode", "black_hole") != "black_hole":
            raise UsageError("only mode=black_hole cuts one direction alone")
        if found.get("mode", "black_hole") != "black_hole":
            found["direction"] = "both"
        return found

    def available(self, topology: Topology) -> Availability:
        """Where links pass through the proxy."""
        return links_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Cut, and compare requests before and after."""
        mode, direction = str(spec.params.get("mode", "black_hole")), str(spec.params.get("direction", "both"))
        if mode not in MODES or direction not in DIRECTIONS:
            raise FaultError(f"link-partition has modes {MODES} and directions {DIRECTIONS}, not {mode}, {direction}")
        link, brokers, target = reserve_link(context, spec)
        before = [broker for broker in brokers if link.passes(broker)]
        context.undo.push(f"heal the link to {link.cluster}", link.heal)
        context.began(target, dict(spec.params))
        link.cut(mode, direction=direction, brokers=None if len(brokers) == len(link.brokers) else brokers)  # type: ignore[arg-type]
        way = _bytes(link, brokers)
        still = [broker for broker in brokers if link.passes(broker)]
        moved = [after - was for was, after in zip(way, _bytes(link, brokers), strict=True)]
        seen = f"requests passed to broker {_names(before)} before, to {_names(still)} after"
        if direction != "both":
            seen += f"; during the probe {moved[0]} bytes went to {link.cluster} and {moved[1]} came from it"
        return Injected(
            spec=spec,
            target=target,
            nodes=[],
            bite=Bite(yes=bool(before) and not still, seen=seen),
            state={"link": link, "passed": before},
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Reconnect, and wait until requests pass again where they passed before."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        return await_link(context, injected.state["link"], injected.state["passed"], timeout_s=HEAL_S)


def _bytes(link: Link, brokers: Sequence[int]) -> tuple[int, int]:
    counted = link.bytes()
    return sum(counted[broker][0] for broker in brokers), sum(counted[broker][1] for broker in brokers)


def _names(brokers: Sequence[int]) -> str:
    return ", ".join(str(broker) for broker in brokers) if brokers else "none"
