"""Specifications, and the plan made from them."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clusters.plan.topology import ClusterSpec, ImageNames, TopologyPlan, TopologySpec, from_json, plan, to_json
from harness.core.errors import UsageError
from harness.topology.clusters import NodeRole

pytestmark = pytest.mark.unit

IMAGES = ImageNames(kafka="k:1", toxiproxy="t:1", tools="x:1")
SUBNET = IPv4Network("172.30.7.0/24")


def _plan(*clusters: ClusterSpec) -> TopologyPlan:
    spec = TopologySpec(run_id="r1", images=IMAGES, clusters=clusters)
    return plan(spec, subnet=SUBNET, cluster_ids={c.name: f"id-of-{c.name}" for c in clusters})


def test_pair_of_three() -> None:
    planned = _plan(ClusterSpec(name="A"), ClusterSpec(name="B"))
    assert [node.name for node in planned.nodes] == [
        "toxiproxy", "A-broker-1", "A-broker-2", "A-broker-3", "B-broker-1", "B-broker-2", "B-broker-3",
    ]  # fmt: skip
    a, b = planned.clusters["A"], planned.clusters["B"]
    assert a.brokers == a.controllers == b.brokers == (1, 2, 3)
    assert a.bootstrap == "172.30.7.17:9092,172.30.7.18:9092,172.30.7.19:9092"
    assert a.link_bootstrap == "172.30.7.2:20101,172.30.7.2:20102,172.30.7.2:20103"
    assert b.link_bootstrap == "172.30.7.2:20201,172.30.7.2:20202,172.30.7.2:20203"
    assert next((p.name, p.listen_port, p.upstream) for p in b.proxies) == ("B-1", 20201, "172.30.7.33:9094")
    node = b.node(2)
    assert node.environment["CLUSTER_ID"] == "id-of-B"
    assert node.environment["KAFKA_HEAP_OPTS"] == "-Xms64m -Xmx256m"
    assert node.image == "k:1"
    assert "LINK://172.30.7.2:20202" in node.files["/etc/shatterproof/server.properties"]
    assert node.volumes == {"B-broker-2-data": "/var/lib/shatterproof"}
    assert planned.mirror_address(1) == "172.30.7.200"
    assert planned.gateway == "172.30.7.1"
    with pytest.raises(UsageError, match="room for 1 to 50"):
        planned.mirror_address(51)


def test_separate_controllers_have_ids_after_the_brokers() -> None:
    cluster = _plan(ClusterSpec(name="A", brokers=2, separate_controllers=3)).clusters["A"]
    assert cluster.brokers == (1, 2)
    assert cluster.controllers == (3, 4, 5)
    assert [n.name for n in cluster.nodes] == [
        "A-broker-1", "A-broker-2", "A-controller-3", "A-controller-4", "A-controller-5",
    ]  # fmt: skip
    assert cluster.node(4).role is NodeRole.CONTROLLER
    assert [p.broker for p in cluster.proxies] == [1, 2]
    config = cluster.node(1).files["/etc/shatterproof/server.properties"]
    assert "controller.quorum.voters=3@172.30.7.19:9095,4@172.30.7.20:9095,5@172.30.7.21:9095\n" in config


def test_many_combined_brokers_have_five_controllers() -> None:
    cluster = _plan(ClusterSpec(name="C", brokers=9)).clusters["C"]
    assert cluster.controllers == (1, 2, 3, 4, 5)
    assert "process.roles=broker\n" in cluster.node(6).files["/etc/shatterproof/server.properties"]
    assert cluster.node(6).role is NodeRole.BROKER


def test_own_image_heap_and_configuration_of_one_cluster() -> None:
    planned = _plan(
        ClusterSpec(name="A", image="apache/kafka:4.4.0", heap="1g", config={"x": "y"}), ClusterSpec(name="B")
    )
    node = planned.clusters["A"].node(1)
    assert node.image == "apache/kafka:4.4.0"
    assert node.environment["KAFKA_HEAP_OPTS"] == "-Xms64m -Xmx1g"
    assert "\nx=y\n" in node.files["/etc/shatterproof/server.properties"]
    assert "\nx=y\n" not in planned.clusters["B"].node(1).files["/etc/shatterproof/server.properties"]


clusters = st.lists(
    st.builds(
        ClusterSpec,
        name=st.sampled_from("ABCDEFGHIJK"),
        brokers=st.integers(1, 9),
        separate_controllers=st.integers(0, 5),
    ),
    min_size=1,
    max_size=11,
    unique_by=lambda cluster: cluster.name,
)


@given(clusters)
def test_no_two_nodes_share_anything(specs: list[ClusterSpec]) -> None:
    planned = _plan(*specs)
    nodes = planned.nodes
    mirrors = {planned.mirror_address(number) for number in range(1, 51)}
    addresses = [node.address for node in nodes]
    assert len(set(addresses)) == len(nodes)
    assert len({node.name for node in nodes}) == len(nodes)
    assert all(IPv4Address(a) in SUBNET for a in (*addresses, *mirrors))
    assert not mirrors & {*addresses, planned.gateway}
    assert planned.gateway not in addresses
    assert "172.30.7.255" not in {*addresses, *mirrors}
    ports = [proxy.listen_port for cluster in planned.clusters.values() for proxy in cluster.proxies]
    assert len(set(ports)) == len(ports)
    volumes = [volume for node in nodes for volume in node.volumes]
    assert len(set(volumes)) == len(volumes)
    for cluster in planned.clusters.values():
        ids = [node.node_id for node in cluster.nodes]
        assert ids == list(range(1, len(ids) + 1))


@given(clusters, st.booleans())
def test_spec_survives_json(specs: list[ClusterSpec], keep: bool) -> None:
    spec = TopologySpec(run_id="r", images=IMAGES, clusters=tuple(specs), subnet="10.1.2.0/24", keep=keep)
    assert from_json(json.loads(json.dumps(to_json(spec)))) == spec


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "AB"}, "cluster name 'AB': it must be one letter from A to K"),
        ({"name": "Z"}, "one letter from A to K"),
        ({"name": "A", "brokers": 0}, "cluster A: 0 brokers; it must be 1 to 9"),
        ({"name": "A", "brokers": 10}, "it must be 1 to 9"),
        ({"name": "A", "separate_controllers": 6}, "cluster A: 6 separate controllers; it must be 0 (combined) to 5"),
        ({"name": "A", "heap": "lots"}, "cluster A: heap 'lots' is not a JVM size such as 256m"),
        ({"name": "B", "config": {"node.id": "9"}}, "cluster B: node.id is set by the harness"),
    ],
)
def test_bad_clusters_say_so(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        ClusterSpec(**values)


@pytest.mark.parametrize("run_id", ["", "-x", "a b", "a/b", "x" * 49])
def test_bad_run_ids_say_so(run_id: str) -> None:
    with pytest.raises(UsageError, match="run id"):
        TopologySpec(run_id=run_id, images=IMAGES)


def test_clusters_are_named_once() -> None:
    with pytest.raises(UsageError, match="each name once"):
        TopologySpec(run_id="r", images=IMAGES, clusters=(ClusterSpec(name="A"), ClusterSpec(name="A")))
    with pytest.raises(UsageError, match="at least one"):
        TopologySpec(run_id="r", images=IMAGES, clusters=())
