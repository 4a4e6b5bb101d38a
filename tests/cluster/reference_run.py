"""The reference mirror as a process on this host, between the session's two clusters; and snapshots of raw logs."""

from __future__ import annotations

import asyncio
import datetime
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.clusters.pair import RunningTopology
from harness.wire.batch_headers import headers
from harness.wire.cluster import Cluster
from mirrors.reference.server.model import PartitionKey
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.process import MirrorProcess
from mirrors.reference.server.settings import settings_from
from mirrors.reference.server.states import PartitionState as S

BEFORE_EPOCH, BEHIND_EPOCH = 12, 16  # position of a batch's partition leader epoch, which each cluster sets
PLAIN = {"producer_ids": "verbatim"}  # without the seconds that reserving producer ids takes


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("0.0.0.0", 0))
        port: int = one.getsockname()[1]
        return port


def settings_values(pair: RunningTopology, source: str, destination: str, **more: Any) -> dict[str, Any]:
    """The settings file of a process on this host. Containers reach it by the gateway's address."""
    cluster = pair.clusters[destination]
    brokers = cluster.brokers.values()
    upstream = {
        "CLIENTS": cluster.bootstrap,
        "REPL": ",".join(f"{node.address}:{cluster.repl_port}" for node in brokers),
        "LINK": cluster.link_bootstrap,
    }
    return {
        "broker_id": 100,
        "destination": {
            "letter": destination,
            "bootstrap": upstream["REPL"],
            "controllers": ",".join(f"{node.address}:9095" for node in cluster.controllers.values()),
        },
        "listeners": [
            {"name": name, "host": pair.plan.gateway, "port": free_port(), "upstream": servers}
            for name, servers in upstream.items()
        ],
        "mirrors": [{"name": f"{source}{destination}", "source": pair.clusters[source].link_bootstrap}],
        "state_partitions": 3,
        "admin_port": 0,
        "design": PLAIN,
        **more,
    }


class Killed(BaseException):
    """Replaces SIGKILL where the mirror runs in this process."""


class Mirror:
    """One process under test and its one topic."""

    def __init__(self, pair: RunningTopology, source: str, destination: str, **more: Any) -> None:
        self.values = settings_values(pair, source, destination, **more)
        self.name = self.values["mirrors"][0]["name"]
        self.process = MirrorProcess(settings_from(self.values), kill=self._kill)
        self.keys: list[PartitionKey] = []
        self.killed = asyncio.Event()

    def _kill(self) -> NoReturn:
        for task in self.process._tasks:
            task.cancel()
        self.killed.set()
        raise Killed

    async def begin(self, topic: str) -> None:
        """Mirror a topic, up to state MIRRORING."""
        (found,) = [one for one in await self.process.mirrors.discover(self.name) if one.name == topic]
        self.keys = [PartitionKey(self.name, topic, partition) for partition in sorted(found.partitions)]
        await self.process.mirrors.add_topic(self.name, found)
        await self.until_state(S.MIRRORING)

    def led(self, partition: int = 0) -> LedPartition:
        found = self.process.lifecycle.mirrored(self.keys[partition])
        assert found is not None
        return found.led

    def record(self, partition: int = 0) -> Any:
        return self.process.lifecycle.records[self.keys[partition]]

    async def until_state(self, state: S, timeout_s: float = 90) -> None:
        records = self.process.lifecycle.records
        await until(
            lambda: all(k in records and records[k].state is state for k in self.keys),
            timeout_s,
            lambda: f"{state}: {[str(records[k].state) for k in self.keys if k in records]}",
        )

    async def until_at(self, offset: int, partition: int = 0, timeout_s: float = 90) -> None:
        """Wait until every in-sync follower has everything below this offset."""
        mirrored = self.process.lifecycle.mirrored

        def reached() -> bool:
            found = mirrored(self.keys[partition])
            return found is not None and found.led.leading and found.led.high_watermark == offset

        await until(reached, timeout_s, lambda: f"offset {offset}: {mirrored(self.keys[partition])}")

    async def ask(self, state: S) -> None:
        await self.process.lifecycle.request(self.keys, state, from_states=list(S))

    async def stop_mirroring(self) -> None:
        await self.ask(S.STOPPING)
        await self.until_state(S.STOPPED)


