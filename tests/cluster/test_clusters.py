"""Two clusters of three brokers, as nodes and as clusters: identities, listeners, pause, kill, start, files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.clusters.kafka import node_requests
from harness.clusters.pair import RunningTopology
from harness.clusters.plan import kraft_config
from harness.core.errors import ClusterError
from harness.core.wait import wait_until
from harness.topology.clusters import NodeRole, NodeState
from nemeses.support.direct import elect_unclean

Produce = Callable[..., None]
Read = Callable[..., list[bytes]]


def test_ids_differ_and_every_broker_reports_its_own(pair: RunningTopology) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    assert a.cluster_id != b.cluster_id
    for cluster in (a, b):
        assert list(cluster.brokers) == [1, 2, 3]
        for node in cluster.brokers.values():
            said = node_requests.metadata(node.address, kraft_config.CLIENTS_PORT, timeout_s=5)
            assert said.cluster_id == cluster.cluster_id
            assert {int(broker.node_id) for broker in said.brokers} == {1, 2, 3}
    with pytest.raises(
        ClusterError, match=rf"A-broker-2 says that its cluster ID is {b.cluster_id}.*nothing was written"
    ):
        a.check_id(2, b.cluster_id)


def test_every_kind_of_traffic_has_its_listener(pair: RunningTopology, topic: str) -> None:
    pair.clusters["A"].create_topic(topic, partitions=3, replication=3)
    node = pair.clusters["A"].brokers[2]
    listening = node.net("ss -Htln").output
    ports = {int(port) for port in re.findall(r":(\d+)\s+\S+:\*", listening)}
    assert {9092, 9093, 9094, 9095} <= ports
    peers = node.net("ss -Htn state established").output
    others = "|".join(re.escape(broker.address) for broker in pair.clusters["A"].brokers.values())
    assert re.search(rf"({others}):9093", peers), "brokers replicate over REPL"
    assert re.search(rf"({others}):9095", peers), "controllers talk over CONTROLLER"
    assert not re.search(rf"({others}):909[24]\s+({others}):", peers), "no broker uses clients' or the link's listener"


def test_topics_partitions_and_their_errors(pair: RunningTopology, topic: str) -> None:
    cluster = pair.clusters["B"]
    cluster.create_topic(topic, partitions=5, replication=2, config={"min.insync.replicas": "2"})
    found = cluster.partitions(topic)
    assert [p.partition for p in found] == [0, 1, 2, 3, 4]
    for p in found:
        assert len(p.replicas) == 2
        assert set(p.isr) == set(p.replicas)
        assert p.leader in p.replicas
    assert topic in cluster.topics()
    assert topic not in pair.clusters["A"].topics()
    with pytest.raises(ClusterError, match=f"{topic} cannot be created on cluster B: TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(topic, partitions=1, replication=1)
    with pytest.raises(ClusterError, match="INVALID_REPLICATION_FACTOR"):
        cluster.create_topic(f"{topic}-x", partitions=1, replication=4)
    with pytest.raises(ClusterError, match="cluster B has no topic nowhere"):
        cluster.partitions("nowhere")
    assert (elect_unclean(cluster, found[0]) or "").startswith("election_not_needed: ")
    assert (elect_unclean(cluster, replace(found[0], topic="nowhere")) or "").startswith("unknown_topic_or_partition")


def test_pause_is_seen_and_ends(pair: RunningTopology) -> None:
    node = pair.clusters["A"].brokers[1]
    node.pause()
    node.pause()
    assert node.state() is NodeState.PAUSED
    assert not node_requests.answers(node.address, kraft_config.CLIENTS_PORT, timeout_s=0.5)
    assert "inet " + node.address in node.net("ip -4 addr").output, (
        "its network namespace can be used while it is paused"
    )
    with pytest.raises(ClusterError, match=r"A-broker-1: `true` cannot be run: .*paused"):
        node.exec(["true"])
    node.unpause()
    node.unpause()
    assert node.state() is NodeState.RUNNING
    assert node_requests.answers(node.address, kraft_config.CLIENTS_PORT, timeout_s=5)


def test_sigstop_and_sigcont_are_seen_in_the_process_state(pair: RunningTopology) -> None:
    node = pair.node("B-broker-3")
    node.signal("SIGSTOP")
    assert node.process_state().startswith("T")
    assert node.state() is NodeState.RUNNING, "the engine knows nothing of it"
    assert not node_requests.answers(node.address, kraft_config.CLIENTS_PORT, timeout_s=0.5)
    node.signal("SIGCONT")
    assert not node.process_state().startswith("T")
    assert node_requests.answers(node.address, kraft_config.CLIENTS_PORT, timeout_s=5)
    node.signal("SIGQUIT")
    wait_until(lambda: "Full thread dump" in node.logs(), timeout_s=5, what="a thread dump in the log")


def test_killed_broker_comes_back_with_its_address_and_data(
    pair: RunningTopology, topic: str, tmp_path: Path, produce: Produce, read: Read
) -> None:
    cluster = pair.clusters["A"]
    cluster.create_topic(topic, partitions=1, replication=3)
    produce(cluster.bootstrap, topic, [b"before-%d" % i for i in range(20)])
    node = cluster.brokers[2]
    address = node.address
    assert (
        node.net("iptables -w 5 -A INPUT -p tcp --dport 1 -j DROP && iptables -w 5 -S INPUT").output.count("DROP") == 1
    )
    node.kill()
    node.kill()
    assert node.state() is NodeState.STOPPED
    with pytest.raises(ClusterError, match="A-broker-2 is stopped: it has no network namespace"):
        node.net("true")
    with pytest.raises(ClusterError, match="cannot pause A-broker-2"):
        node.pause()
    with pytest.raises(ClusterError, match="cannot be run"):
        node.exec(["true"])

    stored = node.fetch(f"{cluster.data_dir}/{topic}-0", tmp_path, only=("*.log",))
    assert [path.name for path in stored.iterdir()] == ["00000000000000000000.log"]
    assert b"before-19" in (stored / "00000000000000000000.log").read_bytes()

    wait_until(lambda: 2 not in cluster.partitions(topic)[0].isr, timeout_s=20, what="broker 2 to leave the ISR")
    produce(cluster.bootstrap, topic, [b"after"])
    started = time.monotonic()
    node.start()
    node.start()
    cluster.await_ready(timeout_s=60)
    cluster.await_full_isr(timeout_s=60)
    print(f"back in the ISR {time.monotonic() - started:.1f} s after its start")
    assert node.address == address
    assert f"inet {address}/" in node.net("ip -4 addr").output
    assert "DROP" not in node.net("iptables -w 5 -S INPUT").output, "rules go with the network namespace"
    assert read(cluster.bootstrap, topic, 21)[-1] == b"after"


def test_paused_node_can_be_killed(pair: RunningTopology) -> None:
    node = pair.clusters["B"].brokers[1]
    node.pause()
    node.kill()
    assert node.state() is NodeState.STOPPED
    node.start()
    assert node.state() is NodeState.RUNNING


def test_fetch_from_a_broker_at_work(pair: RunningTopology, topic: str, tmp_path: Path, produce: Produce) -> None:
    cluster = pair.clusters["B"]
    cluster.create_topic(topic, partitions=2, replication=3)
    produce(cluster.bootstrap, topic, [b"first" * 100] * 50, partition=1)
    empty = f"{cluster.data_dir}/{topic}-0/00000000000000000000.log"  # a follower creates its folder a little later
    wait_until(lambda: cluster.brokers[1].exec(["test", "-f", empty]).exit_code == 0, timeout_s=20, what=empty)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(produce, cluster.bootstrap, topic, [b"more" * 1000] * 2000, partition=1)
        folder = cluster.brokers[1].fetch(cluster.data_dir, tmp_path, only=("*.log", "meta.properties"))
        writing.result()
    assert f"cluster.id={cluster.cluster_id}" in (folder / "meta.properties").read_text()
    assert (folder / f"{topic}-0" / "00000000000000000000.log").stat().st_size == 0
    assert b"first" * 100 in (folder / f"{topic}-1" / "00000000000000000000.log").read_bytes()
    assert not list(folder.rglob("*.index"))
    config = cluster.brokers[1].fetch(kraft_config.CONFIG_PATH, tmp_path)
    assert "replica.lag.time.max.ms=4000" in config.read_text()
    with pytest.raises(ClusterError, match="B-broker-1: there is no"):
        cluster.brokers[1].fetch(f"{cluster.data_dir}/nothing", tmp_path)
    with pytest.raises(ClusterError, match="B-broker-1: there is no /nothing"):
        cluster.brokers[1].fetch("/nothing", tmp_path)


def test_commands_are_bounded(pair: RunningTopology) -> None:
    node = pair.clusters["A"].brokers[3]
    result = node.exec(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert result.exit_code == 7
    assert sorted(result.output.split()) == ["err", "out"]
    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"A-broker-3: `sleep 60` did not end within 1 s"):
        node.exec(["sleep", "60"], timeout_s=1)
    with pytest.raises(ClusterError, match=r"A-broker-3: a script did not end within 1 s"):
        node.net("sleep 60", timeout_s=1)
    assert time.monotonic() - started < 8
    assert "no-such-program" in node.exec(["no-such-program"]).output
    refused = node.exec(["iptables", "-L"])
    assert refused.exit_code != 0, "a broker by itself cannot change its network"
    try:
        assert node.exec(["iptables", "-w", "5", "-L"], privileged=True).exit_code == 0
    except ClusterError as error:  # an engine inside a container or a small machine may not give what it lacks
        assert "unable to apply caps" in str(error)  # noqa: PT017


def test_active_controller_is_the_quorums_leader(pair: RunningTopology) -> None:
    cluster = pair.clusters["B"]
    leader = cluster.active_controller()
    status = cluster.brokers[1].exec(
        [
            "sh", "/opt/shatterproof/run-kafka.sh", "tool", "org.apache.kafka.tools.MetadataQuorumCommand",
            "--bootstrap-controller", f"{cluster.brokers[1].address}:{kraft_config.CONTROLLER_PORT}",
            "describe", "--status",
        ]
    ).output  # fmt: skip
    assert re.search(r"LeaderId:\s+(\d+)", status), status
    assert int(re.search(r"LeaderId:\s+(\d+)", status)[1]) == leader  # type: ignore[index]
    started = time.monotonic()
    assert cluster.active_controller() == leader
    assert time.monotonic() - started < 0.5
    cluster.controllers[leader].kill()
    assert (
        wait_until(
            lambda: cluster.active_controller(), timeout_s=20, what="another controller", swallow=(ClusterError,)
        )
        != leader
    )


def test_snapshots_stay_quick_with_a_paused_broker(pair: RunningTopology, topic: str) -> None:
    cluster = pair.clusters["A"]
    cluster.create_topic(topic, partitions=3, replication=3)
    follower = next(node_id for node_id in cluster.brokers if node_id != cluster.active_controller())
    cluster.brokers[follower].pause()
    started = time.monotonic()
    assert len(cluster.partitions(topic)) == 3
    assert cluster.active_controller() != follower
    assert time.monotonic() - started < 6
    cluster.brokers[follower].unpause()


def test_nodes_say_what_they_are(pair: RunningTopology) -> None:
    nodes = {node.name: node for node in pair.nodes()}
    assert len(nodes) == 7
    assert nodes["A-broker-1"].role is NodeRole.BROKER
    assert nodes["toxiproxy"].role is NodeRole.PROXY
    assert nodes["toxiproxy"].cluster == "link"
    assert len({node.address for node in nodes.values()}) == 7
    assert "Kafka Server started" in nodes["B-broker-2"].logs()
    assert len(nodes["B-broker-2"].logs(tail=3).splitlines()) == 3
    with pytest.raises(ClusterError, match="has no node A-broker-9; it has toxiproxy, A-broker-1"):
        pair.node("A-broker-9")
