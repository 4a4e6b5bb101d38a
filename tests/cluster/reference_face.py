"""Processes of the reference mirror that serve the requests of Cluster Mirroring, and a client of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from kio.schema.offset_for_leader_epoch.v4 import request as epoch_ends
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from harness.clusters.pair import RunningTopology
from harness.wire import cluster_mirror_api as api
from harness.wire.addresses import Address
from harness.wire.aio import Connection
from harness.wire.batch_headers import headers
from harness.wire.cluster import Cluster
from harness.wire.metadata import TopicMeta
from mirrors.reference.server.mirroring_api.outcomes import NO_ANSWER
from mirrors.reference.server.process import MirrorProcess
from mirrors.reference.server.settings import settings_from
from tests.cluster.reference_run import replica_logs, settings_values

DESIGN = {"leader_epoch": "preserve", "epoch_bump": "proactive"}
FINISH_S = 1.0  # how long a stop waits for a transaction that is open on the source


class Face:
    """The processes of one destination, without any mirror at first; asked at the first one unless told otherwise."""

    def __init__(self, processes: Sequence[MirrorProcess], source: RunningTopology, letter: str) -> None:
        self.processes = processes
        self._source = source.clusters[letter]
        self._connections = [
            Connection(Address(process.settings.listeners[0].host, process.settings.listeners[0].port), timeout_s=30)
            for process in processes
        ]

    async def ask(self, body: Any, at: int = 0) -> Any:
        """The answer of one process."""
        return await self._connections[at].call(body)

    async def _answered(self, body: Any, at: int, code_of: Callable[[Any], int], *, timeout_s: float = 60) -> int:
        """The error code, asked again while it is REQUEST_TIMED_OUT: on a busy machine a process waits for word from
        the controller before it changes anything."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while (code := code_of(await self.ask(body, at))) == NO_ANSWER:
            assert asyncio.get_running_loop().time() < deadline, f"waited {timeout_s:g} s for an answer to {body}"
            await asyncio.sleep(0.2)
        return code

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def create(self, mirror: str, at: int = 0) -> int:
        """The error code."""
        given = {"bootstrap.servers": self._source.link_bootstrap, "mirror.source.cluster.id": self._source.cluster_id}
        config = tuple(api.ClusterMirrorConfig(name=name, value=value) for name, value in given.items())
        request = api.CreateClusterMirrorRequest(mirror_name=mirror, config=config)
        return await self._answered(request, at, lambda answer: int(answer.error_code))

    async def start(self, mirror: str, topic: str, at: int = 0) -> int:
        """The topic's error code. With the source's id and number of partitions, where it has the topic."""
        meta = await topic_meta(self._source.bootstrap, topic)
        started = api.StartedTopic(
            topic_id=meta and meta.topic_id, topic_name=topic, num_partitions=len(meta.partitions) if meta else 0
        )
        return await self._answered(api.StartMirrorTopicsRequest(mirror_name=mirror, topics=(started,)), at, topic_code)

    async def change(self, kind: Callable[..., Any], mirror: str, topic: str, at: int = 0) -> int:
        """Stop, pause or resume a topic; returns its error code."""
        return await self._answered(
            kind(mirror_name=mirror, topics=(api.NamedTopic(topic_name=topic),)), at, topic_code
        )

    async def delete(self, mirror: str, at: int = 0) -> int:
        """The error code."""
        return int((await self.ask(api.DeleteClusterMirrorRequest(mirror_name=mirror), at)).error_code)

    async def mirrors(self, at: int = 0) -> list[str]:
        """Their names."""
        return [one.mirror_name for one in (await self.ask(api.ListClusterMirrorsRequest(), at)).mirrors]

    async def described(self, mirror: str) -> int:
        """The error code of the mirror's description at the first process."""
        answer = await self.ask(api.DescribeClusterMirrorsRequest(mirror_names=(mirror,)))
        return int(answer.mirrors[0].error_code)

    async def rows(self, mirror: str, topic: str) -> dict[int, api.DescribedPartition]:
        """Partition → its row: every process describes the partitions that it has, and no other one does."""
        found: dict[int, api.DescribedPartition] = {}
        for at in range(len(self.processes)):
            answer = await self.ask(api.DescribeClusterMirrorsRequest(mirror_names=(mirror,)), at)
            for described in answer.mirrors[0].topics:
                if described.topic_name == topic:
                    for row in described.partitions:
                        assert row.partition_index not in found, f"two processes describe {topic}-{row.partition_index}"
                        found[row.partition_index] = row
        return found

    async def until(
        self,
        mirror: str,
        topic: str,
        partitions: int,
        holds: Callable[[api.DescribedPartition], object],
        *,
        timeout_s: float = 90,
    ) -> dict[int, api.DescribedPartition]:
        """Wait until the rows of all partitions are as wanted; returns them."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            rows = await self.rows(mirror, topic)
            if len(rows) == partitions and all(holds(row) for row in rows.values()):
                return rows
            assert asyncio.get_running_loop().time() < deadline, f"waited {timeout_s:g} s; the rows are {rows}"
            await asyncio.sleep(0.2)

    async def last_epochs(self, topic_id: Any, partitions: Iterable[int], cluster_id: str) -> dict[int, int]:
        """Partition → its last mirrored epoch: the highest that any process answers."""
        lookup = api.EpochLookup(topic_id=topic_id, partitions=tuple(partitions))
        asked = api.DescribeClusterMirrorsRequest(
            mirror_names=(), cluster_id=cluster_id, last_mirror_epoch_lookups=(lookup,)
        )
        found: dict[int, int] = {}
        for at in range(len(self.processes)):
            for result in (await self.ask(asked, at)).lookup_results:
                for part in result.partitions:
                    known = found.get(part.partition_index, -1)
                    found[part.partition_index] = max(known, part.last_mirror_epoch)
        return found


def topic_code(answer: Any) -> int:
    """The error code of a request about one topic, or of the whole request."""
    if answer.error_code:
        return int(answer.error_code)
    (result,) = answer.topics
    return int(result.error_code)


def state(*names: str) -> Callable[[api.DescribedPartition], bool]:
    """Whether a row has one of these states."""
    return lambda row: row.state_value in names


@asynccontextmanager
async def face(
    pair: RunningTopology, source: str = "A", destination: str = "B", *, processes: int = 1
) -> AsyncIterator[Face]:
    """Processes that have joined the destination, and know each other. The test has to stop what it mirrors."""
    async with AsyncExitStack() as stack:
        made = []
        for number in range(processes):
            more = {"mirrors": [], "mirroring_api": True, "design": DESIGN, "finish_s": FINISH_S}
            values = settings_values(pair, source, destination, broker_id=100 + number, **more)
            process = MirrorProcess(settings_from(values))
            stack.push_async_callback(process.stop)
            await process.start()
            made.append(process)
        everyone = {process.hub.me for process in made}
        deadline = asyncio.get_running_loop().time() + 20
        while not all(process.peers.live() == everyone for process in made):
            assert asyncio.get_running_loop().time() < deadline, [process.peers.live() for process in made]
            await asyncio.sleep(0.1)
        served = Face(made, pair, source)
        stack.callback(served.close)
        yield served


async def topic_meta(bootstrap: str, topic: str) -> TopicMeta | None:
    """A topic as a cluster's brokers describe it; None when there is none."""
    cluster = Cluster(bootstrap)
    try:
        return (await cluster.metadata((topic,))).topics.get(topic)
    finally:
        cluster.close()


