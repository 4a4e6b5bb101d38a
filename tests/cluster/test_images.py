"""The images on a real engine: built, pulled, refused; their contents; brokers formatted in them."""

from __future__ import annotations

import io
import os
import re
import secrets
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest
from confluent_kafka.admin import ConfigResource
from docker.models.containers import Container

from harness.clusters.docker import image_build
from harness.clusters.docker.image_files import Recipe, compose_dir, entry_archive, recipe
from harness.clusters.docker.images import LABEL, BrokerImage, ImageSet, ensure_images, plan_images, release_image
from harness.clusters.pair import start_topology
from harness.clusters.plan.entry import ENTRY_POINT
from harness.core.errors import EXIT_USAGE, ImageError
from harness.core.testspec import parse_spec
from harness.core.wait import wait_until
from harness.run.plan import make_plan, topology_spec

OFFICIAL = """
FROM {kafka}
RUN rm -rf /opt/shatterproof && mkdir /opt/jre && mv /opt/java /opt/jre/openjdk \
 && rm -f /usr/sbin/iptables && useradd appuser && chown -R appuser /opt/kafka
ENV JAVA_HOME=/opt/jre/openjdk PATH=/opt/jre/openjdk/bin:/usr/bin:/bin
USER appuser
LABEL shatterproof.image=test
ENTRYPOINT ["/no-entry-point-of-ours"]
"""

CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=CLIENTS://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
advertised.listeners=CLIENTS://127.0.0.1:9092
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
log.dirs=/data/kafka
"""
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture(scope="module")
def official(engine_client: docker.DockerClient, images: ImageSet) -> Iterator[str]:
    """An image with the official layout and only our jars: another Java folder and user, no iptables."""
    name = f"shatterproof-test/official-{secrets.token_hex(3)}:1"
    engine_client.images.build(fileobj=io.BytesIO(OFFICIAL.format(kafka=images.kafka).encode()), tag=name, rm=True)
    yield name
    engine_client.images.remove(name, force=True)


@pytest.fixture
def broker(engine_client: docker.DockerClient, tmp_path: Path) -> Iterator[BrokerStarter]:
    starter = BrokerStarter(engine_client, tmp_path)
    yield starter
    starter.remove()


class BrokerStarter:
    """Starts lone brokers by the entry point that the harness uses for every image."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        self._client, self._folder = client, folder
        self._started: list[Container] = []

    def __call__(self, image: str, **environment: str) -> Container:
        (self._folder / "server.properties").write_text(CONFIG)
        container = self._client.containers.create(
            image,
            ["broker", "/config/server.properties"],
            entrypoint=["sh", ENTRY_POINT],
            environment={"CLUSTER_ID": CLUSTER_ID, **environment},
            user="0",
            network_mode="none",
            volumes={str(self._folder): {"bind": "/config", "mode": "ro"}},
            labels={"shatterproof": f"test-{secrets.token_hex(3)}"},
        )
        self._started.append(container)
        container.put_archive("/", entry_archive())
        container.start()
        wait_until(
            lambda: "Kafka Server started" in logs(container),
            timeout_s=90,
            what=f"a broker of {image} to start",
            instead=lambda: logs(container)[-2000:],
        )
        return container

    def remove(self) -> None:
        for container in self._started:
            container.remove(force=True, v=True)


def logs(container: Container) -> str:
    output = container.logs()
    assert isinstance(output, bytes)
    return output.decode()


def inside(container: Container, *command: str) -> str:
    done = container.exec_run(list(command))
    output: str = done.output.decode()
    assert done.exit_code == 0, output
    return output


def features(broker: Container) -> dict[str, str]:
    text = inside(
        broker, "sh", ENTRY_POINT, "tool", "org.apache.kafka.tools.FeatureCommand",
        "--bootstrap-server", "127.0.0.1:9092", "describe",
    )  # fmt: skip
    return dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", text))


def test_present_images_are_not_rebuilt(engine_client: docker.DockerClient, images: ImageSet) -> None:
    said: list[str] = []
    began = time.monotonic()
    assert ensure_images(engine_client, on_progress=lambda image, line: said.append(f"{image} {line}")) == images
    assert time.monotonic() - began < 2
    assert said == []
    for name in (images.kafka, images.toxiproxy, images.reference):
        assert engine_client.images.get(name).labels[LABEL] == "1"


