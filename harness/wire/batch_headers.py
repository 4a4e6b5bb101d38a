"""Headers of record batches (format version 2): the one parser for what brokers send and for captured segment files.

Layout of a batch's first 61 bytes, big-endian: base offset 8, length 4 (of what follows), partition leader epoch 4,
magic 1, CRC32C 4 (of everything from the attributes on), attributes 2, last offset delta 4, base timestamp 8,
max timestamp 8, producer id 8, producer epoch 2, base sequence 4, record count 4.
https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

HEADER_BYTES: Final = 61
MAGIC: Final = 2
LENGTH_OVERHEAD: Final = 12  # base offset and length, which the length field does not count
PREFIX: Final = struct.Struct(">qi")  # base offset and length
EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
PRODUCER_ID_AT: Final = 43

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_HEADER: Final = struct.Struct(">qiiBIhiqqqhii")

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """One batch. position: where it starts in the bytes that it was read from; the rest as stored, in stored order.

    A tuple, because it is made faster than a dataclass: one is made per batch that is mirrored or captured.
    """

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def end(self) -> int:
        """Position after its last byte."""
        return self.position + self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of its last record, also when compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker's time replaces the timestamp of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether it belongs to a transaction (data or marker)."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether its records are control records."""
        return bool(self.attributes & CONTROL)


def read_header(data: Buffer, position: int) -> BatchHeader:
    """The header at this position, unchecked. Raises struct.error when fewer than HEADER_BYTES are left."""
    return BatchHeader(position, *_HEADER.unpack_from(data, position))


def headers(records: Buffer) -> Iterator[BatchHeader]:
    """Headers of the whole batches that a broker sent; a batch that is cut off at the end is ignored.

    Raises ValueError for another format than version 2.
    """
    position, limit = 0, len(records)
    while position + HEADER_BYTES <= limit:
        batch = read_header(records, position)
        if batch.end > limit:
            return
        if batch.magic != MAGIC:
            raise ValueError(
                f"the batch at offset {batch.base_offset} has format {batch.magic}; only {MAGIC} can be mirrored"
            )
        yield batch
        position = batch.end


def checksum(data: Buffer, batch: BatchHeader) -> int:
    """The CRC32C of a batch's bytes, as its header should have it."""
    return int(crc32c(memoryview(data)[batch.position + ATTRIBUTES_AT : batch.end]))
