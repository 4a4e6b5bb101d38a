"""Starts and stops a topology: a plan's containers, their proxies, their readiness, their removal."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import docker.errors

from harness.clusters.docker import containers
from harness.clusters.docker import labels as label
from harness.clusters.docker.cleanup import clean, labelled_objects
from harness.clusters.docker.clients import DockerClients
from harness.clusters.kafka.admin import KafkaCluster
from harness.clusters.kafka.nodes import ContainerNode
from harness.clusters.links.links import ToxiproxyLink, counting_rules
from harness.clusters.links.toxiproxy import ToxiproxyServer
from harness.clusters.plan import kraft_config
from harness.clusters.plan.topology import (
    TOXIPROXY_API_PORT,
    NodePlan,
    TopologyPlan,
    TopologySpec,
    from_json,
    plan,
    to_json,
)
from harness.core.errors import ClusterError, UsageError
from harness.core.wait import wait_until
from harness.topology.clusters import NodeState
from harness.topology.mirror import Mirror

T = TypeVar("T")
R = TypeVar("R")

READY_S = 120.0
PROXY_S = 20.0


class RunningTopology:
    """Implements `harness.topology.topology.Topology` for containers that run. A context manager; or call `stop`.

    `mirrors` and `test_topics` are set by the code that starts mirrors and creates topics. When `logs_dir` is set,
    `stop` saves every container's log there before it removes the container.
    """

    def __init__(self, planned: TopologyPlan, clients: DockerClients, *, owner: label.Owner) -> None:
        self.plan = planned
        self.mirrors: Sequence[Mirror] = ()
        self.test_topics: Sequence[str] = ()
        self.logs_dir: Path | None = None
        self.clients = clients
        self._labels = label.run_labels(planned.run_id, owner, keep=planned.spec.keep)
        self._lock = threading.Lock()
        self._nodes: dict[str, ContainerNode] = {node.name: self._node(node) for node in planned.nodes}
        self.toxiproxy = ToxiproxyServer(planned.toxiproxy.address, TOXIPROXY_API_PORT)
        self._clusters = {
            name: KafkaCluster(cluster, {node.node_id: self._nodes[node.name] for node in cluster.nodes})
            for name, cluster in planned.clusters.items()
        }
        self._links = {
            name: ToxiproxyLink(cluster, server=self.toxiproxy, node=self._nodes[planned.toxiproxy.name])
            for name, cluster in planned.clusters.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def run_id(self) -> str:
        """The run's label."""
        return self.plan.run_id

    @property
    def clusters(self) -> Mapping[str, KafkaCluster]:
        """Letter → cluster."""
        return self._clusters

    @property
    def links(self) -> Mapping[str, ToxiproxyLink]:
        """Letter → link from the mirror to that cluster."""
        return self._links

    def nodes(self) -> Sequence[ContainerNode]:
        """Every container of the run, those of the mirror included."""
        with self._lock:
            return tuple(self._nodes.values())

    def node(self, name: str) -> ContainerNode:
        """A container by its short name. Raises ClusterError."""
        with self._lock:
            if name not in self._nodes:
                raise ClusterError(f"run {self.run_id} has no node {name}; it has {', '.join(self._nodes)}")
            return self._nodes[name]

    def launch(self, node: NodePlan) -> ContainerNode:
        """Start one more container in the run's network (a mirror process, say); `stop` removes it too.

        A node of the same name that was removed may be launched again. Raises EngineError, UsageError.
        """
        containers.check_images(self.clients, {node.image})
        self._start(node)
        made = self._node(node)
        with self._lock:
            self._nodes[node.name] = made
        return made

    def discard(self, name: str) -> None:
        """Remove a container that `launch` started, and forget it. No error if it is gone. Raises ClusterError."""
        node = self.node(name)
        with contextlib.suppress(docker.errors.NotFound):
            self.clients.api.remove_container(node.container, force=True, v=True)
        with self._lock:
            self._nodes.pop(name, None)

    def save_logs(self, folder: Path) -> Sequence[Path]:
        """Write every container's whole log to FOLDER/NODE.log; returns the files. Absent containers have none."""
        folder.mkdir(parents=True, exist_ok=True)

        def save(node: ContainerNode) -> Path | None:
            if node.state() is NodeState.ABSENT:
                return None
            path = folder / f"{node.name}.log"
            path.write_text(node.logs())
            return path

        return [path for path in _in_parallel(save, self.nodes()) if path is not None]

    def stop(self) -> None:
        """Save the logs if `logs_dir` is set, then remove every container, network and volume of the run.

        Safe to call again. Raises EngineError when something could not be removed, StorageError never: logs that
        cannot be written do not keep containers alive.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self.clients.close)
            stack.callback(clean, self.clients, run=self.run_id, force=True)
            stack.callback(self.toxiproxy.close)
            for cluster in self._clusters.values():
                stack.callback(cluster.close)
            if self.logs_dir is not None:
                with contextlib.suppress(OSError, ClusterError):
                    self.save_logs(self.logs_dir)

    def detach(self) -> None:
        """Leave everything running, and close only this process's own connections. For `keep`."""
        for cluster in self._clusters.values():
            cluster.close()
        self.toxiproxy.close()
        self.clients.close()

    def await_ready(self, *, timeout_s: float = READY_S) -> None:
        """Wait for every cluster: brokers answer, IDs are right, counts are full."""
        _in_parallel(lambda cluster: cluster.await_ready(timeout_s=timeout_s), tuple(self._clusters.values()))

    def start_all(self) -> None:
        """Start every container of the plan, then the proxies. For `start_topology`."""
        _in_parallel(self._start, self.plan.nodes)
        self._start_proxies()

    def _start_proxies(self) -> None:
        proxy_node = self._nodes[self.plan.toxiproxy.name]

        def running() -> bool:
            if proxy_node.state() is NodeState.STOPPED:
                raise ClusterError(proxy_node.obituary())
            return self.toxiproxy.running()

        wait_until(running, timeout_s=PROXY_S, what="toxiproxy's API to answer")
        proxies = [p for cluster in self.plan.clusters.values() for p in (*cluster.proxies, *cluster.mirror_proxies)]
        for proxy in proxies:
            self.toxiproxy.create(proxy.name, listen=f"0.0.0.0:{proxy.listen_port}", upstream=proxy.upstream)
        result = proxy_node.net(counting_rules(proxies))
        if result.exit_code != 0:
            raise ClusterError(f"the link's bytes cannot be counted: {result.output.strip()[-300:]}")

    def _start(self, node: NodePlan) -> None:
        containers.start_container(
            self.clients,
            node,
            run_id=self.run_id,
            network=containers.network_name(self.run_id),
            labels=self._labels,
        )

    def _node(self, node: NodePlan) -> ContainerNode:
        return ContainerNode(
            clients=self.clients,
            container=containers.container_name(self.plan.run_id, node.name),
            run_labels=self._labels,
            tools_image=self.plan.spec.images.tools,
            name=node.name,
            cluster=node.cluster,
            role=node.role,
            node_id=node.node_id,
            address=node.address,
        )


