"""The links through toxiproxy really cut, slow down and heal, on real brokers."""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.clusters.kafka import node_requests
from harness.clusters.links.links import Direction, Mode, ToxiproxyLink
from harness.clusters.pair import RunningTopology
from harness.clusters.plan import kraft_config
from harness.core.errors import ClusterError
from harness.topology.clusters import NodeState


class Connection:
    """A connection that stays open, as a mirror's does: ApiVersions (v0) with a client id of any length."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=5)

    def ask(self, *, timeout_s: float, client_id: bytes = b"t") -> str:
        """`answer`, `silence`, or `closed`."""
        payload = struct.pack(">hhih", 18, 0, 7, len(client_id)) + client_id
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(struct.pack(">i", len(payload)) + payload)
            head = self._socket.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return "closed"
            body = self._socket.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        except TimeoutError:
            return "silence"
        except OSError:
            return "closed"
        assert struct.unpack_from(">i", body)[0] == 7
        return "answer"

    def close(self) -> None:
        self._socket.close()


def _link(pair: RunningTopology, cluster: str = "A") -> ToxiproxyLink:
    return pair.links[cluster]


CUTS: list[tuple[Mode, Direction, str]] = [
    ("black_hole", "both", "silence"),
    ("black_hole", "to_cluster", "silence"),
    ("black_hole", "from_cluster", "silence"),
    ("reset", "both", "closed"),
    ("reset", "to_cluster", "closed"),
    ("reset", "from_cluster", "closed"),
    ("down", "both", "closed"),
]


@pytest.mark.parametrize(("mode", "direction", "outcome"), CUTS)
def test_cut_bites_open_and_new_connections_and_heals(
    pair: RunningTopology, mode: Mode, direction: Direction, outcome: str
) -> None:
    link = _link(pair)
    connection = Connection(link.address(1))
    try:
        assert connection.ask(timeout_s=5) == "answer"
        link.cut(mode, direction=direction, brokers=[1])
        assert not link.healthy()
        assert connection.ask(timeout_s=1) == outcome
        assert not link.passes(1)
        assert link.passes(2), "a broker that was not named keeps its way"
        assert _link(pair, "B").passes(1), "the other cluster's link is another one"
        link.heal()
        assert link.healthy()
        assert link.passes(1)
        assert connection.ask(timeout_s=5) == "closed", "what was open under the fault is dropped at its healing"
    finally:
        connection.close()


def test_a_cut_has_a_direction(pair: RunningTopology) -> None:
    link = _link(pair)

    def sent_on(direction: Direction) -> tuple[int, int]:
        """Bytes that passed towards and from the cluster during a request of 20 kB."""
        link.cut("black_hole", direction=direction, brokers=[1])
        before = link.bytes()[1]
        connection = Connection(link.address(1))
        try:
            assert connection.ask(timeout_s=1, client_id=b"c" * 20_000) == "silence"
        finally:
            connection.close()
        after = link.bytes()[1]
        link.heal()
        return after[0] - before[0], after[1] - before[1]

    towards, _ = sent_on("to_cluster")
    assert towards < 2_000, "the request must not have reached the broker"
    towards, back = sent_on("from_cluster")
    assert towards > 20_000, "the request must have reached the broker"
    assert back < 2_000, "the answer must not have come back"


def test_bytes_are_counted_while_a_connection_is_open(pair: RunningTopology) -> None:
    link = _link(pair)
    before = link.bytes()
    connection = Connection(link.address(2))
    try:
        assert connection.ask(timeout_s=5, client_id=b"c" * 30_000) == "answer"
        after = link.bytes()
    finally:
        connection.close()
    assert 30_000 <= after[2][0] - before[2][0] < 40_000
    assert after[2][1] > before[2][1]
    assert after[1] == before[1]
    assert set(after) == {1, 2, 3}


def test_cutting_all_brokers_is_the_default(pair: RunningTopology) -> None:
    link = _link(pair, "B")
    link.cut("down")
    assert [link.passes(broker) for broker in link.brokers] == [False, False, False]
    link.heal(brokers=[2])
    assert [link.passes(broker) for broker in link.brokers] == [False, True, False]
    link.heal()
    assert [link.passes(broker) for broker in link.brokers] == [True, True, True]


def test_latency_and_bandwidth(pair: RunningTopology) -> None:
    link = _link(pair)

    def seconds(size: int) -> float:
        connection = Connection(link.address(3))
        try:
            started = time.monotonic()
            assert connection.ask(timeout_s=20, client_id=b"c" * size) == "answer"
            return time.monotonic() - started
        finally:
            connection.close()

    assert seconds(10) < 0.3
    link.degrade(latency_ms=300, brokers=[3])
    assert 0.6 <= seconds(10) < 1.5, "300 ms each way"
    link.heal()
    assert seconds(10) < 0.3
    link.degrade(rate_kb_s=10, brokers=[3])
    assert seconds(20_000) >= 1.5, "20 kB at 10 kB/s"
    link.heal()
    assert seconds(20_000) < 0.5


def test_faults_on_one_proxy_add_up_and_heal_twice_is_no_error(pair: RunningTopology) -> None:
    link = _link(pair)
    link.cut("black_hole", direction="to_cluster", brokers=[1])
    link.cut("black_hole", direction="to_cluster", brokers=[1])
    link.degrade(latency_ms=50, brokers=[1])
    link.cut("down", brokers=[1])
    link.heal()
    link.heal()
    assert link.passes(1)
    assert link.healthy()


def test_heal_does_not_fail_over_a_broker_that_is_paused(pair: RunningTopology) -> None:
    link = _link(pair)
    node = pair.clusters["A"].brokers[2]
    link.cut("reset", brokers=[2])
    node.pause()
    try:
        link.heal()
        assert link.healthy()
        assert not link.passes(2)
    finally:
        node.unpause()
    assert node.state() is NodeState.RUNNING
    assert link.passes(2, timeout_s=5)


def test_impossible_cuts_say_so(pair: RunningTopology) -> None:
    link = _link(pair)
    with pytest.raises(ClusterError, match="link A has no broker 9; it has 1, 2, 3"):
        link.cut("down", brokers=[9])
    with pytest.raises(ClusterError, match="`down` cuts both directions"):
        link.cut("down", direction="to_cluster")
    with pytest.raises(ClusterError, match="at least 0 ms"):
        link.degrade(latency_ms=-1)
    assert link.healthy()


def test_metadata_on_the_link_names_toxiproxy_alone(pair: RunningTopology) -> None:
    proxy = pair.plan.toxiproxy.address
    for name, cluster in pair.clusters.items():
        host, port = pair.links[name].address(1)
        through = node_requests.metadata(host, port, timeout_s=5)
        assert {(b.host, int(b.port)) for b in through.brokers} == {
            pair.links[name].address(broker) for broker in cluster.brokers
        }
        assert {b.host for b in through.brokers} == {proxy}
        node = cluster.brokers[1]
        for listener_port in (kraft_config.CLIENTS_PORT, kraft_config.REPL_PORT):
            direct = node_requests.metadata(node.address, listener_port, timeout_s=5)
            assert {(b.host, int(b.port)) for b in direct.brokers} == {
                (broker.address, listener_port) for broker in cluster.brokers.values()
            }


def test_two_links_at_once_from_many_threads(pair: RunningTopology) -> None:
    def flap(task: tuple[str, int]) -> bool:
        name, broker = task
        link = pair.links[name]
        link.cut("down", brokers=[broker])
        cut = not link.passes(broker)
        link.heal(brokers=[broker])
        return cut and link.passes(broker)

    tasks = [(name, broker) for name in ("A", "B") for broker in (1, 2, 3)]
    with ThreadPoolExecutor(max_workers=6) as pool:
        assert list(pool.map(flap, tasks)) == [True] * 6
    assert all(link.healthy() for link in pair.links.values())
