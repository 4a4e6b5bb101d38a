"""Record batches (format version 2) as bytes: change what a leader may change, and build small ones.

The base offset and the leader epoch precede the CRC's range, so they may be rewritten without computing it again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from crc32c import crc32c

from harness.wire.batch_headers import (
    CONTROL,
    CRC_AT,
    EPOCH_AT,
    HEADER_BYTES,
    MAGIC,
    PREFIX,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    checksum,
)

ABORT_TYPE: Final = 0
COMMIT_TYPE: Final = 1
MIRROR_PID_RESET_TYPE: Final = 7

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1


def set_leader_epoch(records: bytearray, batch: BatchHeader, epoch: int) -> None:
    """Write the partition leader epoch of one batch in place."""
    struct.pack_into(">i", records, batch.position + EPOCH_AT, epoch)


def set_base_offset(records: bytearray, batch: BatchHeader, offset: int) -> None:
    """Write the base offset of one batch in place: all its records move."""
    struct.pack_into(">q", records, batch.position, offset)


def set_producer_id(records: bytearray, batch: BatchHeader, producer_id: int) -> None:
    """Write the producer id of one batch in place, and update the CRC."""
    struct.pack_into(">q", records, batch.position + PRODUCER_ID_AT, producer_id)
    struct.pack_into(">I", records, batch.position + CRC_AT, checksum(records, batch))


def control_type(records: Buffer, batch: BatchHeader) -> int | None:
    """Type of a control batch's record (ABORT_TYPE, COMMIT_TYPE, …); None when it has no record left."""
    if not batch.control or batch.records_count <= 0:
        return None
    position = batch.position + HEADER_BYTES
    _, position = _varint(records, position)  # length of the record
    position += 1  # attributes
    _, position = _varint(records, position)  # timestamp delta
    _, position = _varint(records, position)  # offset delta
    size, position = _varint(records, position)
    if size < 4:
        return None
    found: int = struct.unpack_from(">hh", records, position)[1]
    return found


def transaction_marker(
    *,
    commit: bool,
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> bytes:
    """A control batch that ends one producer's transaction, as a transaction coordinator would write it."""
    key = struct.pack(">hh", 0, COMMIT_TYPE if commit else ABORT_TYPE)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return build(
        ((key, value),),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=timestamp_ms,
    )


def pid_reset_marker(*, base_offset: int, leader_epoch: int, source_cluster_id: str, timestamp_ms: int) -> bytes:
    """A MIRROR_PID_RESET control batch (type 7) with the value {Version, SourceClusterId}."""
    name = source_cluster_id.encode()
    value = struct.pack(">h", 0) + unsigned_varint(len(name) + 1) + name + unsigned_varint(0)
    return build(
        ((struct.pack(">hh", 0, MIRROR_PID_RESET_TYPE), value),),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=CONTROL,
        timestamp_ms=timestamp_ms,
    )


def build(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """One uncompressed batch of (key, value) records, all with one timestamp."""
    if not records:
        raise ValueError("a batch needs at least one record")
    body = b"".join(_record(delta, key, value) for delta, (key, value) in enumerate(records))
    checked = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            len(records) - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        + body
    )
    rest = struct.pack(">iBI", leader_epoch, MAGIC, crc32c(checked)) + checked
    return PREFIX.pack(base_offset, len(rest)) + rest


def joined(batches: Iterable[bytes]) -> bytes:
    """Batches concatenated."""
    return b"".join(batches)


def _record(delta: int, key: bytes | None, value: bytes | None) -> bytes:
    inner = b"\x00" + _signed(0) + _signed(delta) + _field(key) + _field(value) + _signed(0)
    return _signed(len(inner)) + inner


def _field(value: bytes | None) -> bytes:
    return _signed(-1) if value is None else _signed(len(value)) + value


def _signed(value: int) -> bytes:
    return unsigned_varint((value << 1) ^ (value >> 63))


def unsigned_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; of the value's lowest 64 bits."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