def test_the_class_archive_fits(engine_client: docker.DockerClient, images: ImageSet) -> None:
    """`-Xshare:on` refuses to start when the archive does not fit the class path; the default starts without it."""
    for kind, name in (("broker", "kafka.Kafka"), ("mirror", "org.apache.kafka.connect.mirror.MirrorMaker")):
        output = engine_client.containers.run(
            images.kafka,
            ["-c", f"sh {ENTRY_POINT} tool {name} --help; true"],
            entrypoint="sh",
            environment={"KAFKA_OPTS": "-Xshare:on -Xlog:class+load:file=/dev/stdout"},
            remove=True,
            network_mode="none",
            labels={LABEL: "test"},
            stderr=True,
        ).decode()
        assert re.search(rf"{re.escape(name)} source: shared objects file", output), f"{kind}: {output[-2000:]}"


def test_a_templated_broker_is_the_one_that_kafka_would_format(
    images: ImageSet, official: str, broker: BrokerStarter
) -> None:
    ours, theirs = broker(images.kafka), broker(official)
    for container in (ours, theirs):
        meta = inside(container, "cat", "/data/kafka/meta.properties")
        assert f"cluster.id={CLUSTER_ID}" in meta
        assert "node.id=1" in meta
    assert "Formatting" not in logs(ours)
    assert "Formatting" in logs(theirs)
    found = features(ours)
    assert found == features(theirs)
    assert found["transaction.version"] == "2"
    assert found["share.version"] == "1"


def test_two_templated_brokers_have_different_directory_ids(images: ImageSet, broker: BrokerStarter) -> None:
    first, second = (inside(broker(images.kafka), "cat", "/data/kafka/meta.properties") for _ in range(2))
    ids = [re.search(r"directory\.id=(\S{22})$", meta, re.MULTILINE) for meta in (first, second)]
    assert ids[0] is not None
    assert ids[1] is not None
    assert ids[0][1] != ids[1][1]


def test_signals_reach_the_broker_and_its_data_stays(images: ImageSet, broker: BrokerStarter) -> None:
    container = broker(images.kafka)
    assert inside(container, "cat", "/proc/1/comm").strip() == "java"
    before = inside(container, "cat", "/data/kafka/meta.properties")
    container.stop(timeout=30)
    assert container.wait()["StatusCode"] == 143  # it shut down by itself on SIGTERM
    container.start()
    wait_until(
        lambda: logs(container).count("Kafka Server started") == 2, timeout_s=90, what="the broker to start again"
    )
    assert inside(container, "cat", "/data/kafka/meta.properties") == before


def test_a_foreign_image_is_used_with_our_tools(
    engine_client: docker.DockerClient, images: ImageSet, official: str
) -> None:
    found = ensure_images(engine_client, kafka_image=official)
    assert (found.kafka, found.mirror, found.own_kafka) == (official, official, False)
    assert (found.tools, found.toxiproxy) == (images.tools, images.toxiproxy)
    assert found.kafka_version == images.kafka_version


def test_the_tools_act_in_another_containers_network(
    engine_client: docker.DockerClient, images: ImageSet, official: str, broker: BrokerStarter
) -> None:
    target = broker(official)

    def tool(script: str) -> str:
        return engine_client.containers.run(
            images.tools,
            ["-c", script],
            entrypoint="sh",
            network_mode=f"container:{target.id}",
            cap_add=["NET_ADMIN"],
            remove=True,
            labels={LABEL: "test"},
        ).decode()

    assert ":9092" in tool("ss -Hltn")
    tool("iptables -A INPUT -p tcp --dport 9092 -j DROP")
    assert "--dport 9092 -j DROP" in tool("iptables -S INPUT")
    assert "9092" not in tool("iptables -D INPUT -p tcp --dport 9092 -j DROP; iptables -S INPUT")


def test_toxiproxy_runs(engine_client: docker.DockerClient, images: ImageSet) -> None:
    output = engine_client.containers.run(images.toxiproxy, ["-version"], remove=True, labels={LABEL: "test"})
    assert "2.12.0" in output.decode()


