"""One Kafka request to one node, with a time limit: no client library chooses another broker or retries.

Used for questions about one node: does it answer through this proxy; which cluster ID does it report; does it lead
the quorum.
"""

from __future__ import annotations

import io
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.describe_quorum.v0.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v0.request import PartitionData as QuorumPartition
from kio.schema.describe_quorum.v0.request import TopicData as QuorumTopic
from kio.schema.describe_quorum.v0.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from harness.core.errors import ClusterError

_CLIENT_ID = "shatterproof-probe"


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("closed before the answer was complete")
        data += part
    return bytes(data)


def request(host: str, port: int, message: Any, answer: type[Any], *, timeout_s: float) -> Any:
    """Send one request over a new connection and return the answer, both as kio entities.

    Raises: OSError (refused, reset, TimeoutError), ClusterError (an answer that cannot be read).
    """
    deadline = time.monotonic() + timeout_s
    header_type = message.__header_schema__
    header = header_type(
        request_api_key=message.__api_key__,
        request_api_version=message.__version__,
        correlation_id=i32(1),
        client_id=_CLIENT_ID,
    )
    body = io.BytesIO()
    entity_writer(header_type)(body, header)
    entity_writer(type(message))(body, message)
    payload = body.getvalue()
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        connection.sendall(struct.pack(">i", len(payload)) + payload)
        (length,) = struct.unpack(">i", _receive(connection, 4, deadline))
        data = _receive(connection, length, deadline)
    try:
        _, used = entity_reader(answer.__header_schema__)(data, 0)
        entity, _ = entity_reader(answer)(data, used)
    except Exception as error:
        raise ClusterError(f"{host}:{port} sent an answer that is not a {answer.__name__}: {error}") from error
    return entity


def answers(host: str, port: int, *, timeout_s: float) -> bool:
    """Whether an ApiVersions request gets its answer within the time."""
    try:
        request(host, port, ApiVersionsRequest(), ApiVersionsResponse, timeout_s=timeout_s)
    except (OSError, ClusterError):
        return False
    return True


def metadata(host: str, port: int, *, topics: tuple[str, ...] | None = (), timeout_s: float) -> MetadataResponse:
    """One broker's metadata of its cluster. topics: None for all, () for none."""
    wanted = None
    if topics is not None:
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(topic)) for topic in topics)
    message = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    response: MetadataResponse = request(host, port, message, MetadataResponse, timeout_s=timeout_s)
    return response


@dataclass(frozen=True)
class QuorumView:
    """A controller's view of the metadata quorum: only its leader answers."""

    leader: int
    epoch: int


def quorum(host: str, port: int, *, timeout_s: float) -> QuorumView | None:
    """The quorum as this controller leads it; None when it answers that it is not the leader."""
    message = DescribeQuorumRequest(
        topics=(
            QuorumTopic(
                topic_name=TopicName("__cluster_metadata"), partitions=(QuorumPartition(partition_index=i32(0)),)
            ),
        )
    )
    response = request(host, port, message, DescribeQuorumResponse, timeout_s=timeout_s)
    if response.error_code is not ErrorCode.none:
        return None
    partition = response.topics[0].partitions[0]
    if partition.error_code is not ErrorCode.none or partition.leader_id < 0:
        return None
    return QuorumView(int(partition.leader_id), int(partition.leader_epoch))
