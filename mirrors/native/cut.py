"""Where a stopped mirror ended: the end of its last mirrored epoch in the destination's log.

The stop stores the epoch of the last mirrored batch of each partition and raises the leader epoch above it before it
appends anything. So the log of the destination's leader says where that epoch ends: OffsetForLeaderEpoch. Offsets are
the source's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4 import request as epoch_ends
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from harness.wire.cluster_mirror_api import DescribeClusterMirrorsResponse, EpochLookup
from mirrors.native.rows import Partition

TopicIds = Mapping[str, tuple[uuid.UUID, ...]]
"""Topic → its ids on source and destination, which are one where the mirror keeps them."""

_CONSUMER = BrokerId(-1)


def lookups(ids: TopicIds, partitions: Iterable[Partition]) -> tuple[EpochLookup, ...]:
    """What to ask for the last mirrored epochs of these partitions."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        numbers.setdefault(topic, []).append(partition)
    return tuple(
        EpochLookup(topic_id=topic_id, partitions=tuple(found))
        for topic, found in numbers.items()
        for topic_id in dict.fromkeys(ids.get(topic, ()))
    )


def last_epochs(answers: Iterable[DescribeClusterMirrorsResponse], ids: TopicIds) -> dict[Partition, int]:
    """Partition → its last mirrored epoch: the highest that any broker names; those without one are left out."""
    topics = {topic_id: topic for topic, both in ids.items() for topic_id in both}
    found: dict[Partition, int] = {}
    for answer in answers:
        for result in answer.lookup_results:
            topic = topics.get(result.topic_id) if result.topic_id is not None else None
            for part in result.partitions:
                if topic is not None and part.last_mirror_epoch >= 0:
                    place = (topic, part.partition_index)
                    found[place] = max(found.get(place, -1), part.last_mirror_epoch)
    return found


def end_request(epochs: Mapping[Partition, int]) -> epoch_ends.OffsetForLeaderEpochRequest:
    """The request to a leader for the ends of these epochs."""
    by_topic: dict[str, list[epoch_ends.OffsetForLeaderPartition]] = {}
    for (topic, partition), epoch in sorted(epochs.items()):
        by_topic.setdefault(topic, []).append(
            epoch_ends.OffsetForLeaderPartition(partition=i32(partition), leader_epoch=i32(epoch))
        )
    return epoch_ends.OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=tuple(
            epoch_ends.OffsetForLeaderTopic(topic=TopicName(topic), partitions=tuple(parts))
            for topic, parts in by_topic.items()
        ),
    )


def ends_in(answer: Any) -> dict[Partition, int]:
    """Partition → the end of its epoch, out of the answer; those with an error, or without such an epoch, left out."""
    return {
        (str(topic.topic), int(part.partition)): int(part.end_offset)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code is ErrorCode.none and part.end_offset >= 0
    }


def offsets(
    partitions: Iterable[Partition],
    epochs: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    empty: Iterable[Partition],
) -> dict[Partition, tuple[int, int]]:
    """Partition → (source offset, destination offset) of the cut. empty: partitions whose log holds nothing at all.

    A partition without a last epoch was mirrored nothing: its cut is 0 if its log is empty, else it is not known.
    """
    none = set(empty)
    found = {}
    for place in partitions:
        if place in epochs and place in ends:
            found[place] = (ends[place], ends[place])
        elif place not in epochs and place in none:
            found[place] = (0, 0)
    return found
