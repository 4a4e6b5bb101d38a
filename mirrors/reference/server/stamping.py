"""How the leader changes the source's batches before it forwards them: one small policy per switch.

`leader_epoch`: the batch's partition leader epoch is this cluster's (`rewrite`) or stays (`preserve`).
`producer_ids`: how they are rewritten; all but `verbatim` and `reserved_block` change the ids and recompute the CRC.
`gaps`: gaps that compaction left in the offsets stay (`keep`) or are closed (`renumber`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from harness.wire.batch_headers import BatchHeader, headers
from harness.wire.batches import NO_PRODUCER_ID, set_base_offset, set_leader_epoch, set_producer_id
from mirrors.reference.server.follower_sessions import Chunk
from mirrors.reference.server.partition import LedPartition

_REGION_BITS: Final = 31
_REGION_MASK: Final = (1 << _REGION_BITS) - 1

ProducerIds = Callable[[int, int], int]
"""(producer id, 32-bit hash of the source cluster's id) → producer id on the destination."""


def verbatim(producer_id: int, _: int) -> int:
    """The source's own id."""
    return producer_id


def negated(producer_id: int, _: int) -> int:
    """-(id+2): as in the first text of the design. Applied twice it gives the id again."""
    return -(producer_id + 2)


def cluster_region(producer_id: int, cluster_hash: int) -> int:
    """Sign bit, 32 bits of the cluster's hash, 31 bits of the id. An id that is in a region already is unchanged."""
    if producer_id < 0:
        return producer_id
    return -(1 << 63) | cluster_hash << _REGION_BITS | (producer_id & _REGION_MASK)


def positive_region(producer_id: int, cluster_hash: int) -> int:
    """The same without the sign bit: brokers keep producer state for it."""
    if producer_id > _REGION_MASK:
        return producer_id
    return cluster_hash << _REGION_BITS | producer_id


PRODUCER_IDS: Final[Mapping[str, ProducerIds]] = {
    "verbatim": verbatim,
    "reserved_block": verbatim,
    "negated": negated,
    "cluster_region": cluster_region,
    "positive_region": positive_region,
}


def cluster_hash(cluster_id: str) -> int:
    """32 bits of a cluster's id."""
    return int(crc32c(cluster_id.encode()))


@dataclass(frozen=True, slots=True)
class Stamp:
    """The policies of one mirror."""

    rewrite_epochs: bool = True
    producer_ids: ProducerIds = verbatim
    close_gaps: bool = False
    cluster_hash: int = 0

    @classmethod
    def of(cls, *, leader_epoch: str, producer_ids: str, gaps: str, source_cluster: str) -> Stamp:
        """The policies that switch values name."""
        return cls(
            rewrite_epochs={"rewrite": True, "preserve": False}[leader_epoch],
            producer_ids=PRODUCER_IDS[producer_ids],
            close_gaps={"keep": False, "renumber": True}[gaps],
            cluster_hash=cluster_hash(source_cluster),
        )


@dataclass(frozen=True, slots=True)
class Stamped:
    """Records to forward, and the source epochs that begin in them: (epoch, source offset).

    highest_epoch: of the source, in any of the batches. shifted: the offset shift changed.
    """

    chunk: Chunk
    new_source_epochs: tuple[tuple[int, int], ...]
    highest_epoch: int
    shifted: bool = False


def stamp(records: bytes, *, offset: int, partition: LedPartition, policy: Stamp, last_epoch: int) -> Stamped | None:
    """Records from the source, from destination offset `offset` on. None when there is no whole batch for the follower.

    last_epoch: the source's epoch of the record before. Batches at or after the partition's limit are left out.
    """
    source_offset = partition.shifts.source(offset)
    out: bytearray | None = None
    first = stop = -1
    end = offset
    epochs = []
    highest = -1
    shifts_before = len(partition.shifts.entries)
    for batch in headers(records):
        if batch.next_offset <= source_offset:
            continue
        if policy.close_gaps:
            _close_gap(partition, batch, end)
        base = partition.shifts.destination(batch.base_offset)
        next_offset = base + batch.next_offset - batch.base_offset
        if partition.limit is not None and next_offset > partition.limit:
            break
        highest = max(highest, batch.leader_epoch)
        if batch.leader_epoch > last_epoch:
            last_epoch = batch.leader_epoch
            epochs.append((last_epoch, batch.base_offset))
        changes = _changes(batch, base, partition, policy)
        if changes and out is None:
            out = bytearray(records)
        if out is not None:
            _apply(out, batch, changes)
        first = batch.position if first < 0 else first
        stop, end = batch.end, next_offset
    if first < 0:
        return None
    whole = first == 0 and stop == len(records)
    data = records if out is None else bytes(out) if whole else out
    chunk = Chunk(offset, end, bytes(data) if whole else bytes(data[first:stop]))
    return Stamped(chunk, tuple(epochs), highest, len(partition.shifts.entries) != shifts_before)


Changes = tuple[int | None, int | None, int | None]  # leader epoch, base offset, producer id


def _changes(batch: BatchHeader, base: int, partition: LedPartition, policy: Stamp) -> Changes | None:
    epoch = partition.epochs.at(base) if policy.rewrite_epochs else batch.leader_epoch
    pid = batch.producer_id
    if pid != NO_PRODUCER_ID:
        pid = policy.producer_ids(pid, policy.cluster_hash)
    if epoch == batch.leader_epoch and base == batch.base_offset and pid == batch.producer_id:
        return None
    return (
        epoch if epoch != batch.leader_epoch else None,
        base if base != batch.base_offset else None,
        pid if pid != batch.producer_id else None,
    )


def _apply(out: bytearray, batch: BatchHeader, changes: Changes | None) -> None:
    if changes is None:
        return
    epoch, base, pid = changes
    if epoch is not None:
        set_leader_epoch(out, batch, epoch)
    if base is not None:
        set_base_offset(out, batch, base)
    if pid is not None:
        set_producer_id(out, batch, pid)


def _close_gap(partition: LedPartition, batch: BatchHeader, end: int) -> None:
    """Put a batch right after the one before it."""
    if partition.shifts.destination(batch.base_offset) > end:
        partition.shifts.begin(end, batch.base_offset)