def _in_parallel(action: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do it for every item at once, wait for all, raise the first error (in the items' order)."""
    if not items:
        return []
    with ThreadPoolExecutor(max_workers=min(16, len(items)), thread_name_prefix="topology") as pool:
        futures = [pool.submit(action, item) for item in items]
    return [future.result() for future in futures]


def start_topology(spec: TopologySpec, *, ready_s: float = READY_S, logs_dir: Path | None = None) -> RunningTopology:
    """Start everything in the spec and wait until every cluster is ready and reports its ID.

    On any error, and on an interrupt, what was started is stopped again, and its logs are in logs_dir.
    Raises ImageError, EngineError, UsageError (a run of this id exists), ClusterError (a node ended by itself: its
    last log lines), WaitTimeoutError.
    """
    clients = DockerClients()
    owner = label.this_process()
    with contextlib.ExitStack() as undo:
        undo.callback(clients.close)
        containers.check_images(
            clients,
            {spec.images.kafka, spec.images.toxiproxy, spec.images.tools, *(c.image for c in spec.clusters if c.image)},
        )
        there = labelled_objects(clients, run=spec.run_id)
        if there:
            raise UsageError(
                f"run {spec.run_id} exists already ({there[0]} and {len(there) - 1} more): take another run id, "
                f"or remove it with `shatter down --name {spec.run_id}`"
            )
        undo.callback(clean, clients, run=spec.run_id, force=True)
        ids = {cluster.name: kraft_config.new_cluster_id(os.urandom) for cluster in spec.clusters}
        labels = label.run_labels(spec.run_id, owner, keep=spec.keep)
        labels[label.SPEC] = json.dumps({"spec": to_json(spec), "cluster_ids": ids})
        subnet = containers.create_network(clients, spec.run_id, named=spec.subnet, labels=labels, rng=random.Random())
        topology = RunningTopology(plan(spec, subnet=subnet, cluster_ids=ids), clients, owner=owner)
        topology.logs_dir = logs_dir
        undo.callback(topology.stop)
        topology.start_all()
        topology.await_ready(timeout_s=ready_s)
        undo.pop_all()
    return topology


def attach(run_id: str) -> RunningTopology:
    """Find a topology that another process left running (`keep`). Raises UsageError when there is none."""
    clients = DockerClients()
    with contextlib.ExitStack() as undo:
        undo.callback(clients.close)
        networks = clients.api.networks(filters={"label": [f"{label.RUN}={run_id}"]})
        if not networks or label.SPEC not in (networks[0]["Labels"] or {}):
            raise UsageError(f"no run {run_id} is up: `shatter up` starts a pair, `docker ps` shows what runs")
        document = json.loads(networks[0]["Labels"][label.SPEC])
        subnet = IPv4Network(networks[0]["IPAM"]["Config"][0]["Subnet"])
        spec = from_json(document["spec"])
        planned = plan(spec, subnet=subnet, cluster_ids=document["cluster_ids"])
        topology = RunningTopology(planned, clients, owner=label.this_process())
        undo.pop_all()
    return topology
