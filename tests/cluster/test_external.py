"""A mirror described in a TOML file, on real clusters: the example mirrors, reports as its file says, and ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import RunningTopology
from harness.history.recorder import RunRecorder
from harness.topology.clusters import NodeState
from harness.topology.mirror import Mirror, PartitionState
from mirrors import REGISTRY, MirrorContext, MirrorSettings
from mirrors.site import TopologySite

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves a test's neighbours out of sight
from mirroring import forget, values, write

EXAMPLE = Path(__file__).parents[2] / "examples" / "external-mm2.toml"
CARRY_S = 60.0
# What a user's own command could print; run in the mirror's container, which its file `/etc/mirror.properties` shows.
DESCRIBE = """
describe = ["sh", "-c", "test -s /etc/mirror.properties && echo '[{\\"topic\\": \\"TOPIC\\", \\"partition\\": 0, \
\\"state\\": \\"MIRRORING\\", \\"source_offset\\": 5, \\"destination_offset\\": 5, \\"lag\\": 0}]'"]
"""


@pytest.fixture
def mirror(pair: RunningTopology, images: ImageSet, topic: str, tmp_path: Path) -> Iterator[Mirror]:
    """The example with a `describe`, removed afterwards."""
    pair.clusters["A"].create_topic(topic, partitions=1, replication=3)
    file = tmp_path / "mirror.toml"
    head, contract, rest = EXAMPLE.read_text().partition('contract = "mm2-at-least-once"\n')
    file.write_text(head + contract + DESCRIBE.replace("TOPIC", topic) + rest)
    settings = MirrorSettings(contract="mm2-at-least-once", options={"config": str(file)}, mirror_nodes=1)
    spec = REGISTRY["external"]
    spec.check(settings, [topic])
    made = spec.make(
        MirrorContext(
            source=pair.clusters["A"],
            destination=pair.clusters["B"],
            site=TopologySite(pair, image=images.mirror, entry_point=images.entry_point),
            settings=settings,
        )
    )
    yield made
    made.close()
    for node in made.nodes():
        pair.discard(node.name)
    forget(pair, [topic])


def test_the_example_mirrors_and_reports_its_cut(
    pair: RunningTopology, mirror: Mirror, topic: str, tmp_path: Path
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    write(a.bootstrap, topic, [f"v{n}" for n in range(5)])
    with RunRecorder(tmp_path / "recorded") as recorder:
        mirror.start([topic])
        assert set(mirror.await_mirroring([topic], recorder=recorder, timeout_s=CARRY_S)) == {(topic, 0)}
    assert mirror.await_caught_up([topic], timeout_s=CARRY_S) == {(topic, 0): 0}
    carried = mirror.topic_on_destination(topic)
    assert carried == f"A.{topic}"
    assert values(b.bootstrap, carried) == [f"v{n}" for n in range(5)]
    (status,) = mirror.describe()
    assert (status.state, status.source_offset, status.lag) == (PartitionState.MIRRORING, 5, 0)
    cut = mirror.stop([topic])
    assert dict(cut.offsets) == {(topic, 0): (5, 5)}
    (node,) = mirror.nodes()
    assert node.state() is NodeState.STOPPED