def test_the_reference_mirror_reports_bad_settings(engine_client: docker.DockerClient, images: ImageSet) -> None:
    with pytest.raises(docker.errors.ContainerError) as caught:
        engine_client.containers.run(images.reference, ["/none.json"], remove=True, labels={LABEL: "test"})
    assert caught.value.exit_status == EXIT_USAGE
    assert "/none.json: cannot be read" in str(caught.value.stderr)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("127.0.0.1:9/team/kafka:1", "cannot be pulled"),
        ("Team/Kafka", "is not an image name"),
        ("{base}", "/opt/kafka/libs"),
        ("{toxiproxy}", "/opt/kafka/libs"),
    ],
)
def test_images_that_cannot_be_used_are_named(engine_client: docker.DockerClient, name: str, words: str) -> None:
    plan = plan_images()
    if name == "{base}" and plan.base not in {tag for image in engine_client.images.list() for tag in image.tags}:
        pytest.skip("the base was removed after the images were built")
    name = name.format(base=plan.base, toxiproxy=plan.toxiproxy)
    with pytest.raises(ImageError) as caught:
        ensure_images(engine_client, kafka_image=name)
    assert name in str(caught.value)
    assert words in str(caught.value)


def test_a_failing_step_is_named_and_leaves_no_container(
    engine_client: docker.DockerClient, images: ImageSet, tmp_path: Path
) -> None:
    mark = secrets.token_hex(4)
    (tmp_path / "Dockerfile").write_text(
        f"ARG BASE\nFROM ${{BASE}}\nLABEL {LABEL}=test mark={mark}\nRUN echo 'E: no such thing {mark}' >&2; exit 7\n"
    )
    steps: list[str] = []
    with pytest.raises(ImageError) as caught:
        image_build.build(
            engine_client, Recipe("broken", tmp_path), f"shatterproof-test/broken:{mark}", base=images.kafka,
            on_progress=lambda _, line: steps.append(line),
        )  # fmt: skip
    text = str(caught.value)
    assert "step 4 of 4" in text
    assert f"E: no such thing {mark}" in text
    log = re.search(r"whole log is (\S+);", text)
    assert log is not None
    assert f"E: no such thing {mark}" in Path(log[1]).read_text()
    assert len(steps) == 4
    assert engine_client.containers.list(all=True, filters={"label": f"mark={mark}"}) == []
    engine_client.images.prune(filters={"dangling": True, "label": f"mark={mark}"})


def test_an_interrupt_leaves_at_once_and_the_engine_stops_building(
    engine_client: docker.DockerClient, images: ImageSet, tmp_path: Path
) -> None:
    mark = secrets.token_hex(4)
    (tmp_path / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nLABEL {LABEL}=test mark={mark}\nRUN sleep 300\n")
    program = (
        "import sys; from pathlib import Path; from harness.clusters.docker.image_build import build_all; "
        "from harness.clusters.docker.image_files import Recipe; "
        "build_all([(Recipe('slow', Path(sys.argv[1])), sys.argv[2])], base=sys.argv[3], on_progress=lambda *_: None)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), f"shatterproof-test/slow:{mark}", images.kafka],
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )

    def building() -> list[Container]:
        return engine_client.containers.list(all=True, filters={"label": f"mark={mark}"})

    try:
        wait_until(building, timeout_s=60, what="the slow step to run")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) != 0
        wait_until(lambda: not building(), timeout_s=30, what="the engine to remove the build's container")
    finally:
        process.kill()
        process.communicate()
        for left in building():
            left.remove(force=True)
    engine_client.images.prune(filters={"dangling": True, "label": f"mark={mark}"})


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        ("true", ""),
        ("sed -i '5s/^.\\{8\\}/00000000/' jars.sha256", "FAILED"),
        ("touch /opt/kafka/libs/stowaway-1.0.jar", "> stowaway-1.0.jar"),
        ("rm /opt/kafka/libs/zstd-jni-*.jar", "< zstd-jni-"),
    ],
)
def test_jars_that_are_not_the_pinned_ones_stop_the_build(
    engine_client: docker.DockerClient, images: ImageSet, tamper: str, words: str
) -> None:
    """The build's own check, taken from the Dockerfile, over the image's jars."""
    dockerfile = (compose_dir() / "kafka" / "Dockerfile").read_text().replace("\\\n", " ")
    (step,) = (line for line in dockerfile.splitlines() if "sha256sum" in line)
    check = step.split("&&", 1)[1]
    folder = compose_dir() / "kafka"
    container = engine_client.containers.create(
        images.kafka,
        ["-ec", f"cp /pins/jars.sha256 /build/; cd /build; {tamper}; {check}"],
        entrypoint="sh",
        working_dir="/build",
        network_mode="none",
        volumes={str(folder): {"bind": "/pins", "mode": "ro"}},
        labels={"shatterproof": f"test-{secrets.token_hex(3)}"},
    )
    try:
        container.start()
        code, output = container.wait(timeout=60)["StatusCode"], logs(container)
    finally:
        container.remove(force=True)
    assert (code == 0) is (words == ""), output
    assert words in output


