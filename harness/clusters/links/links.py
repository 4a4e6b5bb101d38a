"""The link from the mirror to a cluster: one toxiproxy proxy per broker, which can be cut, slowed and healed.

Traffic is counted by the kernel, in the proxy's network namespace: toxiproxy's own metrics grow only when a
connection closes, and a mirror's connections stay open for minutes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from harness.clusters.kafka import node_requests
from harness.clusters.links.toxiproxy import Stream, ToxiproxyServer
from harness.clusters.plan.topology import ClusterPlan, ProxyPlan
from harness.core.errors import ClusterError
from harness.core.wait import wait_until
from harness.topology.clusters import Node

Mode = Literal["black_hole", "reset", "down"]
Direction = Literal["both", "to_cluster", "from_cluster"]

HEAL_S = 10.0
_STREAMS: Mapping[str, tuple[Stream, ...]] = {
    "both": ("upstream", "downstream"),
    "to_cluster": ("upstream",),
    "from_cluster": ("downstream",),
}
_COUNTER = re.compile(r"^\s*(\d+)\s+(\d+)\s.*(to|from)-([A-Z]-\d+)", re.MULTILINE)


def counting_rules(proxies: Iterable[ProxyPlan]) -> str:
    """The shell script that makes the kernel count: rules without a target, one per proxy and direction.

    Towards the cluster: bytes sent to the broker. From the cluster: bytes sent to the client.
    """
    lines = ["set -e"]
    for proxy in proxies:
        host, _, port = proxy.upstream.partition(":")
        for rule, comment in (
            (f"-d {host} --dport {port}", f"to-{proxy.name}"),
            (f"--sport {proxy.listen_port}", f"from-{proxy.name}"),
        ):
            lines.append(f"iptables -w 5 -A OUTPUT -p tcp {rule} -m comment --comment {comment}")
    return "\n".join(lines)


def parse_counters(listing: str) -> dict[str, tuple[int, int]]:
    """Proxy name → IP bytes (towards the cluster, from it), out of `iptables -L OUTPUT -n -v -x`."""
    found: dict[str, dict[str, int]] = {}
    for _, size, direction, name in _COUNTER.findall(listing):
        found.setdefault(name, {})[direction] = int(size)
    return {name: (sizes.get("to", 0), sizes.get("from", 0)) for name, sizes in found.items()}


class ToxiproxyLink:
    """Implements `harness.topology.clusters.Link`.

    Faults of several nemeses on one broker's proxy add up; `heal` undoes them all, or those of the brokers named.
    """

    def __init__(self, cluster: ClusterPlan, *, server: ToxiproxyServer, node: Node) -> None:
        self._cluster = cluster
        self._server = server
        self._node = node
        self._own = tuple(proxy.broker for proxy in cluster.proxies)
        self._proxies = {proxy.broker: proxy for proxy in (*cluster.proxies, *cluster.mirror_proxies)}
        self._lock = threading.RLock()

    @property
    def cluster(self) -> str:
        """The cluster at its far end."""
        return self._cluster.name

    @property
    def brokers(self) -> Sequence[int]:
        """Ids of the cluster's own brokers. A mirror that leads partitions here is affected when all of these are."""
        return self._own

    def address(self, broker: int) -> tuple[str, int]:
        """The mirror's address for this broker: toxiproxy's address and the broker's port on it."""
        return self._node.address, self._proxy(broker).listen_port

    def cut(self, mode: Mode, *, direction: Direction = "both", brokers: Sequence[int] | None = None) -> None:
        """Cut the proxies of these brokers (all by default), existing connections included.

        black_hole: what is sent in the direction vanishes, connections stay open. reset: every connection is
        reset, new ones at their first byte in the direction. down: nothing listens (both directions only).
        """
        if mode == "down" and direction != "both":
            raise ClusterError(
                f"link {self.cluster}: `down` cuts both directions; {direction} needs black_hole or reset"
            )
        if mode not in ("black_hole", "reset", "down") or direction not in _STREAMS:
            raise ClusterError(f"link {self.cluster}: unknown cut {mode!r}, {direction!r}")
        with self._lock:
            for proxy in self._chosen(brokers):
                if mode == "down":
                    self._server.disable(proxy.name)
                    continue
                kind = "timeout" if mode == "black_hole" else "reset_peer"
                for stream in _STREAMS[direction]:
                    self._server.add_toxic(proxy.name, kind, stream, {"timeout": 0})
                if mode == "reset":
                    self._bounce(proxy.name)  # a toxic added later does not reset an open, idle connection

    def degrade(
        self,
        *,
        latency_ms: int = 0,
        jitter_ms: int = 0,
        rate_kb_s: int | None = None,
        brokers: Sequence[int] | None = None,
    ) -> None:
        """Add delay (per direction, so a round trip takes twice as much) or a bandwidth limit (per direction)."""
        if latency_ms < 0 or jitter_ms < 0 or (rate_kb_s is not None and rate_kb_s < 1):
            raise ClusterError(
                f"link {self.cluster}: latency and jitter must be at least 0 ms, the rate at least 1 kB/s"
            )
        with self._lock:
            for proxy in self._chosen(brokers):
                for stream in _STREAMS["both"]:
                    if latency_ms or jitter_ms:
                        self._server.add_toxic(
                            proxy.name, "latency", stream, {"latency": latency_ms, "jitter": jitter_ms}
                        )
                    if rate_kb_s is not None:
                        self._server.add_toxic(proxy.name, "bandwidth", stream, {"rate": rate_kb_s})

    def heal(self, *, brokers: Sequence[int] | None = None) -> None:
        """Remove every toxic, enable every proxy, drop connections that outlived the fault; then probe.

        A broker that does not answer directly either (dead, paused) cannot be probed and is not an error.
        Raises ClusterError, or WaitTimeoutError when a broker answers directly but not through its proxy.
        """
        with self._lock:
            listening = self._server.proxies()
            for proxy in self._chosen(brokers):
                had = self._server.remove_toxics(proxy.name)
                if not listening.get(proxy.name, False):
                    self._server.enable(proxy.name)
                elif had:
                    self._bounce(proxy.name)
            for proxy in self._chosen(brokers):
                wait_until(
                    partial(self._passes_or_cannot, proxy.broker),
                    timeout_s=HEAL_S,
                    what=f"{proxy.name} to pass requests again after it was healed",
                )

    def healthy(self) -> bool:
        """Whether every proxy listens and has no toxic."""
        listening = self._server.proxies()
        return all(listening.get(p.name, False) and not self._server.toxics(p.name) for p in self._proxies.values())

    def passes(self, broker: int, *, timeout_s: float = 1.0) -> bool:
        """Whether a real Kafka request (ApiVersions) gets its answer through this broker's proxy."""
        host, port = self.address(broker)
        return node_requests.answers(host, port, timeout_s=timeout_s)

    def bytes(self) -> Mapping[int, tuple[int, int]]:
        """IP bytes since start per broker: (sent on towards the cluster, sent on from the cluster).

        Headers, handshakes and acknowledgements count, so an idle connection shows a few dozen bytes.
        """
        result = self._node.net("iptables -w 5 -L OUTPUT -n -v -x")
        if result.exit_code != 0:
            raise ClusterError(f"link {self.cluster}: its bytes cannot be read: {result.output.strip()[-300:]}")
        counters = parse_counters(result.output)
        missing = [proxy.name for proxy in self._proxies.values() if proxy.name not in counters]
        if missing:
            raise ClusterError(f"link {self.cluster}: no counters for {', '.join(missing)}: was toxiproxy restarted?")
        return {broker: counters[proxy.name] for broker, proxy in self._proxies.items()}

    def _passes_or_cannot(self, broker: int) -> bool:
        host, _, port = self._proxy(broker).upstream.partition(":")
        return self.passes(broker) or not node_requests.answers(host, int(port), timeout_s=1.0)

    def _bounce(self, name: str) -> None:
        self._server.disable(name)
        self._server.enable(name)

    def _proxy(self, broker: int) -> ProxyPlan:
        try:
            return self._proxies[broker]
        except KeyError:
            raise ClusterError(
                f"link {self.cluster} has no broker {broker}; it has {', '.join(map(str, self._proxies))}"
            ) from None

    def _chosen(self, brokers: Sequence[int] | None) -> list[ProxyPlan]:
        everything = brokers is None or set(brokers) >= set(self._own)
        return [self._proxy(broker) for broker in (self._proxies if everything else brokers or ())]
