"""A cluster's metadata as one broker answers it: brokers, topics, and each partition's leader and replicas."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic

from harness.wire.addresses import Address

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionMeta:
    """One partition. leader: None when there is none."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicMeta:
    """One topic: its ID and its partitions by index."""

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: Mapping[int, PartitionMeta]


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """One broker's answer. at: monotonic seconds when it came."""

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicMeta]
    at: float = field(default_factory=time.monotonic)

    def partition(self, topic: str, partition: int) -> PartitionMeta | None:
        """One partition, None when it does not exist."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def partitions(self) -> Iterator[PartitionMeta]:
        """The partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions.values()


def read_metadata(answer: MetadataResponse, *, at: float | None = None) -> Metadata:
    """A broker's answer, without the topics that it reports an error for."""
    return Metadata(
        cluster_id=str(answer.cluster_id or ""),
        brokers={int(b.node_id): Address(str(b.host), int(b.port)) for b in answer.brokers},
        topics={
            str(topic.name): _topic(topic)
            for topic in answer.topics
            if topic.error_code is ErrorCode.none and topic.name is not None
        },
        at=time.monotonic() if at is None else at,
    )


def by_leader(partitions: Iterable[PartitionMeta]) -> dict[int, dict[TopicPartition, int]]:
    """Leader → its partitions with their leader epochs; partitions without leader are left out."""
    leaders: dict[int, dict[TopicPartition, int]] = {}
    for p in partitions:
        if p.leader is not None:
            leaders.setdefault(p.leader, {})[(p.topic, p.partition)] = p.leader_epoch
    return leaders


def _topic(topic: MetadataResponseTopic) -> TopicMeta:
    name = str(topic.name)
    return TopicMeta(
        name=name,
        topic_id=topic.topic_id or uuid.UUID(int=0),
        internal=bool(topic.is_internal),
        partitions={
            int(part.partition_index): PartitionMeta(
                topic=name,
                partition=int(part.partition_index),
                leader=int(part.leader_id) if part.leader_id >= 0 else None,
                leader_epoch=int(part.leader_epoch),
                replicas=tuple(int(n) for n in part.replica_nodes),
                isr=tuple(int(n) for n in part.isr_nodes),
            )
            for part in topic.partitions
        },
    )
