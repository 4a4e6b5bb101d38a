"""The plan made from a spec: nodes, ids, addresses, ports, configurations. Pure.

A plan is all that is needed to start the containers, here or by a compose file rendered from it. Addresses within
the run's /24: .1 gateway, .2 toxiproxy, 16·k + node id for the nodes of the k-th cluster (k from 1), from .200 on
the mirrors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from harness.clusters.plan import kraft_config as kafka
from harness.clusters.plan.entry import ENTRY_POINT
from harness.clusters.plan.specs import (
    MAX_CONTROLLERS,
    ClusterSpec,
    ImageNames,
    Images,
    TopologySpec,
    from_json,
    to_json,
)
from harness.core.errors import UsageError
from harness.topology.clusters import NodeRole

__all__ = [
    "ClusterPlan",
    "ClusterSpec",
    "ImageNames",
    "Images",
    "NodePlan",
    "ProxyPlan",
    "TopologyPlan",
    "TopologySpec",
    "from_json",
    "plan",
    "to_json",
]

TOXIPROXY = "toxiproxy"
TOXIPROXY_API_PORT = 8474
TOXIPROXY_HOST = 2
MIRROR_HOST = 200
MIRROR_BROKER = 100  # id of the first mirror process that registers with a cluster as a broker


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One container: everything that its creation needs. files: path inside → text. volumes: name → path inside."""

    name: str
    cluster: str
    role: NodeRole
    node_id: int
    address: str
    image: str
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProxyPlan:
    """One proxy of toxiproxy, between the mirror and one broker (or a mirror that leads partitions there)."""

    name: str
    broker: int
    listen_port: int
    upstream: str  # address:port of the broker's LINK listener


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """One cluster, planned. In combined mode controller nodes are broker nodes.

    proxies: of its own brokers. mirror_proxies: of the mirror processes that register with it, in their order.
    """

    name: str
    cluster_id: str
    nodes: tuple[NodePlan, ...]
    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    proxies: tuple[ProxyPlan, ...]
    mirror_proxies: tuple[ProxyPlan, ...]
    bootstrap: str
    link_bootstrap: str

    def node(self, node_id: int) -> NodePlan:
        """The plan of one node. Raises KeyError."""
        return {node.node_id: node for node in self.nodes}[node_id]


@dataclass(frozen=True, kw_only=True)
class TopologyPlan:
    """All planned containers, in one network."""

    spec: TopologySpec
    subnet: IPv4Network
    toxiproxy: NodePlan
    clusters: Mapping[str, ClusterPlan]

    @property
    def run_id(self) -> str:
        """The run."""
        return self.spec.run_id

    @property
    def gateway(self) -> str:
        """The host's own address in the network."""
        return address(self.subnet, 1)

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        """Every container: toxiproxy, then cluster by cluster."""
        return (self.toxiproxy, *(node for cluster in self.clusters.values() for node in cluster.nodes))

    def mirror_address(self, number: int) -> str:
        """Address kept for the mirror process with this number (from 1)."""
        return mirror_address(self.subnet, number)


def address(subnet: IPv4Network, host: int) -> str:
    """The host-th address of a subnet."""
    return str(subnet.network_address + host)


def mirror_address(subnet: IPv4Network, number: int) -> str:
    """Address kept for the mirror process with this number (from 1). Raises UsageError."""
    if not 1 <= number <= 50:
        raise UsageError(f"mirror process {number}: there is room for 1 to 50")
    return address(subnet, MIRROR_HOST + number - 1)


def block(cluster: str) -> int:
    """Number of a cluster's address and port block, from 1."""
    return ord(cluster) - ord("A") + 1


def proxy_port(cluster: str, broker: int) -> int:
    """Port on toxiproxy that leads to a broker; ids from MIRROR_BROKER on have a range of their own."""
    if broker >= MIRROR_BROKER:
        return 22000 + 100 * block(cluster) + broker - MIRROR_BROKER
    return 20000 + 100 * block(cluster) + broker


