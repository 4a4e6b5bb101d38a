"""The record batches of one segment file, by their headers: message format v2.

Pure: bytes in, headers and problems out. Nothing here reads a record.
Anything but a whole batch ends the scan of a file and is reported, not raised: later batches cannot be found, because
the length field is the only way from one batch to the next. Message formats v0 and v1 are refused: Kafka 4 cannot write
them, so a file that holds them is foreign, and its records have no producer columns to judge.
Layout: https://kafka.apache.org/documentation/#recordbatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import crc32c

from harness.core.errors import HistoryError

HEADER_BYTES = 61
_LOG_OVERHEAD = 12  # base offset and length, which the length field does not count
_CRC_START = 21  # the CRC covers everything from the attributes on
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">qi")
_OLD_CRC = struct.Struct(">I")
_CODEC_MASK, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20


class BatchHeader(NamedTuple):
    """One batch's header. `position` and `size` are bytes in the file; `crc_ok` compares the stored CRC32C."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    crc_ok: bool
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & _CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker's time replaces the timestamp of every record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch holds control records."""
        return bool(self.attributes & _CONTROL)


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
    end = position + _LOG_OVERHEAD + size
    if size < 14 or end > len(view):
        return False
    stored = _OLD_CRC.unpack_from(view, position + _LOG_OVERHEAD)[0]
    return bool(zlib.crc32(view[position + 16 : end]) == stored)


def _rest_is_zero(view: memoryview, position: int) -> bool:
    step = 1 << 20
    return all(not any(view[at : at + step]) for at in range(position, len(view), step))


def scan(view: memoryview, *, name: str) -> Iterator[BatchHeader | Problem]:
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
        base_offset, length = _LENGTH.unpack_from(view, position)
        magic = view[position + 16]
        if length == 0 and _rest_is_zero(view, position):
            yield Problem("zero_tail", position, f"zeros from byte {position} to the end ({left} bytes)")
            return
        if magic in (0, 1) and _is_old_message(view, position, length):
            raise HistoryError(
                f"{name}: message format v{magic} at byte {position}: only v2 (Kafka 0.11 and later) can be judged; "
                "let the topic be rewritten with a current client and broker, or leave this file out."
            )
        size = length + _LOG_OVERHEAD
        if size < HEADER_BYTES or magic != 2:
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
        fields = _HEADER.unpack_from(view, position)
        crc = fields[4]
        crc_ok = crc32c.crc32c(view[position + _CRC_START : position + size]) == crc
        yield BatchHeader(position, size, base_offset, fields[2], magic, crc, crc_ok, *fields[5:])
        position += size


def _tail(view: memoryview, position: int, text: str) -> Problem:
    if _rest_is_zero(view, position):
        return Problem("zero_tail", position, f"zeros from byte {position} to the end ({len(view) - position} bytes)")
    return Problem("truncated_batch", position, f"truncated at byte {position}: {text}")