async def epoch_end(bootstrap: str, topic: str, partition: int, epoch: int) -> int:
    """Where an epoch ends in the leader's log."""
    cluster = Cluster(bootstrap)
    try:
        leader = (await cluster.metadata((topic,))).topics[topic].partitions[partition].leader
        assert leader is not None
        asked = epoch_ends.OffsetForLeaderPartition(partition=i32(partition), leader_epoch=i32(epoch))
        answer = await cluster.call_broker(
            leader,
            epoch_ends.OffsetForLeaderEpochRequest(
                replica_id=BrokerId(-1),
                topics=(epoch_ends.OffsetForLeaderTopic(topic=TopicName(topic), partitions=(asked,)),),
            ),
        )
        return int(answer.topics[0].partitions[0].end_offset)
    finally:
        cluster.close()


async def common_end(pair: RunningTopology, topic: str, partition: int) -> int:
    """The offset up to which the logs of all replicas of both clusters have the same batches, epochs left out."""
    logs = [
        log
        for cluster in pair.clusters.values()
        for log in (await replica_logs(cluster.bootstrap, topic, partition)).values()
    ]
    end = 0
    for batches in zip(*logs, strict=False):
        if len(set(batches)) > 1:
            break
        end = next(headers(batches[0])).next_offset
    return end
