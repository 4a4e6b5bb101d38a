"""Requests about topics to the destination's brokers: create, reassign, elect, describe producers.

Each call takes many partitions at once and returns the refusals: partition → sentence.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.alter_partition_reassignments.v0 import request as reassign
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.describe_producers.v0 import request as describe_producers
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta

from harness.wire.cluster import Cluster
from harness.wire.frames import WireError

TopicPartition = tuple[str, int]
Refusals = dict[TopicPartition, str]

_TIMEOUT_S: Final = 10
_TIMEOUT: Final = i32Timedelta.parse(datetime.timedelta(seconds=_TIMEOUT_S))
_PREFERRED: Final = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerInfo:
    """One producer in a replica's producer state. open_since: first offset of its open transaction, -1 for none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    open_since: int


async def create_topic(
    cluster: Cluster, topic: str, assignments: Mapping[int, Sequence[int]], configs: Mapping[str, str]
) -> uuid.UUID | None:
    """Create a topic with these replicas per partition; returns its ID, None when it exists already.

    Raises: WireError when it is refused.
    """
    request = create_topics.CreateTopicsRequest(
        timeout=_TIMEOUT,
        topics=(
            create_topics.CreatableTopic(
                name=TopicName(topic),
                num_partitions=i32(-1),
                replication_factor=i16(-1),
                assignments=tuple(
                    create_topics.CreatableReplicaAssignment(
                        partition_index=i32(p), broker_ids=tuple(BrokerId(b) for b in brokers)
                    )
                    for p, brokers in sorted(assignments.items())
                ),
                configs=tuple(
                    create_topics.CreatableTopicConfig(name=name, value=value)
                    for name, value in sorted(configs.items())
                ),
            ),
        ),
    )
    found = (await cluster.call_any(request, timeout_s=_TIMEOUT_S + 2)).topics[0]
    if found.error_code is ErrorCode.topic_already_exists:
        return None
    if found.error_code is not ErrorCode.none:
        raise WireError(f"topic {topic} cannot be created: {found.error_code.name} {found.error_message or ''}".strip())
    return found.topic_id or uuid.UUID(int=0)


async def add_partitions(cluster: Cluster, topic: str, count: int, assignments: Sequence[Sequence[int]]) -> None:
    """Raise a topic's partitions to `count`; one assignment per new one. Raises WireError when it is refused."""
    request = create_partitions.CreatePartitionsRequest(
        topics=(
            create_partitions.CreatePartitionsTopic(
                name=TopicName(topic),
                count=i32(count),
                assignments=tuple(
                    create_partitions.CreatePartitionsAssignment(broker_ids=tuple(BrokerId(b) for b in brokers))
                    for brokers in assignments
                ),
            ),
        ),
        timeout=_TIMEOUT,
        validate_only=False,
    )
    found = (await cluster.call_any(request, timeout_s=_TIMEOUT_S + 2)).results[0]
    if found.error_code is not ErrorCode.none:
        raise WireError(f"partitions of {topic} cannot be added: {found.error_code.name} {found.error_message or ''}")


async def reassign_replicas(cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int]]) -> Refusals:
    """Give partitions these replicas. Raises WireError when nobody answers."""
    topics: dict[str, list[reassign.ReassignablePartition]] = {}
    for (topic, partition), replicas in wanted.items():
        topics.setdefault(topic, []).append(
            reassign.ReassignablePartition(
                partition_index=i32(partition), replicas=tuple(BrokerId(b) for b in replicas)
            )
        )
    if not topics:
        return {}
    request = reassign.AlterPartitionReassignmentsRequest(
        timeout=_TIMEOUT,
        topics=tuple(
            reassign.ReassignableTopic(name=TopicName(name), partitions=tuple(parts)) for name, parts in topics.items()
        ),
    )
    answer = await cluster.call_any(request, timeout_s=_TIMEOUT_S + 2)
    if answer.error_code is not ErrorCode.none:
        raise WireError(f"reassignments are refused: {answer.error_code.name} {answer.error_message or ''}".strip())
    return {
        (str(topic.name), int(part.partition_index)): f"{part.error_code.name} {part.error_message or ''}".strip()
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code is not ErrorCode.none
    }


async def elect_preferred(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Refusals:
    """Make the first replica of each partition its leader. Raises WireError when nobody answers."""
    topics: dict[str, list[i32]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(i32(partition))
    if not topics:
        return {}
    request = elect.ElectLeadersRequest(
        election_type=i8(_PREFERRED),
        topic_partitions=tuple(
            elect.TopicPartitions(topic=TopicName(name), partitions=tuple(parts)) for name, parts in topics.items()
        ),
        timeout=_TIMEOUT,
    )
    answer = await cluster.call_any(request, timeout_s=_TIMEOUT_S + 2)
    if answer.error_code is not ErrorCode.none:
        raise WireError(f"elections are refused: {answer.error_code.name}")
    return {
        (str(topic.topic), int(part.partition_id)): part.error_code.name
        for topic in answer.replica_election_results
        for part in topic.partition_result
        if part.error_code not in (ErrorCode.none, ErrorCode.election_not_needed)
    }


async def producers(cluster: Cluster, broker: int, partition: TopicPartition) -> tuple[ProducerInfo, ...]:
    """Producers in one replica's producer state; a follower answers as well. Raises WireError."""
    topic, index = partition
    request = describe_producers.DescribeProducersRequest(
        topics=(describe_producers.TopicRequest(name=TopicName(topic), partition_indexes=(i32(index),)),)
    )
    found = (await cluster.call_broker(broker, request)).topics[0].partitions[0]
    if found.error_code is not ErrorCode.none:
        raise WireError(f"producers of {topic}-{index} at broker {broker}: {found.error_code.name}")
    return tuple(
        ProducerInfo(
            producer_id=int(one.producer_id),
            producer_epoch=int(one.producer_epoch),
            coordinator_epoch=int(one.coordinator_epoch),
            open_since=int(one.current_txn_start_offset),
        )
        for one in found.active_producers
    )
