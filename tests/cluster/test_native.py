"""The native driver step by step, on real clusters: created, paused, stopped with its cut, mirrored back and again.

With SHATTER_NATIVE_IMAGE=NAME on a build that has Cluster Mirroring in its brokers, else on stock brokers with
processes of the reference mirror that serve its requests. Stock brokers alone are refused with one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from harness.clusters.docker.image_contents import client_library_has
from harness.clusters.docker.images import ImageSet, ensure_images
from harness.clusters.pair import RunningTopology, start_topology
from harness.core.errors import MirrorError
from harness.core.testspec import parse_spec
from harness.history.recorder import RunRecorder
from harness.run.plan import RunPlan, make_plan, topology_spec
from harness.topology.mirror import Capability, Mirror, PartitionState
from harness.wire.view import ClusterView
from mirrors import MirrorContext, MirrorSettings
from mirrors.native.config import CLASS_OF_BUILD
from mirrors.native.driver import NativeMirror
from mirrors.site import TopologySite

CAUGHT_UP_S = 60.0
PARTITIONS = 2


@dataclass(frozen=True)
class Bench:
    """Clusters A and B for the driver. build: whether their brokers have Cluster Mirroring themselves."""

    plan: RunPlan
    images: ImageSet
    topology: RunningTopology
    build: bool

    def mirror(self, source: str, destination: str) -> NativeMirror:
        """The driver of one direction; nothing runs until its `start`."""
        clusters, plan = self.topology.clusters, self.plan
        site = TopologySite(
            self.topology,
            image=getattr(self.images, plan.mirror.image),
            entry_point=(),
            first=plan.first_process((source, destination)),
        )
        made = plan.mirror.make(
            MirrorContext(source=clusters[source], destination=clusters[destination], site=site, settings=plan.settings)
        )
        assert isinstance(made, NativeMirror)
        return made

    def ends(self, cluster: str, topic: str) -> dict[tuple[str, int], int | None]:
        """The high watermarks of a topic's partitions."""
        with closing(ClusterView(self.topology.clusters[cluster].bootstrap)) as view:
            return view.leader_ends([topic])


@pytest.fixture(scope="module")
def bench(
    engine_client: docker.DockerClient, images: ImageSet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    named = os.environ.get("SHATTER_NATIVE_IMAGE")
    with ExitStack() as stack:
        if named:
            images = ensure_images(engine_client, kafka_image=named)
        else:
            from tests.cluster.face_pair import native_on_reference

            stack.enter_context(native_on_reference())
        plan = make_plan(parse_spec({"mirror": "native", "scenario": "round-trip"}, where="test"))
        spec = topology_spec(plan, images, f"test-native-{os.getpid()}", keep=False)
        topology = stack.enter_context(start_topology(spec, logs_dir=tmp_path_factory.mktemp("native-logs")))
        yield Bench(plan, images, topology, build=bool(named))


def states(mirror: Mirror) -> set[PartitionState]:
    return {status.state for status in mirror.describe()}


def test_a_mirror_lives_through_pause_stop_failback_and_a_second_start(
    bench: Bench, topic: str, produce: Callable[..., None], read: Callable[..., list[bytes]], tmp_path: Path
) -> None:
    a, b = bench.topology.clusters["A"], bench.topology.clusters["B"]
    a.create_topic(topic, partitions=PARTITIONS, replication=3)
    produce(a.bootstrap, topic, [b"1", b"2"])
    with closing(bench.mirror("A", "B")) as there, closing(bench.mirror("B", "A")) as back:
        with pytest.raises(MirrorError, match="no topic nowhere to mirror"):
            there.start(["nowhere"])
        there.start([topic])
        assert states(there) == {PartitionState.MIRRORING}
        with RunRecorder(tmp_path / "recorded") as recorder:
            assert len(there.await_mirroring([topic], recorder=recorder, timeout_s=CAUGHT_UP_S)) == PARTITIONS
        assert read(b.bootstrap, topic, 2)[:2] == [b"1", b"2"]
        _capabilities_are_stated(bench, there)

        there.pause([topic])
        before = bench.ends("B", topic)
        produce(a.bootstrap, topic, [b"3"])
        assert states(there) == {PartitionState.PAUSED}
        assert bench.ends("B", topic) == before
        there.resume([topic])
        assert set(there.await_caught_up([topic], timeout_s=CAUGHT_UP_S).values()) == {0}

        ended = bench.ends("A", topic)
        cut = there.stop([topic])
        assert {place: source for place, (source, _) in cut.offsets.items()} == ended
        assert {status.destination_offset for status in there.describe()} == set(ended.values())
        assert states(there) == {PartitionState.STOPPED}
        produce(b.bootstrap, topic, [b"4"])
        produce(a.bootstrap, topic, [b"only on a"])

        back.start([topic])
        assert set(back.await_caught_up([topic], timeout_s=CAUGHT_UP_S).values()) == {0}
        assert read(a.bootstrap, topic, 99, timeout_s=8) == read(b.bootstrap, topic, 99, timeout_s=8)
        back.stop([topic])
        produce(a.bootstrap, topic, [b"5"])

        there.start([topic])
        assert set(there.await_caught_up([topic], timeout_s=CAUGHT_UP_S).values()) == {0}
        assert read(b.bootstrap, topic, 99, timeout_s=8)[-1] == b"5"
        there.stop([topic])


def _capabilities_are_stated(bench: Bench, mirror: Mirror) -> None:
    can = mirror.capabilities()
    assert can[Capability.CUT_BY_EPOCH].yes
    assert can[Capability.TOPIC_ID].yes is bench.build
    assert can[Capability.PID_RESET_HONOURED].yes is bench.build


def test_stock_brokers_are_refused_by_their_image(
    pair: RunningTopology, images: ImageSet, engine_client: docker.DockerClient, topic: str
) -> None:
    pair.clusters["A"].create_topic(topic, partitions=1, replication=3)
    mirror = NativeMirror(
        MirrorContext(
            source=pair.clusters["A"],
            destination=pair.clusters["B"],
            site=TopologySite(pair, image=images.mirror, entry_point=()),
            settings=MirrorSettings(),
            image=images.kafka,
        )
    )
    with closing(mirror), pytest.raises(MirrorError, match=f"image {images.kafka}.*name the image of a build"):
        mirror.start([topic])
    assert not client_library_has(engine_client, images.kafka, CLASS_OF_BUILD)
    assert client_library_has(engine_client, images.kafka, "org/apache/kafka/common/requests/FetchRequest")
