"""The group sync's requests: list groups, read their committed offsets, write them.

A broker lists the groups that it coordinates, so all real brokers are asked. Offsets of share groups are their start
offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from kio.schema.alter_share_group_offsets.v0 import request as alter_share
from kio.schema.describe_share_group_offsets.v0 import request as describe_share
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5 import request as list_groups
from kio.schema.offset_commit.v8 import request as offset_commit
from kio.schema.offset_fetch.v8 import request as offset_fetch
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from mirrors.reference.server.settings import FIRST_MIRROR_ID

T = TypeVar("T")
TopicPartition = tuple[str, int]

Standing = dict[str, dict[TopicPartition, "Committed"]]
"""Group → partition → committed offset."""

NO_EPOCH: Final = -1
_NO_MEMBER: Final = i32(-1)
_SHARE_TYPE: Final = "share"


class GroupKind(StrEnum):
    """What a group's offset means."""

    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group and the broker that coordinates it. state: as the broker names it, e.g. Empty or Stable."""

    name: str
    kind: GroupKind
    state: str
    coordinator: int

    @property
    def active(self) -> bool:
        """Whether it has members."""
        return self.state not in ("Empty", "Dead")


@dataclass(frozen=True, kw_only=True)
class Committed:
    """One offset of one group."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """By name. silent: brokers that did not answer; their groups are missing."""

    found: Mapping[str, Group]
    silent: frozenset[int]


async def groups_of(cluster: Cluster) -> Groups:
    """All groups of a cluster's real brokers. Raises WireError when nobody answers."""
    brokers = sorted(b for b in (await cluster.metadata(())).brokers if b < FIRST_MIRROR_ID)
    answers = await asyncio.gather(*(_listed(cluster, broker) for broker in brokers))
    found = {group.name: group for answer in answers for group in answer or ()}
    return Groups(
        found=found, silent=frozenset(b for b, answer in zip(brokers, answers, strict=True) if answer is None)
    )


async def _listed(cluster: Cluster, broker: int) -> list[Group] | None:
    try:
        answer = await cluster.call_broker(broker, list_groups.ListGroupsRequest(states_filter=(), types_filter=()))
    except WireError:
        return None
    if answer.error_code is not ErrorCode.none:
        return None
    return [
        Group(
            name=str(one.group_id),
            kind=GroupKind.SHARE if one.group_type.lower() == _SHARE_TYPE else GroupKind.CONSUMER,
            state=str(one.group_state),
            coordinator=broker,
        )
        for one in answer.groups
    ]


async def offsets_of(
    cluster: Cluster, groups: Iterable[Group]
) -> dict[tuple[str, GroupKind], dict[TopicPartition, Committed]]:
    """(group, kind) → partition → committed offset. Groups that cannot be asked now are missing. Raises WireError."""
    by_coordinator: dict[tuple[int, GroupKind], list[str]] = {}
    for group in groups:
        by_coordinator.setdefault((group.coordinator, group.kind), []).append(group.name)
    found: dict[tuple[str, GroupKind], dict[TopicPartition, Committed]] = {}
    for (broker, kind), names in by_coordinator.items():
        for name, offsets in (await _READ[kind](cluster, broker, names)).items():
            found[name, kind] = offsets
    return found


async def _consumer_offsets(cluster: Cluster, broker: int, names: list[str]) -> Standing:
    request = offset_fetch.OffsetFetchRequest(
        groups=tuple(offset_fetch.OffsetFetchRequestGroup(group_id=GroupId(n), topics=None) for n in names)
    )
    answer = await cluster.call_broker(broker, request)
    return {
        str(group.group_id): {
            (str(topic.name), int(part.partition_index)): Committed(
                offset=int(part.committed_offset),
                leader_epoch=int(part.committed_leader_epoch),
                metadata=part.metadata or "",
            )
            for topic in group.topics
            for part in topic.partitions
            if part.error_code is ErrorCode.none and part.committed_offset >= 0
        }
        for group in answer.groups
        if group.error_code is ErrorCode.none
    }


