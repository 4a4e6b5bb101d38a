"""The wire client against sockets that answer correctly, wrongly, slowly or not at all."""

from __future__ import annotations

import contextlib
import datetime
import io
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as asks
from kio.schema.list_offsets.v7 import response as answers
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.wire.client import WireClient, WireError
from harness.wire.metadata import PartitionMeta, by_leader
from harness.wire.view import ClusterView

REQUEST = asks.ListOffsetsRequest(
    replica_id=BrokerId(-1),
    isolation_level=i8(0),
    topics=(
        asks.ListOffsetsTopic(
            name=TopicName("t"), partitions=(asks.ListOffsetsPartition(partition_index=i32(0), timestamp=i64(-1)),)
        ),
    ),
)


def answer(correlation: int, offset: int) -> bytes:
    part = answers.ListOffsetsPartitionResponse(partition_index=i32(0), error_code=ErrorCode.none, offset=i64(offset))
    body = answers.ListOffsetsResponse(
        throttle_time=i32Timedelta.parse(datetime.timedelta()),
        topics=(answers.ListOffsetsTopicResponse(name=TopicName("t"), partitions=(part,)),),
    )
    out = io.BytesIO()
    header = answers.ListOffsetsResponse.__header_schema__
    entity_writer(header)(out, header(correlation_id=i32(correlation)))
    entity_writer(answers.ListOffsetsResponse)(out, body)
    return struct.pack(">i", len(out.getvalue())) + out.getvalue()


@contextlib.contextmanager
def broker(serve: Callable[[socket.socket, int], None]) -> Iterator[int]:
    """A listener; `serve` gets each request's connection and correlation id. Yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def connection(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while True:
                size = peer.recv(4, socket.MSG_WAITALL)
                if len(size) < 4:
                    return
                request = peer.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                serve(peer, struct.unpack(">i", request[4:8])[0])

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=connection, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def test_one_connection_serves_many_requests() -> None:
    ports: set[int] = set()

    def serve(peer: socket.socket, correlation: int) -> None:
        ports.add(peer.getpeername()[1])
        peer.sendall(answer(correlation, 100 + correlation))

    with broker(serve) as port, WireClient("127.0.0.1", port) as client:
        offsets = [client.call(REQUEST).topics[0].partitions[0].offset for _ in range(3)]
    assert offsets == [101, 102, 103]
    assert len(ports) == 1


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "one byte at a time"])
def test_a_broker_that_does_not_finish_is_given_up_in_time(drip: bool) -> None:
    def serve(peer: socket.socket, correlation: int) -> None:
        for byte in answer(correlation, 1) if drip else b"":
            time.sleep(0.1)
            peer.sendall(bytes([byte]))
        time.sleep(2)

    with broker(serve) as port, WireClient("127.0.0.1", port, timeout_s=0.4) as client:
        began = time.monotonic()
        with pytest.raises(WireError, match="did not answer ListOffsetsRequest"):
            client.call(REQUEST)
        assert time.monotonic() - began < 1.0


def test_the_connection_is_opened_again_after_a_failure() -> None:
    calls = []

    def serve(peer: socket.socket, correlation: int) -> None:
        calls.append(correlation)
        if len(calls) == 1:
            peer.shutdown(socket.SHUT_RDWR)
        else:
            peer.sendall(answer(correlation, 7))

    with broker(serve) as port, WireClient("127.0.0.1", port) as client:
        with pytest.raises(WireError, match="closed the connection"):
            client.call(REQUEST)
        assert client.call(REQUEST).topics[0].partitions[0].offset == 7


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (lambda c: answer(c + 1, 1), "answered another request"),
        (lambda c: b"HTTP/1.1 400 Bad Request\r\n", "not a Kafka broker"),
        (lambda c: struct.pack(">i", 6) + struct.pack(">i", c) + b"\x00\xff", "did not answer"),
    ],
    ids=["correlation", "http", "garbage"],
)
def test_wrong_answers_are_errors(reply: Callable[[int], bytes], words: str) -> None:
    with (
        broker(lambda peer, c: peer.sendall(reply(c))) as port,
        WireClient("127.0.0.1", port) as client,
        pytest.raises(WireError, match=words),
    ):
        client.call(REQUEST)


def test_nothing_listens() -> None:
    with broker(lambda *_: None) as port:
        pass
    with pytest.raises(WireError, match=f"127.0.0.1:{port} did not answer"):
        WireClient("127.0.0.1", port).call(REQUEST)
    with pytest.raises(WireError, match="no broker answered"):
        ClusterView(f"127.0.0.1:{port},127.0.0.1:{port}").metadata(["t"])


def test_bootstrap_must_be_host_and_port() -> None:
    with pytest.raises(WireError, match="'nonsense' is not HOST:PORT"):
        ClusterView("127.0.0.1:9092,nonsense")


def test_partitions_without_a_leader_are_not_requested() -> None:
    def view(partition: int, leader: int | None) -> PartitionMeta:
        return PartitionMeta(topic="t", partition=partition, leader=leader, leader_epoch=5, replicas=(1, 2), isr=(1,))

    assert by_leader([view(0, 1), view(1, None), view(2, 2), view(3, 1)]) == {
        1: {("t", 0): 5, ("t", 3): 5},
        2: {("t", 2): 5},
    }
