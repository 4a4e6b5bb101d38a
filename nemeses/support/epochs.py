"""Which leader wrote which offsets, read from a replica's own `leader-epoch-checkpoint` file.

The file has a version line, a count line, and one line `epoch start-offset` per leader epoch, ascending (Kafka's
LeaderEpochCheckpointFile). A new leader enters its epoch with its log end offset before it appends any record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.core.errors import FaultError
from harness.topology.clusters import Cluster, Node
from harness.wire.metadata import PartitionMeta
from nemeses.base import FaultContext


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    offset: int


def parse(text: str) -> tuple[EpochStart, ...]:
    """The file's entries.

    Raises: FaultError when it is not such a file.
    """
    lines = text.split("\n")
    try:
        count = int(lines[1])
        entries = tuple(EpochStart(*(int(number) for number in line.split())) for line in lines[2 : 2 + count])
        if int(lines[0]) != 0 or len(entries) != count:
            raise ValueError(f"version {lines[0]}, {len(entries)} of {count} entries")
    except (ValueError, IndexError, TypeError) as error:
        raise FaultError(f"not a leader-epoch-checkpoint file: {text[:100]!r} ({error})") from error
    return entries


def read(cluster: Cluster, node: Node, topic: str, partition: int) -> tuple[EpochStart, ...]:
    """The leader epochs of one replica, from the container's disk. Empty before the first leader.

    Raises: FaultError when the file cannot be read.
    """
    path = f"{cluster.data_dir}/{topic}-{partition}/leader-epoch-checkpoint"
    result = node.exec(["cat", path], timeout_s=10)
    if result.exit_code != 0:
        raise FaultError(f"cannot read {path} on {node.name}: {result.output.strip()[:200]}")
    return parse(result.output)


def newest(entries: Sequence[EpochStart]) -> int:
    """The last leader epoch; -1 before the first leader."""
    return entries[-1].epoch if entries else -1


def await_newer(context: FaultContext, cluster: Cluster, node: Node, info: PartitionMeta, *, than: int) -> EpochStart:
    """The first epoch after this one in the replica's file, once it is there.

    Raises: WaitTimeoutError, FaultStoppedError.
    """

    def newer() -> EpochStart | None:
        entries = read(cluster, node, info.topic, info.partition)
        return next((entry for entry in entries if entry.epoch > than), None)

    return context.wait(
        newer,
        timeout_s=15,
        what=f"{node.name} to lead {info.topic}-{info.partition} at an epoch after {than}",
        swallow=(FaultError,),
    )
