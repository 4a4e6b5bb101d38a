"""Where the log of an existing topic is truncated before the mirror overwrites it: a policy per `failback_cut` value.

Both logs agree up to the last mirrored offset of the latest mirroring between the two clusters, in either direction.
A mirror keeps that offset in the state topic of its destination; the other direction's is read there, on the cluster
that is the source now, so that it is known even if the process that wrote it is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from harness.core.errors import MirrorError
from mirrors.reference.server.design import FailbackCut
from mirrors.reference.server.model import PartitionRecord
from mirrors.reference.server.states import ENDED

CUT: Final[Mapping[FailbackCut, Callable[[int], int | None]]] = {
    FailbackCut.LAST_MIRRORED: lambda agreed: agreed,
    FailbackCut.ZERO: lambda _: 0,
    FailbackCut.NONE: lambda _: None,
}
"""Agreed offset → destination offset to cut to; None to keep everything."""

"""States in which nothing is mirrored and a start begins from scratch."""


def agreed_offsets(
    topic: str,
    partitions: Iterable[int],
    *,
    own: Iterable[PartitionRecord],
    others: Iterable[PartitionRecord],
    own_cluster: str,
    source_cluster: str,
) -> dict[int, int]:
    """Partition → offset up to which both clusters' logs agree; 0 where nothing was ever mirrored between them.

    own: records kept on the destination; others: records kept on the source. Of a stop here and a stop there the
    later one counts. Raises: MirrorError when the other direction is still mirrored, which would be a loop.
    """
    latest: dict[int, PartitionRecord] = {}
    for record in own:
        if record.key.topic == topic and record.source_cluster == source_cluster and record.last_mirrored >= 0:
            _keep_later(latest, record)
    for record in others:
        if record.key.topic != topic or record.source_cluster != own_cluster:
            continue
        if record.state not in ENDED:
            raise MirrorError(
                f"{topic}-{record.key.partition} is still {record.state} in the other direction, by mirror "
                f"{record.key.mirror}; stop it first"
            )
        if record.last_mirrored >= 0:
            _keep_later(latest, record)
    return {p: latest[p].last_mirrored if p in latest else 0 for p in partitions}


def _keep_later(latest: dict[int, PartitionRecord], record: PartitionRecord) -> None:
    known = latest.get(record.key.partition)
    if known is None or record.stopped_at_ms > known.stopped_at_ms:
        latest[record.key.partition] = record
