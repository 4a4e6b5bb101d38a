"""The asyncio client and server against each other and against sockets that misbehave."""

from __future__ import annotations

import asyncio
import datetime
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as asks
from kio.schema.list_offsets.v7 import response as answers
from kio.schema.metadata.v12 import response as metadata_answers
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.wire import frames
from harness.wire.addresses import Address, parse_addresses
from harness.wire.aio import Connection
from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from harness.wire.server import Request, WireServer

LIST_OFFSETS = 2
ZERO = i32Timedelta.parse(datetime.timedelta())


def question(partition: int) -> asks.ListOffsetsRequest:
    part = asks.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(-1))
    topic = asks.ListOffsetsTopic(name=TopicName("t"), partitions=(part,))
    return asks.ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(topic,))


async def echo(request: Request) -> Any:
    """Answers each partition with its own number as offset."""
    return answers.ListOffsetsResponse(
        throttle_time=ZERO,
        topics=tuple(
            answers.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    answers.ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, error_code=ErrorCode.none, offset=i64(p.partition_index)
                    )
                    for p in topic.partitions
                ),
            )
            for topic in request.decode().topics
        ),
    )


def run(
    body: Callable[[Connection, WireServer], Awaitable[None]],
    handler: Callable[[Request], Awaitable[Any]] = echo,
    timeout_s: float = 2,
) -> None:
    async def main() -> None:
        server = WireServer({LIST_OFFSETS: ((1, 9), handler)})
        port = await server.listen("CLIENTS", "127.0.0.1", 0)
        connection = Connection(Address("127.0.0.1", port), timeout_s=timeout_s)
        try:
            await body(connection, server)
        finally:
            connection.close()
            await server.close()

    asyncio.run(main())


def offset(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].offset)


def test_the_same_metadata_again_is_the_same_object() -> None:
    hosts = ["one", "one", "two", "one"]
    controllers = [3, 1, 2, 1]  # any broker: it does not matter

    async def metadata(_: Request) -> Any:
        broker = metadata_answers.MetadataResponseBroker(
            node_id=BrokerId(1), host=hosts.pop(0), port=i32(9092), rack=None
        )
        return metadata_answers.MetadataResponse(
            throttle_time=ZERO, brokers=(broker,), cluster_id="c", controller_id=BrokerId(controllers.pop(0)), topics=()
        )

    async def main() -> None:
        server = WireServer({frames.METADATA: ((12, 12), metadata)})
        port = await server.listen("CLIENTS", "127.0.0.1", 0)
        cluster = Cluster(f"127.0.0.1:{port}")
        try:
            looks = [await cluster.metadata() for _ in range(4)]
        finally:
            cluster.close()
            await server.close()
        assert [look.brokers[1].host for look in looks] == ["one", "one", "two", "one"]
        assert [looks[0].topics is look.topics for look in looks] == [True, True, False, False]
        assert sorted(look.at for look in looks) == [look.at for look in looks]
        assert len({look.at for look in looks}) == 4

    asyncio.run(main())


def test_calls_are_pipelined_and_each_gets_its_own_answer() -> None:
    async def body(connection: Connection, _: WireServer) -> None:
        found = await asyncio.gather(*(connection.call(question(n)) for n in range(50)))
        assert [offset(answer) for answer in found] == list(range(50))

    run(body)


def test_versions_are_asked_once_and_checked() -> None:
    async def body(connection: Connection, _: WireServer) -> None:
        assert await connection.versions() == {LIST_OFFSETS: (1, 9), frames.API_VERSIONS: (0, 4)}
        assert await connection.version(LIST_OFFSETS) == 9
        with pytest.raises(WireError, match=r"metadata version 12: it does not have this API"):
            await connection.exchange(3, 12, b"")
        with pytest.raises(WireError, match=r"no version of metadata"):
            await connection.version(3)

    run(body)


def test_no_answer_in_time_closes_the_connection_and_the_next_call_opens_another() -> None:
    slow = [True]

    async def sometimes(request: Request) -> Any:
        if slow[0]:
            await asyncio.sleep(30)
        return await echo(request)

    async def body(connection: Connection, _: WireServer) -> None:
        await connection.versions()
        waiting = asyncio.create_task(connection.call(question(1), timeout_s=5))
        await asyncio.sleep(0.05)
        with pytest.raises(WireError, match=r"did not answer list_offsets: nothing within 0.2 s"):
            await connection.call(question(2), timeout_s=0.2)
        with pytest.raises(WireError):  # it waited for the other one
            await waiting
        slow[0] = False
        assert offset(await connection.call(question(3))) == 3

    run(body, sometimes)


def test_refused_connections_and_strangers_are_one_sentence() -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> None:
        closed = Connection(Address("127.0.0.1", 1), timeout_s=1)
        with pytest.raises(WireError, match=r"127.0.0.1:1 did not answer"):
            await closed.call(question(1))
        server = await asyncio.start_server(stranger, "127.0.0.1", 0)
        odd = Connection(Address("127.0.0.1", server.sockets[0].getsockname()[1]), timeout_s=1)
        with pytest.raises(WireError, match="not a Kafka broker"):
            await odd.call(question(1))
        server.close()

    asyncio.run(main())


def test_unknown_requests_close_the_connection_and_new_clients_learn_the_versions() -> None:
    async def body(connection: Connection, _: WireServer) -> None:
        reader, writer = await asyncio.open_connection(connection.address.host, connection.address.port)
        writer.write(frames.frame(struct.pack(">hhi", frames.API_VERSIONS, 99, 7) + b"\x00\x00\x00"))
        size = frames.frame_length(await reader.readexactly(4), "server")
        payload = await reader.readexactly(size)
        correlation, used = frames.response_body_offset(payload, frames.API_VERSIONS, 0)
        answer, _used = frames.decode(frames.response_type(frames.API_VERSIONS, 0), payload, used)
        assert correlation == 7
        assert answer.error_code is ErrorCode.unsupported_version
        assert [int(k.api_key) for k in answer.api_keys] == [LIST_OFFSETS, frames.API_VERSIONS]
        writer.write(frames.frame(struct.pack(">hhi", 999, 0, 8) + b"\x00\x00\x00"))
        assert await reader.read() == b""
        writer.close()

    run(body)


def test_requests_can_be_passed_on_to_another_server() -> None:
    async def body(connection: Connection, _: WireServer) -> None:
        async def ask(request: Request) -> bytes:
            payload, used = await connection.exchange(request.api_key, request.version, request.body)
            return payload[used:]

        front = WireServer({})
        front.pass_on({LIST_OFFSETS: (0, 99)}, ask)
        port = await front.listen("CLIENTS", "127.0.0.1", 0)
        through = Connection(Address("127.0.0.1", port), timeout_s=2)
        assert offset(await through.call(question(42))) == 42
        through.close()
        await front.close()

    run(body)


def test_encoded_parts_are_sent_as_they_are() -> None:
    async def parts(request: Request) -> Any:
        whole = frames.encode(await echo(request))
        return (whole[:3], whole[3:])

    async def body(connection: Connection, _: WireServer) -> None:
        assert offset(await connection.call(question(5))) == 5

    run(body, parts)


def test_addresses() -> None:
    assert parse_addresses("a:1, b:2") == (Address("a", 1), Address("b", 2))
    with pytest.raises(WireError, match="'b' is not HOST:PORT"):
        parse_addresses("a:1,b")
