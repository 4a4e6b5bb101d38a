"""From images present to the first mirrored record: 3+3 brokers, toxiproxy, MirrorMaker 2 with exactly-once.

Prints `provision_ready_seconds N` (both clusters answer), `provision_mirrored_seconds N` (a probe record was carried on
every partition) and `provision_teardown_seconds N`, each the median of the rounds.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import tempfile
import time
from pathlib import Path

from harness.clusters.docker.clients import connect
from harness.clusters.docker.images import ensure_images
from harness.clusters.pair import start_topology
from harness.core.testspec import TestSpec
from harness.history.recorder import RunRecorder
from harness.run.plan import make_plan, topology_spec
from mirrors import MirrorContext
from mirrors.site import TopologySite


def measure(out: Path) -> tuple[float, float, float]:
    """One round: seconds until ready, until mirrored, and for the teardown."""
    images = ensure_images(connect())
    plan = make_plan(TestSpec(name="bench", contract="mm2-exactly-once"))
    began = time.monotonic()
    topology = start_topology(topology_spec(plan, images, f"bench-{secrets.token_hex(3)}", keep=False))
    with topology, RunRecorder(out) as recorder:
        ready = time.monotonic() - began
        source = topology.clusters["A"]
        for topic in plan.topics:
            source.create_topic(
                topic.name, partitions=topic.partitions, replication=topic.replication, config=topic.config
            )
        topology.test_topics = plan.topic_names
        site = TopologySite(topology, image=images.mirror, entry_point=images.entry_point)
        context = MirrorContext(source=source, destination=topology.clusters["B"], site=site, settings=plan.settings)
        mirror = plan.mirror.make(context)
        topology.mirrors = [mirror]
        mirror.start(plan.topic_names)
        mirror.await_mirroring(plan.topic_names, recorder=recorder, timeout_s=120)
        mirrored = time.monotonic() - began
        mirror.close()
        began = time.monotonic()
    return ready, mirrored, time.monotonic() - began


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = []
    for number in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(measure(Path(folder) / f"round-{number}"))
    for name, values in zip(("ready", "mirrored", "teardown"), zip(*rounds, strict=True), strict=True):
        print(f"provision_{name}_seconds {statistics.median(values):.1f}", flush=True)


if __name__ == "__main__":
    main()