@asynccontextmanager
async def running(
    pair: RunningTopology, source: str = "A", destination: str = "B", **more: Any
) -> AsyncIterator[Mirror]:
    """A started process; it ends as if killed. The test has to stop what it mirrors."""
    mirror = Mirror(pair, source, destination, **more)
    try:
        await mirror.process.start()
        yield mirror
    finally:
        await mirror.process.stop()


@asynccontextmanager
async def again(mirror: Mirror) -> AsyncIterator[Mirror]:
    """The same process once more, as after a crash."""
    second = Mirror.__new__(Mirror)
    second.values, second.name, second.keys = mirror.values, mirror.name, mirror.keys
    second.killed = asyncio.Event()
    second.process = MirrorProcess(settings_from({**mirror.values, "crash_at": ""}), kill=second._kill)
    try:
        await second.process.start()
        yield second
    finally:
        await second.process.stop()


async def until(condition: Callable[[], object], timeout_s: float, what: Callable[[], str]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"waited {timeout_s:g} s for {what()}"
        await asyncio.sleep(0.02)


async def replica_logs(bootstrap: str, topic: str, partition: int = 0) -> dict[int, list[bytes]]:
    """Broker → its batches, byte by byte, without the leader epochs. Followers serve consumers too."""
    cluster = Cluster(bootstrap)
    try:
        meta = (await cluster.metadata((topic,))).topics[topic]
        replicas = [b for b in meta.partitions[partition].replicas if b < 100]
        return {b: await _read(cluster, b, topic, meta.topic_id, partition) for b in replicas}
    finally:
        cluster.close()


async def identical(
    pair: RunningTopology, topic: str, partitions: Sequence[int] = (0,), batches_at_least: int = 1
) -> None:
    """Wait until every replica of both clusters has the same batches (followers serve reads up to their HW)."""
    for partition in partitions:
        for left in range(20, -1, -1):
            found = {
                (name, broker): log
                for name in ("A", "B")
                for broker, log in (await replica_logs(pair.clusters[name].bootstrap, topic, partition)).items()
            }
            longest = max(found.values(), key=len)
            if all(log == longest for log in found.values()):
                break
            assert left, f"{topic}-{partition}: " + str({k: [_shown(b) for b in v[-4:]] for k, v in found.items()})
            await asyncio.sleep(0.25)
        assert len(longest) >= batches_at_least


def _shown(batch: bytes) -> tuple[int, int, int, int]:
    (header,) = headers(batch)
    return header.base_offset, header.next_offset, header.producer_id, header.attributes


async def _read(cluster: Cluster, broker: int, topic: str, topic_id: Any, partition: int) -> list[bytes]:
    asked = list_offsets.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(-2))
    earliest = list_offsets.ListOffsetsRequest(
        replica_id=BrokerId(-2),
        isolation_level=i8(0),
        topics=(list_offsets.ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),),
    )
    position = int((await cluster.call_broker(broker, earliest)).topics[0].partitions[0].offset)
    batches: list[bytes] = []
    while True:
        part = fetch.FetchPartition(
            partition=i32(partition), fetch_offset=i64(position), partition_max_bytes=i32(1 << 22)
        )
        request = fetch.FetchRequest(
            replica_id=BrokerId(-1),
            max_wait=i32Timedelta.parse(datetime.timedelta()),
            min_bytes=i32(0),
            topics=(fetch.FetchTopic(topic_id=topic_id, partitions=(part,)),),
            forgotten_topics_data=(),
        )
        found = (await cluster.call_broker(broker, request)).responses[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            return batches
        data, before = bytes(found.records or b""), position
        for header in headers(data):
            if header.next_offset > position:
                batch = data[header.position : header.end]
                batches.append(batch[:BEFORE_EPOCH] + bytes(4) + batch[BEHIND_EPOCH:])
                position = header.next_offset
        if position == before:
            return batches


def design(**switches: str) -> Mapping[str, str]:
    """Switches over the plain design."""
    return {**PLAIN, **switches}
