"""One pair of real clusters for all cluster tests of a session, repaired after each test that used it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import docker
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from checkers.spark.session import spark_session
from harness.clusters.docker.cleanup import labelled_objects
from harness.clusters.docker.clients import DockerClients, connect
from harness.clusters.docker.images import ImageSet, ensure_images
from harness.clusters.pair import RunningTopology, start_topology
from harness.clusters.plan.topology import ClusterSpec, TopologySpec
from harness.topology.clusters import NodeState
from tests.cluster.mirror_remains import free_from_mirrors


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Reset SIGINT: a shell's background jobs, and their children, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine_client() -> Iterator[docker.DockerClient]:
    client = connect()
    yield client
    client.close()


@pytest.fixture(scope="session")
def clients() -> Iterator[DockerClients]:
    made = DockerClients()
    yield made
    made.close()


@pytest.fixture(scope="session")
def images(engine_client: docker.DockerClient) -> ImageSet:
    """The images of our own brokers, or of SHATTER_TEST_KAFKA: an image, or a version such as 4.4.0."""
    return ensure_images(engine_client, kafka_image=os.environ.get("SHATTER_TEST_KAFKA") or None)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_session(master="local[2]")
    yield session
    session.stop()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def new_run_id() -> Callable[[], str]:
    return _new_run_id


def _new_run_id() -> str:
    return f"test-{os.getpid()}-{secrets.token_hex(3)}"


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"t-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def session_pair(
    images: ImageSet, clients: DockerClients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningTopology]:
    """Clusters A and B, three combined brokers each. Use `pair`, which restores it."""
    spec = TopologySpec(run_id=_new_run_id(), images=images, clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")))
    with start_topology(spec, logs_dir=tmp_path_factory.mktemp("pair-logs")) as topology:
        yield topology
    assert labelled_objects(clients, run=spec.run_id) == []


@pytest.fixture
def pair(session_pair: RunningTopology) -> Iterator[RunningTopology]:
    """The session's pair; afterwards every node runs, every link is healed, every replica is in sync.

    A mirror that a failed test left dead is removed from the replicas of its partitions, which would else stay out of
    sync.
    """
    yield session_pair
    disturbed = False
    for node in session_pair.nodes():
        state = node.state()
        if node.cluster not in session_pair.clusters and node.cluster != "link":
            continue  # a mirror's containers belong to the test that started them
        if state is NodeState.PAUSED:
            node.unpause()
        elif state is NodeState.STOPPED:
            node.start()
        disturbed = disturbed or state is not NodeState.RUNNING
    for link in session_pair.links.values():
        if not link.healthy():
            link.heal()
    for cluster in session_pair.clusters.values():
        if disturbed:
            cluster.await_ready(timeout_s=60)
        asyncio.run(free_from_mirrors(cluster))
        cluster.await_full_isr(timeout_s=60)


@pytest.fixture
def produce() -> Callable[..., None]:
    """produce(bootstrap, topic, values, *, partition=0)"""
    return _produce


@pytest.fixture
def read() -> Callable[..., list[bytes]]:
    """read(bootstrap, topic, count, *, partition=0, timeout_s=20) -> values"""
    return _read


def _produce(bootstrap: str, topic: str, values: Sequence[bytes], *, partition: int = 0) -> None:
    """Write with acks=all and wait until each is acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 20000})
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(30) == 0
    assert failed == []


def _read(bootstrap: str, topic: str, count: int, *, partition: int = 0, timeout_s: float = 20) -> list[bytes]:
    """Read this many records from the start of a partition, or as many as arrive in time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + timeout_s
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()
    return found
