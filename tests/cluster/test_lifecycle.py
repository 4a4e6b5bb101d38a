"""Topologies start and end: two at once, clear errors at start, nothing left after stop or after a `kill -9`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.clusters import up_down
from harness.clusters.docker import containers
from harness.clusters.docker import labels as label
from harness.clusters.docker.cleanup import clean, labelled_objects, stray_objects
from harness.clusters.docker.clients import DockerClients
from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import RunningTopology, attach, start_topology
from harness.clusters.plan.topology import ClusterSpec, ImageNames, NodePlan, TopologySpec
from harness.core.errors import ClusterError, EngineError, ImageError, UsageError
from harness.core.wait import wait_until
from harness.topology.clusters import NodeRole, NodeState

NewRunId = Callable[[], str]
SMALL = (ClusterSpec(name="A", brokers=1),)


def test_a_second_topology_does_not_disturb_the_first(
    pair: RunningTopology, images: ImageSet, clients: DockerClients, new_run_id: NewRunId, run_dir: Path
) -> None:
    """One broker and a separate controller, next to the session's pair."""
    clusters = (ClusterSpec(name="A", brokers=1, separate_controllers=1, config={"log.retention.ms": "123456789"}),)
    spec = TopologySpec(run_id=new_run_id(), images=images, clusters=clusters)
    with start_topology(spec, logs_dir=run_dir / "logs") as other:
        assert not other.plan.subnet.overlaps(pair.plan.subnet)
        cluster = other.clusters["A"]
        assert cluster.cluster_id not in {c.cluster_id for c in pair.clusters.values()}
        assert list(cluster.brokers) == [1]
        assert list(cluster.controllers) == [2]
        assert cluster.active_controller() == 2
        assert other.node("A-controller-2").role is NodeRole.CONTROLLER
        assert (
            "log.retention.ms=123456789"
            in cluster.brokers[1].exec(["cat", "/etc/shatterproof/server.properties"]).output
        )

        other.links["A"].cut("down")
        assert not other.links["A"].passes(1)
        assert pair.links["A"].passes(1), "each run steers its own toxiproxy"
        pair.links["A"].cut("down", brokers=[1])
        other.links["A"].heal()
        assert other.links["A"].passes(1)
        assert not pair.links["A"].passes(1)
        pair.links["A"].heal()

        extra = NodePlan(
            name="mirror-1",
            cluster="mirror",
            role=NodeRole.MIRROR,
            node_id=1,
            address=other.plan.mirror_address(1),
            image=images.tools,
            entrypoint=("sh",),
            command=("-c", "cat /etc/greeting; exec sleep 600"),
            files={"/etc/greeting": "good morning\n"},
        )
        node = other.launch(extra)
        assert node in other.nodes()
        assert node.state() is NodeState.RUNNING
        wait_until(lambda: "good morning" in node.logs(), timeout_s=10, what="its first line")
        with pytest.raises(UsageError, match="mirror-1 exists already"):
            other.launch(extra)
        with pytest.raises(UsageError, match=rf"run {spec.run_id} exists already"):
            start_topology(spec)
        assert len(labelled_objects(clients, run=spec.run_id)) == 4 + 1 + 2  # containers, network, volumes
        assert not {found.run_id for found in stray_objects(clients)} & {spec.run_id, pair.run_id}
        assert clean(clients, run=spec.run_id) == [], "objects of a living owner are not cleaned"
    assert labelled_objects(clients, run=spec.run_id) == []
    assert len(labelled_objects(clients, run=pair.run_id)) == 7 + 1 + 6
    saved = {path.name: path.read_text() for path in (run_dir / "logs").iterdir()}
    assert set(saved) == {"A-broker-1.log", "A-controller-2.log", "toxiproxy.log", "mirror-1.log"}
    assert "Kafka Server started" in saved["A-broker-1.log"]
    other.stop()


def test_broken_broker_configuration_gives_its_name_and_last_words(
    images: ImageSet, clients: DockerClients, new_run_id: NewRunId, run_dir: Path
) -> None:
    clusters = (ClusterSpec(name="A", brokers=1, config={"num.network.threads": "none"}),)
    spec = TopologySpec(run_id=new_run_id(), images=images, clusters=clusters)
    with pytest.raises(ClusterError, match=r"(?s)A-broker-1 ended by itself with exit code 1; .*num\.network\.threads"):
        start_topology(spec, logs_dir=run_dir / "logs")
    assert labelled_objects(clients, run=spec.run_id) == []
    assert "num.network.threads" in (run_dir / "logs" / "A-broker-1.log").read_text()


def test_image_that_does_not_exist(images: ImageSet, clients: DockerClients, new_run_id: NewRunId) -> None:
    names = ImageNames(kafka="shatterproof/absent:1", toxiproxy=images.toxiproxy, tools=images.tools)
    spec = TopologySpec(run_id=new_run_id(), images=names, clusters=SMALL)
    with pytest.raises(ImageError, match="image shatterproof/absent:1 is not on this machine"):
        start_topology(spec)
    assert labelled_objects(clients, run=spec.run_id) == []


