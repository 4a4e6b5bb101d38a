"""Fencing: a process whose partitions another one took over must not change them any more, even after a pause.

Three things ensure that:
- Every partition record has a fencing token, `fence`, that rises by one whenever the partition changes hands. The key
  of a stored record ends with it, so that a late write of the former owner never overwrites its successor's record,
  and the record with the highest token counts.
- A request that changes the destination (`CHANGES`) is sent only while the controller has answered recently: a process
  that was paused for longer than its session finds that out before it sends the next one.
- Kafka fences an AlterPartition request by the partition's leader epoch itself.
"""

from __future__ import annotations

from typing import Final

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.server.model import PartitionRecord

CHANGES: Final = frozenset(
    {
        0,  # Produce
        8,  # OffsetCommit
        19,  # CreateTopics
        20,  # DeleteTopics
        21,  # DeleteRecords
        27,  # WriteTxnMarkers
        30,  # CreateAcls
        31,  # DeleteAcls
        33,  # AlterConfigs
        37,  # CreatePartitions
        42,  # DeleteGroups
        43,  # ElectLeaders
        44,  # IncrementalAlterConfigs
        45,  # AlterPartitionReassignments
        47,  # OffsetDelete
        91,  # AlterShareGroupOffsets
        92,  # DeleteShareGroupOffsets
    }
)
"""API keys of requests that change a cluster and that Kafka does not fence."""


class FencedError(WireError):
    """Another process may have taken over: nothing is changed before the records have been read again."""


class RetriableError(MirrorError):
    """Not done for a reason that passes: this process may be fenced, or its state was not stored in time."""


def newest(one: PartitionRecord | None, other: PartitionRecord) -> PartitionRecord:
    """The valid one of two stored records of a partition: the one with the higher token.

    Where the topic was recreated under its name: the one that was read last (`other`).
    """
    if one is not None and one.topic_id == other.topic_id and one.fence > other.fence:
        return one
    return other
