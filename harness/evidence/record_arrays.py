"""The records of many batches as Arrow columns: keys, values, headers, timestamps, sequences, control types.

Keys and values are sliced from the joined payloads without a copy per record: one binary array covers the whole
buffer, and its elements are, in turn, a key, the bytes between, a value, the bytes between.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harness.evidence.varints import I64, MAX_VARINT_BYTES, U8, RecordFormatError, read_varints, record_starts
from harness.wire.batch_headers import BatchHeader

# org.apache.kafka.common.record.internal.ControlRecordType; 7 is KIP-1279's MIRROR_PID_RESET.
CONTROL_TYPES: Mapping[int, str] = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
    7: "PID_RESET",
}
_MARKERS = ("ABORT", "COMMIT")
_SEQUENCES = 1 << 31
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class DecodedRecords:
    """Columns of table `records` that come from the records themselves, and columns for the batches' rows.

    control_types, coordinator_epochs: per batch, null where it is not a control batch (not a marker).
    """

    columns: dict[str, pa.Array]
    control_types: list[str | None]
    coordinator_epochs: list[int | None]


def control_type_name(number: int) -> str:
    """Name of a control record type; `TYPE_n` for one that is not known."""
    return CONTROL_TYPES.get(number, f"TYPE_{number}")


def decode_records(batches: Sequence[tuple[BatchHeader, bytes]]) -> DecodedRecords:
    """All records of these batches, in order. `bytes` is a batch's decompressed payload.

    Raises RecordFormatError when a batch does not hold what its header says.
    """
    data, starts, batch_of = _lay_out(batches)
    array: U8 = np.frombuffer(data, dtype=np.uint8)
    length, body = read_varints(array, starts)
    ends = body + length
    ts_delta, at = read_varints(array, body + 1)  # one byte of attributes, unused
    offset_delta, key_at = read_varints(array, at)
    key_length, key_start = read_varints(array, key_at)
    key_end = _end_of(key_start, key_length, ends, "key")
    value_length, value_start = read_varints(array, key_end)
    value_end = _end_of(value_start, value_length, ends, "value")
    header_count, headers_at = read_varints(array, value_end)
    _check_ends(header_count, headers_at, ends)

    of = _HeaderColumns(batches, batch_of)
    is_control = of.control
    keys, values = _cut(data, key_start, key_end, value_start, value_end, key_length, value_length, is_control)
    control, epochs = _control_records(data, np.flatnonzero(is_control), key_start, key_length, value_start, value_end)
    columns = {
        "offset": pa.array(of.base_offset + offset_delta),
        "key": keys,
        "value": values,
        "value_hash": pa.array(_hashes(data, key_at, value_end)),
        "headers": _headers(data, header_count, headers_at, ends),
        "timestamp": pa.array(np.where(of.log_append_time, of.max_timestamp, of.base_timestamp + ts_delta)),
        "base_offset": pa.array(of.base_offset),
        "leader_epoch": pa.array(of.leader_epoch),
        "producer_id": pa.array(of.producer_id),
        "producer_epoch": pa.array(of.producer_epoch),
        "sequence": pa.array(_sequences(of.base_sequence, offset_delta)),
        "transactional": pa.array(of.transactional),
        "control_type": pa.array(control, pa.string()),
    }
    return DecodedRecords(columns, *_per_batch(len(batches), batch_of, control, epochs))


def _lay_out(batches: Sequence[tuple[BatchHeader, bytes]]) -> tuple[bytes, I64, I64]:
    """The payloads as one padded buffer, where each record starts, and which batch it belongs to."""
    data = b"".join([payload for _, payload in batches] + [bytes(2 * MAX_VARINT_BYTES)])
    starts: list[int] = []
    counts: list[int] = []
    position = 0
    for header, payload in batches:
        found = record_starts(data, position, position + len(payload), header.records_count)
        starts += found
        counts.append(len(found))
        position += len(payload)
    batch_of = np.repeat(np.arange(len(batches), dtype=np.int64), np.array(counts, dtype=np.int64))
    return data, np.array(starts, dtype=np.int64), batch_of


class _HeaderColumns:
    """The header fields of each record's batch, as arrays over records."""

    def __init__(self, batches: Sequence[tuple[BatchHeader, bytes]], batch_of: I64) -> None:
        headers = [header for header, _ in batches]

        def spread(values: list[int], kind: type[_Scalar]) -> NDArray[_Scalar]:
            return np.array(values, dtype=kind)[batch_of]

        self.base_offset = spread([h.base_offset for h in headers], np.int64)
        self.leader_epoch = spread([h.leader_epoch for h in headers], np.int32)
        self.producer_id = spread([h.producer_id for h in headers], np.int64)
        self.producer_epoch = spread([h.producer_epoch for h in headers], np.int16)
        self.base_sequence = spread([h.base_sequence for h in headers], np.int64)
        self.base_timestamp = spread([h.base_timestamp for h in headers], np.int64)
        self.max_timestamp = spread([h.max_timestamp for h in headers], np.int64)
        self.transactional = spread([h.transactional for h in headers], np.bool_)
        self.control = spread([h.control for h in headers], np.bool_)
        self.log_append_time = spread([h.log_append_time for h in headers], np.bool_)


