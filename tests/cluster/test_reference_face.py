"""The requests of Cluster Mirroring at processes of the reference mirror, on real clusters, from create to delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from confluent_kafka import Producer

from harness.clusters.pair import RunningTopology
from harness.wire import cluster_mirror_api as api
from mirrors.reference.server.model import PartitionKey
from mirrors.reference.server.peers import owner
from tests.cluster.mirroring import values, write
from tests.cluster.reference_face import Face, common_end, epoch_end, face, state, topic_meta
from tests.cluster.reference_run import identical

PARTITIONS = 6
OPEN_MS = 600_000  # transaction timeout, long enough for a busy machine

MIRRORING, PAUSED, STOPPED = state("MIRRORING"), state("PAUSED"), state("STOPPED")
STOP, PAUSE, RESUME = api.StopMirrorTopicsRequest, api.PauseMirrorTopicsRequest, api.ResumeMirrorTopicsRequest


class OpenTransaction:
    """One transaction over all partitions of a topic, open until `abort`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"x-{topic}", "transaction.timeout.ms": OPEN_MS}
        )
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(topic, b"open", partition=partition)
        assert self._producer.flush(30) == 0

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def fill(bootstrap: str, topic: str, tag: str) -> None:
    """Write ten records to each partition."""
    for partition in range(PARTITIONS):
        write(bootstrap, topic, [f"{tag}/{partition}/{n}" for n in range(10)], partition=partition)


def caught_up(offset: int) -> Callable[[api.DescribedPartition], bool]:
    return lambda row: MIRRORING(row) and (row.source_offset, row.destination_offset, row.lag) == (offset, offset, 0)


def shared_name(topic: str) -> str:
    """The name of a mirror of which either of two processes gets partitions: their hash depends on it."""
    names = (f"m{n}-{topic}" for n in range(100))
    return next(
        name
        for name in names
        if {owner(PartitionKey(name, topic, p), (100, 101)) for p in range(PARTITIONS)} == {100, 101}
    )


async def cuts(pair: RunningTopology, served: Face, topic: str, source: str, destination: str) -> dict[int, int]:
    """Partition → where its last mirrored epoch ends on the destination. The topic's id on either cluster will do."""
    source_id = pair.clusters[source].cluster_id
    found = []
    for name in (source, destination):
        meta = await topic_meta(pair.clusters[name].bootstrap, topic)
        assert meta is not None
        found.append(await served.last_epochs(meta.topic_id, range(PARTITIONS), source_id))
    assert found[0] == found[1]
    assert min(found[0].values()) >= 0
    there = pair.clusters[destination].bootstrap
    return {p: await epoch_end(there, topic, p, epoch) for p, epoch in found[0].items()}


async def truth(pair: RunningTopology, topic: str) -> dict[int, int]:
    """Partition → the offset up to which all logs of both clusters agree, once both have gone on on their own."""
    for cluster in pair.clusters.values():
        await asyncio.to_thread(fill, cluster.bootstrap, topic, f"only {cluster.name}")
    return {p: await common_end(pair, topic, p) for p in range(PARTITIONS)}


async def stopped(served: Face, mirror: str, topic: str) -> None:
    assert await served.change(STOP, mirror, topic) == 0
    rows = await served.until(mirror, topic, PARTITIONS, STOPPED)
    assert {(row.source_offset, row.destination_offset, row.lag) for row in rows.values()} == {(-1, -1, -1)}


async def without_a_mirror(served: Face, mirror: str, topic: str) -> None:
    codes = [await served.change(kind, mirror, topic) for kind in (STOP, PAUSE, RESUME)]
    codes += [await served.start(mirror, topic), await served.delete(mirror), await served.described(mirror)]
    assert codes == [137] * 6


async def created_and_started(served: Face, mirror: str, topic: str) -> None:
    """At one process or the other."""
    assert (await served.create(mirror), await served.create(mirror, at=1)) == (0, 136)
    assert mirror in await served.mirrors(at=1)
    assert [await served.change(kind, mirror, topic, at=1) for kind in (STOP, PAUSE, RESUME)] == [139] * 3
    assert await served.start(mirror, f"{topic}-other", at=1) == 3
    assert await served.start(mirror, topic, at=1) == 0
    await served.until(mirror, topic, PARTITIONS, caught_up(11))


