"""The record batches of one segment file, by their headers: message format v2.

Pure: bytes in, headers and problems out. Nothing here reads a record.
Anything but a whole batch ends the scan of a file and is reported, not raised: later batches cannot be found, because
the length field is the only way from one batch to the next. Message formats v0 and v1 are refused: Kafka 4 cannot write
them, so a file that holds them is foreign, and its records have no producer columns to judge.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from harness.core.errors import HistoryError
from harness.wire.batch_headers import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    PREFIX,
    BatchHeader,
    checksum,
    read_header,
)

_OLD_CRC = struct.Struct(">I")


class ScannedBatch(NamedTuple):
    """One batch. `crc_ok`: whether its bytes have the CRC32C that its header states."""

    header: BatchHeader
    crc_ok: bool


@dataclass(frozen=True)
class Problem:
    """Something in a segment file that is not a whole, decodable batch.

    kind: `truncated_batch` (the file ends within a batch: a torn last write), `zero_tail` (zeros to the end of the
    file: preallocated or lost with the page cache), `corrupt_header` (no batch can start like this),
    `undecodable_records` (a batch whose records cannot be read).
    """

    kind: str
    position: int
    text: str


def _is_old_message(view: memoryview, position: int, size: int) -> bool:
    """Whether a v0 or v1 message begins here, by its own CRC-32: a flipped bit in `magic` must not look like one."""
    end = position + LENGTH_OVERHEAD + size
    if size < 14 or end > len(view):
        return False
    stored = _OLD_CRC.unpack_from(view, position + LENGTH_OVERHEAD)[0]
    return bool(zlib.crc32(view[position + MAGIC_AT : end]) == stored)


def _rest_is_zero(view: memoryview, position: int) -> bool:
    step = 1 << 20
    return all(not any(view[at : at + step]) for at in range(position, len(view), step))


def scan(view: memoryview, *, name: str) -> Iterator[ScannedBatch | Problem]:
    """Every batch of a segment file in file order; a Problem, when there is one, comes last.

    view: the whole file (may be a memory map). name: the file, for messages.
    Raises HistoryError on message format v0 or v1, naming file and position.
    """
    position, end = 0, len(view)
    while position < end:
        left = end - position
        if left < 17:
            yield _tail(view, position, f"{left} bytes are left, fewer than a batch header has")
            return
        base_offset, length = PREFIX.unpack_from(view, position)
        magic = view[position + MAGIC_AT]
        if length == 0 and _rest_is_zero(view, position):
            yield Problem("zero_tail", position, f"zeros from byte {position} to the end ({left} bytes)")
            return
        if magic in (0, 1) and _is_old_message(view, position, length):
            raise HistoryError(
                f"{name}: message format v{magic} at byte {position}: only v2 (Kafka 0.11 and later) can be judged; "
                "let the topic be rewritten with a current client and broker, or leave this file out."
            )
        size = length + LENGTH_OVERHEAD
        if size < HEADER_BYTES or magic != MAGIC:
            yield Problem(
                "corrupt_header",
                position,
                f"no batch can start at byte {position} (offset field {base_offset}, length {length}, magic {magic}); "
                f"{left} bytes are not decoded",
            )
            return
        if size > left:
            yield _tail(view, position, f"the batch at offset {base_offset} has {size} bytes, {left} are there")
            return
        header = read_header(view, position)
        yield ScannedBatch(header, checksum(view, header) == header.crc)
        position += size


def _tail(view: memoryview, position: int, text: str) -> Problem:
    if _rest_is_zero(view, position):
        return Problem("zero_tail", position, f"zeros from byte {position} to the end ({len(view) - position} bytes)")
    return Problem("truncated_batch", position, f"truncated at byte {position}: {text}")
