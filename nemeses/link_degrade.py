"""`link-degrade`: slow the link from the mirror to a cluster: latency with jitter, a low bandwidth, or both.

It proves latency by the time of a request, before and after, and a low bandwidth by the bytes that passed under
load: unless the flow came near the limit, it reports that the fault did not bite.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError
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

MODES = ("latency", "bandwidth", "both")
HEAL_S = 15.0
PRESSED = 0.5  # of the limit: a flow below that was not throttled


class LinkDegrade(Nemesis):
    """See the module."""

    name = "link-degrade"
    description = "slow the mirror's link to a cluster (latency with jitter, bandwidth, or both)"
    kind: NemesisKind = "link"
    clusters: tuple[str, ...] = ("link",)
    roles = LINK_ROLES
    needs = LINK_NEEDS
    timing = Timing(least_s=3, most_s=8, settle_s=2)
    choices: Mapping[str, tuple[str, ...]] = {"mode": MODES}
    color = "#eeca3b"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Either link, whole or in part."""
        return link_targets(shape, self.roles)

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Latency, bandwidth, and which brokers."""
        return {
            **link_params(rng, shape, target),
            "mode": rng.choice(MODES),
            "latency_ms": rng.choice((100, 250, 500)),
            "jitter_ms": rng.choice((0, 50)),
            "rate_kb_s": rng.choice((2, 8, 32)),
        }

    def available(self, topology: Topology) -> Availability:
        """Where links pass through the proxy."""
        return links_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Slow it down, and measure."""
        mode = str(spec.params.get("mode", "latency"))
        if mode not in MODES:
            raise FaultError(f"link-degrade has modes {MODES}, not {mode}")
        latency_ms = int(spec.params.get("latency_ms", 250)) if mode != "bandwidth" else 0
        jitter_ms = int(spec.params.get("jitter_ms", 0)) if mode != "bandwidth" else 0
        rate_kb_s = int(spec.params.get("rate_kb_s", 32)) if mode != "latency" else None
        link, brokers, target = reserve_link(context, spec)
        probed = [broker for broker in brokers if link.passes(broker)]
        before = max((_request_s(link, broker) for broker in probed), default=0.0)
        context.undo.push(f"heal the link to {link.cluster}", link.heal)
        context.began(target, dict(spec.params))
        link.degrade(
            latency_ms=latency_ms,
            jitter_ms=jitter_ms,
            rate_kb_s=rate_kb_s,
            brokers=None if len(brokers) == len(link.brokers) else brokers,
        )
        bites, seen = [], []
        if latency_ms:
            after = min((_request_s(link, broker) for broker in probed), default=0.0)
            bites.append(after - before >= 0.8 * max(0, latency_ms - jitter_ms) / 1000 > 0)
            seen.append(f"a request took {before * 1000:.0f} ms before and at least {after * 1000:.0f} ms after")
        if rate_kb_s:
            flow = self._flow_kb_s(context, link, brokers)
            limit = rate_kb_s * len(brokers)
            bites.append(PRESSED * rate_kb_s <= max(flow) and sum(flow) <= 2.5 * limit)
            seen.append(
                f"{flow[0]:.1f} KB/s went to {link.cluster} and {flow[1]:.1f} came, "
                f"with {rate_kb_s} KB/s each way for each of {len(brokers)} brokers"
            )
        # the latency of every request is enough: whether the flow was also throttled depends on the load
        return Injected(
            spec=spec,
            target=target,
            nodes=[],
            bite=Bite(yes=bool(bites) and bites[0], seen="; ".join(seen)),
            state={"link": link, "passed": probed},
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Remove it, and wait until requests pass."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        return await_link(context, injected.state["link"], injected.state["passed"], timeout_s=HEAL_S)

    def _flow_kb_s(self, context: FaultContext, link: Link, brokers: Sequence[int]) -> tuple[float, float]:
        was, began = link.bytes(), time.monotonic()
        context.stop.wait(1.5)
        now, elapsed = link.bytes(), time.monotonic() - began
        sums = [sum(now[broker][way] - was[broker][way] for broker in brokers) / 1000 / elapsed for way in (0, 1)]
        return sums[0], sums[1]


def _request_s(link: Link, broker: int) -> float:
    began = time.monotonic()
    link.passes(broker, timeout_s=5.0)
    return time.monotonic() - began