def test_a_public_base_gets_our_label(engine_client: docker.DockerClient, images: ImageSet) -> None:
    tag = f"shatterproof-test/base:{secrets.token_hex(4)}"
    image_build.build(engine_client, recipe("base"), tag, base=images.toxiproxy, on_progress=lambda image, line: None)
    try:
        assert engine_client.images.get(tag).labels[LABEL] == "1"
    finally:
        engine_client.images.remove(tag)


def release_archive(client: docker.DockerClient, kafka: str, path: Path) -> Path:
    """A release archive with an image's jars, whose version says that it is a build of a branch."""
    container = client.containers.create(kafka, labels={LABEL: "test"})
    try:
        stream, _ = container.get_archive("/opt/kafka/libs")
        jars = io.BytesIO(b"".join(stream))
    finally:
        container.remove(force=True)
    with tarfile.open(fileobj=jars) as libs, tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for member in libs:
            file = libs.extractfile(member)
            name = re.sub(r"(/kafka_2\.13-[0-9.]+)\.jar$", r"\1-SNAPSHOT.jar", member.name)
            member.name = f"kafka_2.13-x/{name}"
            archive.addfile(member, file)
    return path


def test_a_release_archive_and_settings_of_each_cluster(
    engine_client: docker.DockerClient, images: ImageSet, tmp_path: Path
) -> None:
    archive = release_archive(engine_client, images.kafka, tmp_path / "kafka.tgz")
    brokers = release_image(engine_client, archive)
    try:
        assert brokers.kafka_version == f"{images.kafka_version}-SNAPSHOT"
        found = ensure_images(engine_client, destination_image=brokers.name)
        assert found.brokers(source=False) == brokers
        assert found.brokers(source=True) == BrokerImage(images.kafka, images.kafka_version)
        values = {
            "brokers": 1,
            "broker-config": {"log.segment.bytes": 1048577, "B:log.segment.bytes": 2097153},
            "topic-config": {"segment.ms": 123456},
            "format-feature": {"transaction.version": 1},
        }
        plan = make_plan(parse_spec(values, where="test"))
        run = f"test-{secrets.token_hex(3)}"
        with start_topology(topology_spec(plan, found, run, keep=False)) as pair:
            name = plan.topic_names[0]
            for letter, size in (("A", "1048577"), ("B", "2097153")):
                cluster = pair.clusters[letter]
                cluster.create_topic(name, partitions=1, replication=1, config=plan.options.topic_config)
                asked = [ConfigResource("broker", "1"), ConfigResource("topic", name)]
                broker, topic = [f.result() for f in cluster.admin().describe_configs(asked).values()]
                assert broker["log.segment.bytes"].value == size
                assert topic["segment.ms"].value == "123456"
                said = cluster.brokers[1].exec(
                    [
                        *("sh", ENTRY_POINT, "tool", "org.apache.kafka.tools.FeatureCommand"),
                        *("--bootstrap-server", cluster.bootstrap, "describe"),
                    ],
                    timeout_s=60,
                )
                assert re.search(r"Feature: transaction.version.*FinalizedVersionLevel: 1\b", said.output), said.output
            container = engine_client.containers.get(f"shatterproof-{run}-B-broker-1")
            assert container.image is not None
            assert brokers.name in container.image.tags
    finally:
        engine_client.images.remove(brokers.name, force=True)