async def refused_while_mirroring(served: Face, mirror: str, topic: str) -> None:
    assert await served.change(RESUME, mirror, topic) == 141
    assert await served.start(mirror, topic) == 145
    assert await served.delete(mirror) == 143
    second = f"{mirror}-second"
    assert await served.create(second, at=1) == 0
    assert await served.start(second, topic) == 138
    assert await served.delete(second) == 0
    assert {second} & {*await served.mirrors(), *await served.mirrors(at=1)} == set()


async def paused_and_resumed(served: Face, pair: RunningTopology, mirror: str, topic: str) -> None:
    """Nothing is mirrored meanwhile."""
    assert await served.change(PAUSE, mirror, topic, at=1) == 0
    await served.until(mirror, topic, PARTITIONS, PAUSED)
    assert await served.change(PAUSE, mirror, topic) == 140
    assert await served.start(mirror, topic) == 145
    await asyncio.to_thread(fill, pair.clusters["A"].bootstrap, topic, "paused")
    await asyncio.sleep(1)
    assert [await common_end(pair, topic, p) for p in range(PARTITIONS)] == [11] * PARTITIONS
    assert await served.change(RESUME, mirror, topic) == 0
    await served.until(mirror, topic, PARTITIONS, caught_up(21))


def test_a_mirror_from_its_creation_to_its_deletion_over_two_processes(pair: RunningTopology, topic: str) -> None:
    """A transaction that is open at the stop ends on B with an ABORT of the mirror's own, after the cut."""
    a, mirror = pair.clusters["A"], shared_name(topic)
    a.create_topic(topic, partitions=PARTITIONS, replication=3)
    fill(a.bootstrap, topic, "first")
    still_open = OpenTransaction(a.bootstrap, topic)

    async def body() -> None:
        async with face(pair, processes=2) as served:
            await without_a_mirror(served, mirror, topic)
            await created_and_started(served, mirror, topic)
            await refused_while_mirroring(served, mirror, topic)
            await paused_and_resumed(served, pair, mirror, topic)
            await stopped(served, mirror, topic)
            assert await served.change(STOP, mirror, topic) == 145
            assert await served.change(RESUME, mirror, topic) == 145
            found = await cuts(pair, served, topic, "A", "B")
            assert found == await truth(pair, topic)
            assert set(found.values()) == {21}
            await asyncio.to_thread(still_open.abort)
            assert await served.start(mirror, topic) == 0  # what B wrote on its own is cut
            await served.until(mirror, topic, PARTITIONS, caught_up(32))
            await identical(pair, topic, range(PARTITIONS))
            await stopped(served, mirror, topic)
            assert await served.delete(mirror, at=1) == 0
            assert mirror not in await served.mirrors()
            await without_a_mirror(served, mirror, topic)

    asyncio.run(body())


def test_a_failback_by_processes_on_the_old_source(pair: RunningTopology, topic: str) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=PARTITIONS, replication=3)
    fill(a.bootstrap, topic, "first")
    there, back = f"there-{topic}", f"back-{topic}"

    async def body() -> None:
        async with face(pair) as on_b, face(pair, "B", "A") as on_a:
            assert (await on_b.create(there), await on_b.start(there, topic)) == (0, 0)
            await on_b.until(there, topic, PARTITIONS, caught_up(10))
            await stopped(on_b, there, topic)
            assert set((await cuts(pair, on_b, topic, "A", "B")).values()) == {10}
            await asyncio.to_thread(fill, a.bootstrap, topic, "discarded")
            await asyncio.to_thread(fill, b.bootstrap, topic, "kept")
            assert (await on_a.create(back), await on_a.start(back, topic)) == (0, 0)
            await on_a.until(back, topic, PARTITIONS, MIRRORING)
            await identical(pair, topic, range(PARTITIONS))
            for p in range(PARTITIONS):
                there_now = await asyncio.to_thread(values, a.bootstrap, topic, partition=p)
                assert there_now == [f"{tag}/{p}/{n}" for tag in ("first", "kept") for n in range(10)]
            await stopped(on_a, back, topic)
            found = await cuts(pair, on_a, topic, "B", "A")
            assert found == await truth(pair, topic)
            assert (await on_a.delete(back), await on_b.delete(there)) == (0, 0)

    asyncio.run(body())
