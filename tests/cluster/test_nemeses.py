"""Every nemesis on real clusters: it bites, as separate clients see, it is healed, and the clusters are healthy."""

from __future__ import annotations

import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import RunningTopology
from harness.core.clock import MonotonicClock
from harness.core.errors import ClusterError
from harness.core.wait import wait_until
from harness.history.recorder import RunRecorder
from harness.history.runfile import RunMeta
from harness.topology.clusters import Cluster, Node, NodeState
from nemeses.base import FaultSpec
from nemeses.engine.conductor import Conductor
from nemeses.engine.outcomes import FaultOutcome, FaultState

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves a test's neighbours out of sight
from mirroring import mm2, write

HOLD_S = 600.0  # longer than any test: these faults are ended by heal_all


class Stage:
    """A pair of clusters, a recorder, and faults injected one by one."""

    def __init__(self, pair: RunningTopology, recorder: RunRecorder, run_dir: Path) -> None:
        self.pair, self.recorder, self._run_dir = pair, recorder, run_dir

    @contextmanager
    def fault(
        self, nemesis: str, cluster: str, role: str, *, bites: bool = True, **params: object
    ) -> Iterator[FaultOutcome]:
        """One live fault; afterwards everything must be healed, healthy and recorded."""
        schedule = [spec(1, nemesis, cluster, role, at_s=0, duration_s=HOLD_S, **params)]
        conductor = Conductor(topology=self.pair, recorder=self.recorder, clock=self.recorder.clock, schedule=schedule)
        try:
            conductor.start()
            outcome = self.settled(conductor)
            assert outcome.state is FaultState.LIVE, outcome
            assert outcome.bit is bites, outcome.why
            print(f"\n{outcome.target}: {outcome.why}")
            yield outcome
        finally:
            healing = conductor.heal_all()
        assert healing.ok, healing
        assert conductor.outcomes()[0].state is FaultState.HEALED
        rows = self.rows()
        print(rows[-2]["result"])
        assert [(row["action"], row["ok"]) for row in rows] == [
            ("inject", True),
            ("bit", bites),
            ("heal", True),
            ("heal", True),
        ]
        assert rows[0]["target"] == outcome.target
        self.well()

    @staticmethod
    def settled(conductor: Conductor, *, timeout_s: float = 90) -> FaultOutcome:
        """The only fault's outcome, once it is injected or given up."""
        return wait_until(
            lambda: next(
                (o for o in conductor.outcomes() if o.state not in (FaultState.WAITING, FaultState.INJECTING)), None
            ),
            timeout_s=timeout_s,
            what="the fault to be injected",
            instead=lambda: str(conductor.outcomes()),
        )

    def rows(self) -> list[dict[str, object]]:
        """Table `faults` as stored on disk."""
        self.recorder.flush()
        table = ds.dataset(self._run_dir / "faults", format="parquet").to_table().to_pylist()
        return sorted(table, key=lambda row: row["time_ns"])

    def well(self) -> None:
        """Nodes run, every broker answers a fresh client, links pass metadata, and no replica is out of sync."""
        for node in self.pair.nodes():
            assert node.state() is NodeState.RUNNING, node.name
        for cluster in self.pair.clusters.values():
            for node in cluster.brokers.values():
                assert served_by(node), node.name
            metadata = AdminClient({"bootstrap.servers": cluster.link_bootstrap}).list_topics(timeout=10)
            behind = [
                f"{topic.topic}-{p.id}"
                for topic in metadata.topics.values()
                for p in topic.partitions.values()
                if set(p.isrs) != set(p.replicas)
            ]
            assert not behind


def spec(
    fault_id: int, nemesis: str, cluster: str, role: str, *, at_s: float, duration_s: float, **params: object
) -> FaultSpec:
    return FaultSpec(
        fault_id=fault_id,
        nemesis=nemesis,
        at_s=at_s,
        duration_s=duration_s,
        cluster=cluster,
        role=role,
        params=params,
    )


