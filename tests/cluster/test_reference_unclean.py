"""Unclean elections on the source while a follower on the destination is dead: it must truncate the lost records."""

from __future__ import annotations

import asyncio

from harness.clusters.pair import RunningTopology
from tests.cluster.reference_run import again, identical, running, until
from tests.cluster.unclean_source import UncleanSource, write

LOST = 40
AGREED, WITH_LOST = 100, 140
LONGER_THAN_LOST = 60


def test_a_follower_that_was_dead_at_the_truncation_truncates_when_it_comes_back(
    pair: RunningTopology, topic: str
) -> None:
    """The mirror dies in between, so that only the leader epochs of the logs show where to truncate."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    UncleanSource.topic_of(a, topic)
    source = UncleanSource(a, topic)

    async def body() -> None:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            for tag in ("first", "second"):
                await asyncio.to_thread(write, a.bootstrap, topic, AGREED // 2, tag=tag)
            await mirror.until_at(AGREED)
            await asyncio.to_thread(source.leave_alone)
            await asyncio.to_thread(write, a.bootstrap, topic, LOST, tag="lost")
            await mirror.until_at(WITH_LOST)
            dead = max(mirror.led().in_sync_followers)
            await asyncio.to_thread(b.brokers[dead].kill)
            await until(lambda: dead not in mirror.led().isr, 30, lambda: f"{dead} not in {mirror.led().isr}")
            await asyncio.to_thread(source.elect)
            for n in range(2):  # after the dead follower's log end, in separate batches
                await asyncio.to_thread(write, a.bootstrap, topic, LONGER_THAN_LOST // 2, tag=f"new{n}")
            await mirror.until_at(AGREED + LONGER_THAN_LOST, timeout_s=60)
        async with again(mirror) as resumed:
            await resumed.until_at(AGREED + LONGER_THAN_LOST)
            await asyncio.to_thread(b.brokers[dead].start)
            await until(lambda: dead in resumed.led().isr, 60, lambda: f"{dead} in {resumed.led().isr}")
            await asyncio.to_thread(source.heal)
            await identical(pair, topic, batches_at_least=4)
            await resumed.stop_mirroring()

    asyncio.run(body())
