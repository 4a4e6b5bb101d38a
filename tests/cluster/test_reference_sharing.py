"""Several processes of the reference mirror on real clusters: one that joins later gets its share, byte by byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from harness.clusters.pair import RunningTopology
from tests.cluster.reference_run import Mirror, identical, running, until

PARTITIONS = 6


def led_by(mirror: Mirror, topic: str) -> set[int]:
    """Partitions of a topic that a process leads."""
    found = (mirror.process.hub.by_name.get((topic, partition)) for partition in range(PARTITIONS))
    return {led.partition for led in found if led is not None and led.leading}


def test_a_process_that_joins_later_gets_its_share_under_load(
    pair: RunningTopology, topic: str, produce: Callable[..., None]
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=PARTITIONS, replication=3)

    async def body() -> None:
        written = 0
        async with running(pair) as one:
            await one.begin(topic)
            everything = one.keys
            async with running(pair, broker_id=101) as two:
                two.process.hub.expected_topics.add(topic)
                deadline = time.monotonic() + 40
                while time.monotonic() < deadline:  # writes go on while partitions change hands
                    for partition in range(PARTITIONS):
                        await asyncio.to_thread(produce, a.bootstrap, topic, [b"v"], partition=partition)
                    written += 1
                    share = led_by(two, topic)
                    if share and led_by(one, topic) == set(range(PARTITIONS)) - share:
                        break  # a process hears with its next look that another one leads
                assert share
                assert led_by(one, topic) == set(range(PARTITIONS)) - share
                records = two.process.lifecycle.records
                one.keys = [key for key in everything if key.partition not in share]
                two.keys = [key for key in everything if key.partition in share]
                assert {key for key in everything if key in records and records[key].owner == 101} == set(two.keys)
                for mirror in (one, two):
                    for n in range(len(mirror.keys)):
                        await mirror.until_at(written, n)
                await identical(pair, topic, range(PARTITIONS))
                await two.stop_mirroring()
                await one.stop_mirroring()
        await until(
            lambda: all(max(p.replicas) < 100 for p in b.partitions(topic)), 10, lambda: str(b.partitions(topic))
        )

    asyncio.run(body())