def served_by(node: Node, *, timeout_s: float = 3.0) -> bool:
    """Whether a client that knows only this broker gets metadata."""
    admin = AdminClient({"bootstrap.servers": f"{node.address}:9092", "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def through_link(cluster: Cluster, *, timeout_s: float = 1.5) -> bool:
    """Whether a fresh client gets metadata over the link."""
    try:
        admin = AdminClient({"bootstrap.servers": cluster.link_bootstrap, "log_level": 0})
        return bool(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def connects(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1):
            return True
    except OSError:
        return False


def values(cluster: Cluster, topic: str, partition: int = 0) -> dict[int, str]:
    """Everything in one partition, by offset, read by a fresh client."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        where = TopicPartition(topic, partition, 0)
        consumer.assign([where])
        end = consumer.get_watermark_offsets(where, timeout=10)[1]
        found: dict[int, str] = {}
        deadline = time.monotonic() + 20
        while consumer.position([where])[0].offset < end and end > 0:
            assert time.monotonic() < deadline, f"read {len(found)} of {end}"
            for message in consumer.consume(500, timeout=1):
                assert message.error() is None, message.error()
                found[message.offset()] = message.value().decode()
        return found
    finally:
        consumer.close()


class Writer:
    """Writes numbered values to one partition and remembers which were acknowledged, and at which offset."""

    def __init__(self, bootstrap: str, topic: str, **options: object) -> None:
        self.acknowledged: dict[str, int] = {}
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **options}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._producer.flush(15)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            value = f"v{number}"
            number += 1
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.value().decode()] = message.offset()  # type: ignore[attr-defined]


class Reader:
    """Reads one partition while it is written, and remembers the first value seen at each offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: dict[int, str] = {}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "watcher", "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(100, timeout=0.1):
                if message.error() is None:
                    self.seen.setdefault(message.offset(), message.value().decode())


@pytest.fixture
def stage(pair: RunningTopology, run_dir: Path) -> Iterator[Stage]:
    with RunRecorder(run_dir, clock=MonotonicClock(), meta=RunMeta(run_id="nemeses")) as recorder:
        yield Stage(pair, recorder, run_dir)


@pytest.fixture
def make_topic(pair: RunningTopology, topic: str) -> Iterator[Callable[[str], str]]:
    """Create the test's topic on a cluster; removed afterwards."""
    made: list[Cluster] = []

    def make(letter: str) -> str:
        cluster = pair.clusters[letter]
        cluster.create_topic(topic, partitions=1, replication=3, config={"min.insync.replicas": "2"})
        made.append(cluster)
        return topic

    yield make
    for cluster in made:
        cluster.admin().delete_topics([topic])[topic].result(timeout=30)


@pytest.mark.parametrize("mode", ["black_hole", "reset", "down"])
def test_link_partition_keeps_a_client_from_the_cluster(stage: Stage, mode: str) -> None:
    a, b = stage.pair.clusters["A"], stage.pair.clusters["B"]
    assert through_link(a)
    with stage.fault("link-partition", "link", "all", link="A", mode=mode, direction="both"):
        assert not through_link(a)
        assert through_link(b)
        assert all(served_by(node) for node in a.brokers.values())  # clients do not use the link
    assert through_link(a)


def test_link_partition_of_some_brokers_leaves_the_others(stage: Stage) -> None:
    link = stage.pair.links["B"]
    with stage.fault("link-partition", "link", "some", link="B", mode="black_hole", brokers=[2]):
        assert not link.passes(2)
        assert link.passes(1)
        assert link.passes(3)


@pytest.mark.parametrize(("direction", "arrives"), [("from_cluster", True), ("to_cluster", False)])
def test_link_partition_one_way(stage: Stage, make_topic: Callable[[str], str], direction: str, arrives: bool) -> None:
    """Requests over a link that is cut one way arrive, and the responses do not."""
    b = stage.pair.clusters["B"]
    topic = make_topic("B")
    errors: list[object] = []
    producer = Producer(
        {"bootstrap.servers": b.link_bootstrap, "message.timeout.ms": 1500, "log_level": 0, "acks": "all"}
    )
    producer.produce(topic, "before", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(10) == 0
    assert errors == [None]
    with stage.fault("link-partition", "link", "all", link="B", mode="black_hole", direction=direction):
        producer.produce(topic, "during", partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
        assert errors[1] is not None
        assert ("during" in values(b, topic).values()) is arrives


def test_link_degrade_slows_every_request(stage: Stage) -> None:
    link = stage.pair.links["A"]

    def request_s() -> float:
        began = time.monotonic()
        assert link.passes(1, timeout_s=10)
        return time.monotonic() - began

    before = request_s()
    with stage.fault("link-degrade", "link", "all", link="A", mode="latency", latency_ms=400, jitter_ms=0):
        assert request_s() > before + 0.35
    assert request_s() < 0.3


def test_link_degrade_reports_a_bandwidth_limit_without_traffic(stage: Stage) -> None:
    """Without traffic a bandwidth limit cannot be proven, so the fault does not claim that it bit."""
    with stage.fault("link-degrade", "link", "all", bites=False, link="A", mode="bandwidth", rate_kb_s=32):
        pass


@pytest.mark.parametrize("how", ["cgroup", "sigstop"])
def test_broker_pause_of_a_leader(stage: Stage, make_topic: Callable[[str], str], how: str) -> None:
    a = stage.pair.clusters["A"]
    topic = make_topic("A")
    leader = a.brokers[a.partitions(topic)[0].leader or 0]
    with stage.fault("broker-pause", "A", "leader", topic=topic, partition=0, how=how) as outcome:
        assert outcome.target == f"{leader.name} (leader of {topic}-0)"
        assert connects(leader.address, 9092)  # the kernel still accepts
        assert not served_by(leader)
    assert served_by(leader)


def test_broker_kill_of_a_follower(stage: Stage, make_topic: Callable[[str], str]) -> None:
    b = stage.pair.clusters["B"]
    topic = make_topic("B")
    with stage.fault("broker-kill", "B", "follower", topic=topic, partition=0, pick=1) as outcome:
        victim = next(node for node in b.brokers.values() if outcome.target.startswith(node.name))
        assert victim.node_id != b.partitions(topic)[0].leader
        assert victim.state() is NodeState.STOPPED
        assert not connects(victim.address, 9092)
        wait_until(
            lambda: victim.node_id not in b.partitions(topic)[0].isr, timeout_s=20, what="the victim to leave the ISR"
        )
    assert victim.node_id in b.partitions(topic)[0].isr


def test_broker_kill_of_the_active_controller(stage: Stage) -> None:
    a = stage.pair.clusters["A"]
    active = a.active_controller()
    with stage.fault("broker-kill", "A", "controller") as outcome:
        assert outcome.target.startswith(a.controllers[active].name + " ")
        wait_until(
            lambda: a.active_controller() != active,
            timeout_s=20,
            what="another active controller",
            swallow=(ClusterError,),
        )


def test_broker_partition_cuts_replication_and_not_clients(stage: Stage, make_topic: Callable[[str], str]) -> None:
    a = stage.pair.clusters["A"]
    topic = make_topic("A")
    leader = a.partitions(topic)[0].leader
    assert leader is not None
    node = a.brokers[leader]
    assert connects(node.address, a.repl_port)
    with Writer(a.bootstrap, topic), stage.fault("broker-partition", "A", "leader", topic=topic, direction="both"):
        assert not connects(node.address, a.repl_port)
        assert served_by(node)
        wait_until(lambda: a.partitions(topic)[0].isr == (leader,), timeout_s=20, what="the leader to be alone in sync")
    assert connects(node.address, a.repl_port)


def test_unclean_election_on_a_loses_acknowledged_records(stage: Stage, make_topic: Callable[[str], str]) -> None:
    a = stage.pair.clusters["A"]
    topic = make_topic("A")
    with (
        Writer(a.bootstrap, topic) as writer,
        stage.fault("unclean-election", "A", "leader", topic=topic, partition=0, alone=30) as outcome,
    ):
        before_heal = dict(writer.acknowledged)
    first, last = claimed_loss(outcome)
    assert last - first + 1 >= 30
    stored = set(values(a, topic).values())
    lost = {value: offset for value, offset in before_heal.items() if value not in stored}
    # what the nemesis reports as lost was acknowledged to this client and is gone; nothing below it is
    assert set(range(first, last + 1)) <= set(lost.values())
    assert min(lost.values()) == first
    settings = a.admin().describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    entry = next(iter(settings.values())).result(timeout=10)["min.insync.replicas"]
    assert entry.value == "2"  # as it was before


def claimed_loss(outcome: FaultOutcome) -> tuple[int, int]:
    """First and last offset that the nemesis reports as lost."""
    match = re.search(r"offsets (\d+) to (\d+) are lost", outcome.why)
    assert match, outcome.why
    return int(match[1]), int(match[2])


def test_unclean_election_with_eligible_leader_replicas_loses_nothing(
    stage: Stage, make_topic: Callable[[str], str]
) -> None:
    """With min.insync.replicas=2 an eligible replica is elected cleanly: the fault reports that it did not bite."""
    a = stage.pair.clusters["A"]
    topic = make_topic("A")
    with (
        Writer(a.bootstrap, topic) as writer,
        stage.fault("unclean-election", "A", "elr", bites=False, topic=topic, partition=0) as outcome,
    ):
        assert "elected clean" in outcome.why
    stored = set(values(a, topic).values())
    assert writer.acknowledged
    assert set(writer.acknowledged) <= stored


def test_a_second_victim_beyond_the_quorum_is_skipped_with_the_reason(stage: Stage) -> None:
    faults = [
        spec(1, "broker-pause", "A", "any", at_s=0, duration_s=5, pick=0),
        spec(2, "broker-kill", "A", "any", at_s=1.5, duration_s=5, pick=1),
        spec(3, "broker-pause", "B", "any", at_s=1.5, duration_s=2, pick=1),
        spec(4, "link-partition", "link", "all", at_s=1.5, duration_s=2, link="B", mode="down"),
    ]
    conductor = Conductor(topology=stage.pair, recorder=stage.recorder, clock=stage.recorder.clock, schedule=faults)
    conductor.start()
    assert conductor.wait(60)
    states = {outcome.spec.fault_id: outcome.state for outcome in conductor.outcomes()}
    assert states == {
        1: FaultState.HEALED,
        2: FaultState.SKIPPED,
        3: FaultState.HEALED,
        4: FaultState.HEALED,
    }, conductor.outcomes()
    assert conductor.bites() == 3
    assert conductor.heal_all().ok
    skip = next(row for row in stage.rows() if row["action"] == "skip")
    assert skip["fault_id"] == 2
    assert "the quorum of A tolerates the loss of 1 node" in str(skip["result"])
    stage.well()


@pytest.fixture(scope="module")
def mirrored(session_pair: RunningTopology, images: ImageSet) -> Iterator[str]:
    """MirrorMaker 2 mirrors this topic from A to B, for the tests below."""
    topic = f"m-{secrets.token_hex(4)}"
    session_pair.clusters["A"].create_topic(topic, partitions=1, replication=3)
    with mm2(session_pair, images, [topic], contract="mm2-at-least-once"):
        carried(session_pair, topic, "warm-up", timeout_s=60)
        yield topic


def carried(pair: RunningTopology, topic: str, value: str, *, timeout_s: float) -> None:
    """Write a value to A and wait until it can be read from B."""
    write(pair.clusters["A"].bootstrap, topic, [value])
    wait_until(
        lambda: topic in pair.clusters["B"].topics() and value in values(pair.clusters["B"], topic).values(),
        timeout_s=timeout_s,
        what=f"{value} to be mirrored to B",
        interval_s=1,
    )


def not_carried(pair: RunningTopology, topic: str, value: str) -> bool:
    write(pair.clusters["A"].bootstrap, topic, [value])
    time.sleep(2)
    return value not in values(pair.clusters["B"], topic).values()


def test_mirror_pause_stops_the_flow(stage: Stage, mirrored: str) -> None:
    with stage.fault("mirror-pause", "mirror", "any", pick=0, how="sigstop") as outcome:
        assert outcome.target == "mirror-1"
        assert not_carried(stage.pair, mirrored, "while paused")
    carried(stage.pair, mirrored, "after the pause", timeout_s=30)
    assert "while paused" in values(stage.pair.clusters["B"], mirrored).values()


def test_unclean_election_on_b_loses_what_the_mirror_wrote(stage: Stage, mirrored: str) -> None:
    """On B the mirror is the only writer: it does not resend what B acknowledged and lost.

    Another partition, whose only replica is on the killed leader, has no other leader.
    """
    a, b = stage.pair.clusters["A"], stage.pair.clusters["B"]
    leader = b.partitions(mirrored)[0].leader
    beside = f"{mirrored}-beside"
    b.create_topic(beside, partitions=3, replication=1)
    alone = [f"{beside}-{p.partition}" for p in b.partitions(beside) if p.leader == leader]
    assert alone
    with (
        Reader(b.bootstrap, mirrored) as reader,
        Writer(a.bootstrap, mirrored) as writer,
        stage.fault("unclean-election", "B", "leader", topic=mirrored, partition=0, alone=10) as outcome,
    ):
        seen = dict(reader.seen)
    assert all(name in outcome.why for name in alone), outcome.why
    assert set(alone) <= set(json.loads(str(stage.rows()[1]["params"]))["beside"])
    assert all(p.leader is not None for p in b.partitions(beside))
    first, last = claimed_loss(outcome)
    carried(stage.pair, mirrored, "after the election", timeout_s=60)
    on_b = set(values(b, mirrored).values())
    # a consumer had read them on B at these offsets; B no longer has them, A still has
    gone = {offset: value for offset, value in seen.items() if first <= offset <= last and value not in on_b}
    assert len(gone) >= 10
    assert set(gone.values()) <= set(writer.acknowledged)
    missing = set(writer.acknowledged) - on_b
    assert len(missing) >= last - first + 1
    assert missing <= set(values(a, mirrored).values())


def test_mirror_kill_ends_the_process_and_it_resumes_after_its_start(
    stage: Stage, mirrored: str, engine_client: docker.DockerClient
) -> None:
    (mirror,) = stage.pair.mirrors
    (node,) = mirror.nodes()
    with stage.fault("mirror-kill", "mirror", "any", pick=3) as outcome:
        assert outcome.target == "mirror-1"
        container = engine_client.containers.get(node.container)  # type: ignore[attr-defined]
        assert container.status == "exited"
        assert container.attrs["State"]["ExitCode"] == 137  # by SIGKILL
        assert not_carried(stage.pair, mirrored, "while dead")
    carried(stage.pair, mirrored, "after the kill", timeout_s=60)
    assert "while dead" in values(stage.pair.clusters["B"], mirrored).values()
