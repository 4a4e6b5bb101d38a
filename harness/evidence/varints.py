"""Zig-zag varints of message format v2, many at once.

One varint per record is followed in a loop (a record's length says where the next one begins); all others are read
for all records together, so that the cost per record is that of a few numpy operations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

MAX_VARINT_BYTES = 10


class RecordFormatError(ValueError):
    """The bytes of a record do not follow message format v2."""


def read_varints(data: U8, positions: I64) -> tuple[I64, I64]:
    """The zig-zag varint at each position, and the position after it.

    data must be padded with at least MAX_VARINT_BYTES bytes after the last position.
    Raises RecordFormatError when a varint is longer than 64 bits or outside the data.
    """
    if positions.size == 0:
        return positions.copy(), positions.copy()
    if int(positions.min()) < 0 or int(positions.max()) + MAX_VARINT_BYTES > data.size:
        raise RecordFormatError("a field is outside its batch")
    first = data[positions]
    raw = (first & 0x7F).astype(np.uint64)
    after = positions + 1
    open_ = np.flatnonzero(first & 0x80)
    shift = 7
    while open_.size:
        if shift >= 7 * MAX_VARINT_BYTES:
            raise RecordFormatError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")
        byte = data[after[open_]]
        raw[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[open_] += 1
        open_ = open_[(byte & 0x80) != 0]
        shift += 7
    value = (raw >> np.uint64(1)).astype(np.int64) ^ -((raw & np.uint64(1)).astype(np.int64))
    return value, after


def record_starts(data: bytes, start: int, end: int, count: int) -> list[int]:
    """Where each of `count` records of the batch in data[start:end] begins (at its length).

    Raises RecordFormatError when the lengths do not add up to the batch.
    """
    starts: list[int] = []
    append = starts.append
    position = start
    for _ in range(count):
        append(position)
        if position >= end:
            raise RecordFormatError(f"{count} records are announced, {len(starts) - 1} are there")
        byte = data[position]
        position += 1
        length = byte & 0x7F
        shift = 7
        while byte & 0x80:
            if position >= end or shift > 28:
                raise RecordFormatError("a record's length is not a varint")
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        if length & 1:
            raise RecordFormatError("a record's length is negative")
        position += length >> 1
    if position != end:
        raise RecordFormatError(f"{count} records end at byte {position - start} of {end - start}")
    return starts