async def _share_offsets(cluster: Cluster, broker: int, names: list[str]) -> Standing:
    request = describe_share.DescribeShareGroupOffsetsRequest(
        groups=tuple(
            describe_share.DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(n), topics=None) for n in names
        )
    )
    answer = await cluster.call_broker(broker, request)
    return {
        str(group.group_id): {
            (str(topic.topic_name), int(part.partition_index)): Committed(offset=int(part.start_offset))
            for topic in group.topics
            for part in topic.partitions
            if part.error_code is ErrorCode.none and part.start_offset >= 0
        }
        for group in answer.groups
        if group.error_code is ErrorCode.none
    }


_READ: Final = {GroupKind.CONSUMER: _consumer_offsets, GroupKind.SHARE: _share_offsets}


async def write_offsets(
    cluster: Cluster, group: str, kind: GroupKind, offsets: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, str]:
    """Write a group's offsets as a non-member. Returns what was refused and why.

    Raises: WireError when the coordinator does not answer.
    """
    answer = await cluster.call_coordinator(group, _WRITE[kind](group, offsets))
    whole = getattr(answer, "error_code", ErrorCode.none)
    topics = answer.responses if kind is GroupKind.SHARE else answer.topics
    refused = {
        (str(getattr(topic, "name", None) or topic.topic_name), int(part.partition_index)): part.error_code
        for topic in topics
        for part in topic.partitions
        if part.error_code is not ErrorCode.none
    }
    if whole is not ErrorCode.none:
        refused = dict.fromkeys(offsets, whole)
    if ErrorCode.not_coordinator in refused.values():
        cluster.forget_coordinator(group)
    return {key: error.name for key, error in refused.items()}


def by_topic(offsets: Mapping[TopicPartition, Committed]) -> dict[str, dict[int, Committed]]:
    """The same, grouped by topic."""
    found: dict[str, dict[int, Committed]] = {}
    for (topic, partition), committed in offsets.items():
        found.setdefault(topic, {})[partition] = committed
    return found


def commit_topics(
    topic_of: Callable[..., T], partition_of: Callable[..., object], offsets: Mapping[TopicPartition, Committed]
) -> tuple[T, ...]:
    """The topics of an OffsetCommit or TxnOffsetCommit request, built with the given classes."""
    return tuple(
        topic_of(
            name=TopicName(topic),
            partitions=tuple(
                partition_of(
                    partition_index=i32(p),
                    committed_offset=i64(c.offset),
                    committed_leader_epoch=i32(c.leader_epoch),
                    committed_metadata=c.metadata,
                )
                for p, c in sorted(parts.items())
            ),
        )
        for topic, parts in sorted(by_topic(offsets).items())
    )


def _commit_consumer(group: str, offsets: Mapping[TopicPartition, Committed]) -> offset_commit.OffsetCommitRequest:
    return offset_commit.OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=_NO_MEMBER,
        member_id="",
        topics=commit_topics(
            offset_commit.OffsetCommitRequestTopic, offset_commit.OffsetCommitRequestPartition, offsets
        ),
    )


def _commit_share(group: str, offsets: Mapping[TopicPartition, Committed]) -> alter_share.AlterShareGroupOffsetsRequest:
    return alter_share.AlterShareGroupOffsetsRequest(
        group_id=GroupId(group),
        topics=tuple(
            alter_share.AlterShareGroupOffsetsRequestTopic(
                topic_name=TopicName(topic),
                partitions=tuple(
                    alter_share.AlterShareGroupOffsetsRequestPartition(
                        partition_index=i32(p), start_offset=i64(c.offset)
                    )
                    for p, c in sorted(parts.items())
                ),
            )
            for topic, parts in sorted(by_topic(offsets).items())
        ),
    )


_WRITE: Final = {GroupKind.CONSUMER: _commit_consumer, GroupKind.SHARE: _commit_share}