def plan(spec: TopologySpec, *, subnet: IPv4Network, cluster_ids: Mapping[str, str]) -> TopologyPlan:
    """The plan of a topology in a subnet. cluster_ids: cluster name → ID to format the storage with."""
    proxy_address = address(subnet, TOXIPROXY_HOST)
    return TopologyPlan(
        spec=spec,
        subnet=subnet,
        toxiproxy=NodePlan(
            name=TOXIPROXY,
            cluster="link",
            role=NodeRole.PROXY,
            node_id=1,
            address=proxy_address,
            image=spec.images.toxiproxy,
            command=("-host=0.0.0.0", f"-port={TOXIPROXY_API_PORT}"),
        ),
        clusters={
            cluster.name: _plan_cluster(cluster, spec, subnet, cluster_ids[cluster.name], proxy_address)
            for cluster in spec.clusters
        },
    )


def _plan_cluster(
    spec: ClusterSpec, topology: TopologySpec, subnet: IPv4Network, cluster_id: str, proxy_address: str
) -> ClusterPlan:
    base = 16 * block(spec.name)
    brokers = tuple(range(1, spec.brokers + 1))
    if spec.separate_controllers:
        controllers = tuple(range(spec.brokers + 1, spec.brokers + 1 + spec.separate_controllers))
    else:
        controllers = brokers[:MAX_CONTROLLERS]
    ids = tuple(sorted({*brokers, *controllers}))
    addresses = {node_id: address(subnet, base + node_id) for node_id in ids}
    voters = {node_id: addresses[node_id] for node_id in controllers}
    kafka_nodes = [
        kafka.KafkaNode(
            node_id=node_id,
            address=addresses[node_id],
            is_broker=node_id in brokers,
            is_controller=node_id in controllers,
            link=(proxy_address, proxy_port(spec.name, node_id)) if node_id in brokers else None,
        )
        for node_id in ids
    ]
    nodes = [_plan_node(node, spec, topology, cluster_id, voters) for node in kafka_nodes]
    return ClusterPlan(
        name=spec.name,
        cluster_id=cluster_id,
        nodes=tuple(nodes),
        brokers=brokers,
        controllers=controllers,
        proxies=tuple(_proxy(spec.name, broker, addresses[broker]) for broker in brokers),
        mirror_proxies=tuple(
            _proxy(spec.name, MIRROR_BROKER + index, mirror_address(subnet, number))
            for index, number in enumerate(spec.mirror_hosts)
        ),
        bootstrap=",".join(f"{addresses[broker]}:{kafka.CLIENTS_PORT}" for broker in brokers),
        link_bootstrap=",".join(f"{proxy_address}:{proxy_port(spec.name, broker)}" for broker in brokers),
    )


def _plan_node(
    node: kafka.KafkaNode, spec: ClusterSpec, topology: TopologySpec, cluster_id: str, voters: Mapping[int, str]
) -> NodePlan:
    config = kafka.properties(node, voters=voters, brokers=spec.brokers, extra=spec.config)
    name = f"{spec.name}-{'broker' if node.is_broker else 'controller'}-{node.node_id}"
    return NodePlan(
        name=name,
        cluster=spec.name,
        role=NodeRole.BROKER if node.is_broker else NodeRole.CONTROLLER,
        node_id=node.node_id,
        address=node.address,
        image=spec.image or topology.images.kafka,
        entrypoint=("sh", ENTRY_POINT),
        command=("broker", kafka.CONFIG_PATH),
        environment={"CLUSTER_ID": cluster_id, "KAFKA_HEAP_OPTS": f"-Xms64m -Xmx{spec.heap}", **_format(spec)},
        files={kafka.CONFIG_PATH: kafka.render(config)},
        volumes={f"{name}-data": kafka.VOLUME_PATH},
        user="0",  # the volume belongs to root, whatever the image's own user is
    )


def _format(spec: ClusterSpec) -> dict[str, str]:
    """The environment that makes run-kafka.sh format the storage with the chosen features."""
    chosen = " ".join(f"--feature {name}={level}" for name, level in spec.format_features.items())
    return {"KAFKA_FORMAT_ARGS": chosen} if chosen else {}


def _proxy(cluster: str, broker: int, host: str) -> ProxyPlan:
    return ProxyPlan(
        name=f"{cluster}-{broker}",
        broker=broker,
        listen_port=proxy_port(cluster, broker),
        upstream=f"{host}:{kafka.LINK_PORT}",
    )
