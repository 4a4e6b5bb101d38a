"""Several processes of the reference mirror on real clusters: one that joins later gets its share of partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from harness.clusters.pair import RunningTopology
from harness.core.errors import MirrorError
from harness.wire.batch_headers import headers
from harness.wire.cluster import Cluster
from mirrors.reference.server.design import StateKey
from mirrors.reference.server.model import PartitionRecord
from mirrors.reference.server.state_store import StateStore
from mirrors.reference.server.states import PartitionState as S
from tests.cluster.reference_run import Mirror, identical, replica_logs, running, until

PARTITIONS = 6


def led_by(mirror: Mirror, topic: str) -> set[int]:
    """The partitions of a topic that a process leads."""
    found = (mirror.process.hub.by_name.get((topic, partition)) for partition in range(PARTITIONS))
    return {led.partition for led in found if led is not None and led.leading}


async def put_late(bootstrap: str, records: Sequence[PartitionRecord]) -> None:
    """Store records as if they had been delayed."""
    cluster = Cluster(bootstrap)
    try:
        store = StateStore(cluster, partitions=3, key=StateKey.MIRROR_TOPIC_PARTITION)
        await store.prepare()
        await store.put(records)
    finally:
        cluster.close()


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
                        break  # a process learns with its next metadata snapshot that another one leads
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


def test_a_process_takes_over_a_topic_unchanged_and_the_fenced_one_does_not_take_it_back(
    pair: RunningTopology, topic: str, produce: Callable[..., None]
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=PARTITIONS, replication=3)
    for partition in range(PARTITIONS):
        produce(a.bootstrap, topic, [b"a"] * 5, partition=partition)

    async def body() -> None:
        async with running(pair) as one, running(pair, broker_id=101) as two:
            for mirror in (one, two):
                live = mirror.process.peers.live
                await until(lambda live=live: live() == {100, 101}, 10, lambda live=live: str(live()))
                await mirror.process.lifecycle.until_not_fenced()  # it has read all records before the topic's
            (found,) = [t for t in await one.process.mirrors.discover(one.name) if t.name == topic]
            await one.process.mirrors.add_topic(one.name, found)
            ours, theirs = one.process.lifecycle.records, two.process.lifecycle.records
            one.keys = [key for key in ours if key.topic == topic]
            assert one.keys
            for n in range(len(one.keys)):
                await one.until_at(5, n)
            assert not [key for key in theirs if key.topic == topic]

            one.process._tasks[0].cancel()  # no heartbeat more
            await until(lambda: 100 not in two.process.peers.live(), 15, lambda: str(two.process.peers.live()))
            await two.process.mirrors.add_topic(two.name, found)
            # Its own partitions begin at offset 0; the other's are taken over later, unchanged.
            assert {key: theirs[key].owner for key in one.keys} == dict.fromkeys(one.keys, 100)
            await until(lambda: all(theirs[key].owner == 101 for key in one.keys), 15, lambda: str(theirs))
            assert [theirs[key].cut for key in one.keys] == [None] * len(one.keys)
            two.keys = [key for key in theirs if key.topic == topic]
            assert len(two.keys) == PARTITIONS
            await two.stop_mirroring()
            for partition in range(PARTITIONS):
                await asyncio.to_thread(produce, b.bootstrap, topic, [b"local"], partition=partition)

            assert {str(ours[key].state) for key in one.keys} == {"MIRRORING"}  # as far as it knows
            remembered = [ours[key] for key in one.keys]
            with pytest.raises(MirrorError, match="had no word from the controller"):
                await one.process.store.put(remembered)
            await put_late(b.bootstrap, remembered)
            stored, _ = await two.process.store.load()
            assert {key: stored[key] for key in one.keys} == {key: theirs[key] for key in one.keys}
            back = asyncio.create_task(one.process.registration.keep())
            stopped = {key: theirs[key] for key in one.keys}
            await until(lambda: {key: ours[key] for key in one.keys} == stopped, 15, lambda: str(ours))
            await asyncio.sleep(2)  # now it does what it was about to do
            assert all(max(part.replicas) < 100 for part in b.partitions(topic))
            for partition in range(PARTITIONS):
                logs = await replica_logs(b.bootstrap, topic, partition)
                ends = [max(batch.next_offset for batch in headers(b"".join(log))) for log in logs.values()]
                assert min(ends) == 7  # five of A's, the stop's reset record, and the local one
            back.cancel()

    asyncio.run(body())


def test_topics_known_only_to_a_dead_process_are_taken_over(
    pair: RunningTopology, topic: str, produce: Callable[..., None]
) -> None:
    a = pair.clusters["A"]
    a.create_topic(topic, partitions=PARTITIONS, replication=3)

    async def body() -> None:
        async with running(pair) as one, running(pair, broker_id=101) as two:
            for mirror in (one, two):
                live = mirror.process.peers.live
                await until(lambda live=live: live() == {100, 101}, 10, lambda live=live: str(live()))
                await mirror.process.lifecycle.until_not_fenced()
            theirs = two.process.lifecycle.records
            theirs.clear()  # as on a destination that has never had a mirror: nothing names the other process
            (found,) = [t for t in await one.process.mirrors.discover(one.name) if t.name == topic]
            for _ in range(5):  # a process whose heartbeats are late is fenced, and gets no partition
                await until(lambda: one.process.peers.live() == {100, 101}, 10, lambda: str(one.process.peers.live()))
                if await one.process.mirrors.add_topic(one.name, found):
                    break
            keys = [key for key in one.process.lifecycle.records if key.topic == topic]
            assert keys
            one.process._tasks[0].cancel()  # no heartbeat more
            await until(
                lambda: all(key in theirs and theirs[key].owner == 101 for key in keys), 40, lambda: str(theirs)
            )
            two.keys = keys
            await two.until_state(S.MIRRORING)
            for key in keys:
                await asyncio.to_thread(produce, a.bootstrap, topic, [b"v"], partition=key.partition)
            for n in range(len(keys)):
                await two.until_at(1, n)
            await two.stop_mirroring()

    asyncio.run(body())