def test_taken_subnet(pair: RunningTopology, images: ImageSet, clients: DockerClients, new_run_id: NewRunId) -> None:
    spec = TopologySpec(run_id=new_run_id(), images=images, clusters=SMALL, subnet=str(pair.plan.subnet))
    with pytest.raises(EngineError, match=rf"subnet {pair.plan.subnet} is taken by Docker network shatterproof-"):
        start_topology(spec)
    assert labelled_objects(clients, run=spec.run_id) == []


def test_taken_address(pair: RunningTopology, images: ImageSet) -> None:
    squatter = NodePlan(
        name="mirror-9",
        cluster="mirror",
        role=NodeRole.MIRROR,
        node_id=9,
        address=pair.plan.toxiproxy.address,
        image=images.tools,
        entrypoint=("sh",),
        command=("-c", "sleep 600"),
    )
    try:
        with pytest.raises(EngineError, match=f"mirror-9: its address {pair.plan.toxiproxy.address} is taken"):
            pair.launch(squatter)
    finally:
        name = containers.container_name(pair.run_id, "mirror-9")
        pair.clients.api.remove_container(name, force=True)


def test_networks_made_at_once_get_subnets_of_their_own(clients: DockerClients, new_run_id: NewRunId) -> None:
    """All have the same seed, so they try the same subnets in the same order, as two runs might."""
    runs = [new_run_id() for _ in range(4)]
    owner = label.this_process()

    def make(run_id: str) -> object:
        return containers.create_network(
            clients, run_id, named=None, labels=label.run_labels(run_id, owner), rng=random.Random(7)
        )

    try:
        with ThreadPoolExecutor(max_workers=4) as pool:
            made = list(pool.map(make, runs))
        assert len(set(made)) == 4
    finally:
        for run_id in runs:
            clean(clients, run=run_id, force=True)


def _run_python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], stdout=subprocess.PIPE, text=True
    )


_START = """
    import sys, time
    from harness.clusters.docker.clients import connect
    from harness.clusters.docker.images import ensure_images
    from harness.clusters.plan.topology import ClusterSpec, TopologySpec
    from harness.clusters.{module} import {function}
    clusters = (ClusterSpec(name="A", brokers=1),)
    spec = TopologySpec(run_id=sys.argv[1], images=ensure_images(connect()), clusters=clusters)
    topology = {function}(spec)
    print("up", flush=True)
"""


def test_kill_9_of_the_owner_then_clean_leaves_nothing(clients: DockerClients, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    script = _START.format(module="pair", function="start_topology") + "    time.sleep(600)\n"
    owner = _run_python(script, run_id)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert clean(clients, run=run_id) == [], "its owner lives"
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait(10)
        there = labelled_objects(clients, run=run_id)
        assert len(there) == 2 + 1 + 1
        assert all(found.stray for found in there)
        assert set(clean(clients, run=run_id)) == set(there)
        assert labelled_objects(clients, run=run_id) == []
    finally:
        owner.kill()
        owner.wait(10)
        assert owner.stdout is not None
        owner.stdout.close()
        clean(clients, run=run_id, force=True)


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_interrupt_while_starting_leaves_nothing(clients: DockerClients, new_run_id: NewRunId, seconds: float) -> None:
    run_id = new_run_id()
    owner = _run_python(_START.format(module="pair", function="start_topology"), run_id)
    try:
        wait_until(lambda: labelled_objects(clients, run=run_id), timeout_s=20, what="the first object of the run")
        time.sleep(seconds)
        owner.send_signal(signal.SIGINT)
        output, _ = owner.communicate(timeout=60)
        assert owner.returncode != 0
        assert output == "", "it must have been interrupted before it was up"
        assert labelled_objects(clients, run=run_id) == []
    finally:
        owner.kill()
        owner.wait(10)
        clean(clients, run=run_id, force=True)


def test_up_stays_after_its_process_and_down_ends_it(clients: DockerClients, new_run_id: NewRunId) -> None:
    run_id = new_run_id()
    owner = _run_python(_START.format(module="up_down", function="up") + "    topology.detach()\n", run_id)
    try:
        output, _ = owner.communicate(timeout=90)
        assert owner.returncode == 0, output
        assert clean(clients, run=run_id) == [], "it is kept on purpose"
        found = attach(run_id)
        try:
            assert found.clusters["A"].brokers[1].state() is NodeState.RUNNING
            found.await_ready(timeout_s=10)
            assert found.links["A"].passes(1)
            assert found.clusters["A"].bootstrap in up_down.describe(found)
        finally:
            found.detach()
        removed = up_down.down(run_id)
        assert len(removed) == 2 + 1 + 1
        assert labelled_objects(clients, run=run_id) == []
        with pytest.raises(UsageError, match=f"no run {run_id} is up"):
            up_down.down(run_id)
        with pytest.raises(UsageError, match=f"no run {run_id} is up"):
            attach(run_id)
    finally:
        clean(clients, run=run_id, force=True)