def _end_of(start: I64, length: I64, limit: I64, what: str) -> I64:
    """End of a nullable field (length -1 is null); raises when it leaves its record."""
    end = start + np.maximum(length, 0)
    if np.any(length < -1) or np.any(end > limit):
        raise RecordFormatError(f"a {what} does not fit its record")
    return end


def _check_ends(header_count: I64, headers_at: I64, ends: I64) -> None:
    plain = header_count == 0
    if np.any(header_count < 0) or np.any(headers_at[plain] != ends[plain]) or np.any(headers_at > ends):
        raise RecordFormatError("a record's fields do not end where its length says")


def _cut(
    data: bytes,
    key_start: I64,
    key_end: I64,
    value_start: I64,
    value_end: I64,
    key_length: I64,
    value_length: I64,
    is_control: NDArray[np.bool_],
) -> tuple[pa.Array, pa.Array]:
    """Keys and values as text; null where absent, and in control records, whose bytes are not a client's."""
    count = len(key_start)
    if count == 0:
        return pa.array([], pa.string()), pa.array([], pa.string())
    offsets = np.stack([key_start, key_end, value_start, value_end], axis=1).reshape(-1).astype(np.int32)
    cuts = pa.Array.from_buffers(pa.binary(), 4 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    first = 4 * np.arange(count, dtype=np.int64)
    keys = cuts.take(pa.array(first, mask=(key_length < 0) | is_control))
    values = cuts.take(pa.array(first + 2, mask=(value_length < 0) | is_control))
    return _text(keys), _text(values)


def _text(cells: pa.Array) -> pa.Array:
    """Bytes as UTF-8; invalid bytes are replaced, cell by cell, only when there are any."""
    try:
        return pc.cast(cells, pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if c is None else c.decode("utf-8", "replace") for c in cells.to_pylist()], pa.string())


def _hashes(data: bytes, key_at: I64, value_end: I64) -> I64:
    """A 64-bit hash of key and value, lengths included: CRC32C and CRC-32 side by side.

    Two polynomials over the same bytes: as good as a 64-bit CRC, and both run at memory speed.
    """
    crc_a, crc_b = crc32c.crc32c, zlib.crc32
    hashes = [
        crc_a(piece) << 32 | crc_b(piece)
        for piece in [data[a:b] for a, b in zip(key_at.tolist(), value_end.tolist(), strict=True)]
    ]
    return np.array(hashes, dtype=np.uint64).view(np.int64)


def _sequences(base: I64, offset_delta: I64) -> NDArray[np.int32]:
    """Sequence of each record: the base plus its offset delta, wrapping to 0 after 2^31 - 1; -1 without."""
    return np.where(base < 0, -1, (base + offset_delta) % _SEQUENCES).astype(np.int32)


def _headers(data: bytes, header_count: I64, headers_at: I64, ends: I64) -> pa.Array:
    """Headers as JSON lists of [key, value] pairs; null where a record has none."""
    cells: list[str | None] = [None] * len(header_count)
    for index in np.flatnonzero(header_count).tolist():
        cells[index] = _header_json(data, int(headers_at[index]), int(ends[index]), int(header_count[index]))
    return pa.array(cells, pa.string())


def _header_json(data: bytes, position: int, end: int, count: int) -> str:
    def field() -> str | None:
        nonlocal position
        raw = shift = 0
        while True:
            if position >= end or shift > 28:
                raise RecordFormatError("a header does not fit its record")
            byte = data[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        length = (raw >> 1) ^ -(raw & 1)
        if length < 0:
            return None
        if position + length > end:
            raise RecordFormatError("a header does not fit its record")
        position += length
        return data[position - length : position].decode("utf-8", "replace")

    pairs = [[field(), field()] for _ in range(count)]
    if position != end:
        raise RecordFormatError("a record's headers do not end where its length says")
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def _control_records(
    data: bytes, rows: I64, key_start: I64, key_length: I64, value_start: I64, value_end: I64
) -> tuple[list[str | None], dict[int, int]]:
    """Type of every control record (null for data records), and the coordinator epoch of markers, by row."""
    names: list[str | None] = [None] * len(key_start)
    epochs: dict[int, int] = {}
    for row in rows.tolist():
        key, value = int(key_start[row]), int(value_start[row])
        if int(key_length[row]) < 4:
            raise RecordFormatError("a control record's key is shorter than version and type")
        name = control_type_name(int.from_bytes(data[key + 2 : key + 4], "big", signed=True))
        names[row] = name
        if name in _MARKERS and int(value_end[row]) - value >= 6:
            epochs[row] = int.from_bytes(data[value + 2 : value + 6], "big", signed=True)
    return names, epochs


def _per_batch(
    count: int, batch_of: I64, control: list[str | None], epochs: dict[int, int]
) -> tuple[list[str | None], list[int | None]]:
    """Control type and coordinator epoch of each batch: those of its first record."""
    names: list[str | None] = [None] * count
    of_epochs: list[int | None] = [None] * count
    for row, name in enumerate(control):
        batch = int(batch_of[row]) if name is not None else -1
        if batch >= 0 and names[batch] is None:
            names[batch] = name
            of_epochs[batch] = epochs.get(row)
    return names, of_epochs
