"""One Kafka request to one node, with a time limit: no client library chooses another broker or retries.

Used for questions about one node: does it answer through this proxy; which cluster ID does it report; does it lead
the quorum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.describe_quorum.v0.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v0.request import PartitionData as QuorumPartition
from kio.schema.describe_quorum.v0.request import TopicData as QuorumTopic
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32

from harness.wire.client import WireClient, WireError


def request(host: str, port: int, message: Any, *, timeout_s: float) -> Any:
    """Send one request over a new connection and return the answer, both as kio entities.

    Raises: WireError when no whole answer came in time.
    """
    with WireClient(host, port, timeout_s=timeout_s, client_id="shatterproof-probe") as client:
        return client.call(message)


def answers(host: str, port: int, *, timeout_s: float) -> bool:
    """Whether an ApiVersions request gets its answer within the time."""
    try:
        request(host, port, ApiVersionsRequest(), timeout_s=timeout_s)
    except WireError:
        return False
    return True


def metadata(host: str, port: int, *, topics: tuple[str, ...] | None = (), timeout_s: float) -> MetadataResponse:
    """One broker's metadata of its cluster. topics: None for all, () for none."""
    wanted = None
    if topics is not None:
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(topic)) for topic in topics)
    message = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    response: MetadataResponse = request(host, port, message, timeout_s=timeout_s)
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
    response = request(host, port, message, timeout_s=timeout_s)
    if response.error_code is not ErrorCode.none:
        return None
    partition = response.topics[0].partitions[0]
    if partition.error_code is not ErrorCode.none or partition.leader_id < 0:
        return None
    return QuorumView(int(partition.leader_id), int(partition.leader_epoch))
