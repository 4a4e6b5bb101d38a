"""What DescribeClusterMirrors and ListClusterMirrors answer: the partitions that one process has. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from harness.wire import cluster_mirror_api as api
from mirrors.reference.server.model import PartitionRecord
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.states import PartitionState

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1

_STATES: Final[Mapping[PartitionState, api.State]] = {
    PartitionState.MIRRORING: api.State.MIRRORING,
    PartitionState.PAUSING: api.State.PAUSING,
    PartitionState.PAUSED: api.State.PAUSED,
    PartitionState.STOPPING: api.State.STOPPING,
    PartitionState.STOPPED: api.State.STOPPED,
    PartitionState.FAILED: api.State.FAILED,
}

Lookup = Callable[[PartitionRecord], Mirrored | None]


def state_of(record: PartitionRecord, mirrored: Mirrored | None) -> api.State:
    """The state as the authors' build names it. PREPARING is LOG_TRUNCATION until the log is cut, then EPOCH_FENCING.

    mirrored: None when this process does not have the partition yet.
    """
    if record.state is not PartitionState.PREPARING:
        return _STATES[record.state]
    cut_is_due = record.cut is not None and (
        mirrored is None or not mirrored.led.leading or mirrored.led.log_end > record.cut
    )
    return api.State.LOG_TRUNCATION if cut_is_due else api.State.EPOCH_FENCING


def partition_row(record: PartitionRecord, mirrored: Mirrored | None) -> api.DescribedPartition:
    """One partition. Offsets only while it is MIRRORING: the source's high watermark at the last fetch, and what every
    in-sync replica of the destination has of the source's offsets."""
    source = destination = lag = NO_OFFSET
    if record.state is PartitionState.MIRRORING and mirrored is not None and mirrored.view.known:
        source, high = mirrored.view.high_watermark, mirrored.led.high_watermark
        if high is not None:
            destination = mirrored.led.shifts.source(high)
            lag = max(0, source - destination)
    return api.DescribedPartition(
        partition_index=record.key.partition,
        source_offset=source,
        destination_offset=destination,
        lag=lag,
        state_value=state_of(record, mirrored).name,
        error_message=record.error or None,
    )


def topics_of(records: Iterable[PartitionRecord], lookup: Lookup) -> tuple[api.DescribedTopic, ...]:
    """The records of one mirror by topic, in order."""
    by_topic: dict[str, list[api.DescribedPartition]] = {}
    for record in sorted(records, key=lambda r: r.key):
        by_topic.setdefault(record.key.topic, []).append(partition_row(record, lookup(record)))
    return tuple(api.DescribedTopic(topic_name=name, partitions=tuple(rows)) for name, rows in by_topic.items())


def last_mirror_epochs(
    lookups: Iterable[api.EpochLookup], records: Iterable[PartitionRecord], *, source_cluster: str | None
) -> tuple[api.FoundEpochs, ...]:
    """The last mirror epochs of stopped partitions, -1 for others. A topic is found by its id on either cluster.

    source_cluster: id of the mirrors' source; None for any.
    """
    found: dict[tuple[uuid.UUID, int], int] = {}
    for record in records:
        if record.last_mirrored >= 0 and source_cluster in (None, record.source_cluster):
            for topic_id in {record.topic_id, record.source_topic_id}:
                key = (topic_id, record.key.partition)
                found[key] = max(found.get(key, NO_EPOCH), record.last_mirrored_epoch)
    none = uuid.UUID(int=0)
    return tuple(
        api.FoundEpochs(
            topic_id=one.topic_id,
            partitions=tuple(
                api.FoundEpoch(partition_index=p, last_mirror_epoch=found.get((one.topic_id or none, p), NO_EPOCH))
                for p in one.partitions
            ),
        )
        for one in lookups
    )
