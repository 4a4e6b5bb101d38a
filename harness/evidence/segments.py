"""One segment file (`NNN.log` of a replica) as rows of the tables `batches` and `records`.

Pure: bytes in, Arrow columns out, in chunks of bounded size, so that a segment of a gigabyte needs the memory of one
chunk. A batch whose CRC32C is wrong becomes a row with crc_ok false, and its records are decoded when they can be.
An early end of a file (a torn last batch, zeros, garbage) is reported as a Problem, never raised. Garbage, and a torn
batch that is followed by a later segment, cannot come from a write that was under way: they count as one batch with a
wrong CRC at the next offset, which represents all remaining bytes.
Cannot see: a batch whose base offset alone was altered (Kafka's CRC does not cover it), and batches after garbage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from harness.evidence.batch_scan import Problem, ScannedBatch, scan
from harness.evidence.codecs import CodecError, codec_name, decompress
from harness.evidence.record_arrays import DecodedRecords, decode_records
from harness.evidence.varints import RecordFormatError
from harness.wire.batch_headers import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchHeader

CHUNK_BYTES = 16 << 20
CHUNK_RECORDS = 100_000
_MAX_COUNT = 1 << 24  # a count beyond this is garbage: no batch of 2 GiB holds more


@dataclass(frozen=True)
class Chunk:
    """Some consecutive batches and all their records, as columns named as in harness.history.schema.

    The columns that locate the file (cluster, broker, look, topic, topic_id, partition, segment) are not here.
    """

    batches: dict[str, pa.Array]
    records: dict[str, pa.Array]
    problems: tuple[Problem, ...]


@dataclass
class _Pending:
    """Batches of one chunk, with the payload of those whose records can be read."""

    batches: list[ScannedBatch] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    size: int = 0
    count: int = 0
    next_offset: int = 0

    def full(self) -> bool:
        return self.size >= CHUNK_BYTES or self.count >= CHUNK_RECORDS


def decode_segment(view: memoryview, *, name: str, base_offset: int = 0, last: bool = True) -> Iterator[Chunk]:
    """Every batch and record of a segment file, in file order.

    view: the whole file (may be a memory map). name: the file, for messages. base_offset: from the file's name.
    last: whether it is its replica's newest segment, the only one that may end in a torn batch.
    Raises HistoryError on message format v0 or v1, naming file and position.
    """
    pending = _Pending(next_offset=base_offset)
    for item in scan(view, name=name):
        if isinstance(item, Problem):
            pending.problems.append(item)
            if item.kind == "corrupt_header" or not last:
                pending.batches.append(_damage(item, len(view), pending.next_offset))
                pending.payloads.append(None)
            continue
        payload = _payload(view, item, pending)
        pending.batches.append(item)
        pending.payloads.append(payload)
        pending.next_offset = item.header.next_offset
        pending.size += item.header.size if payload is None else len(payload)
        pending.count += 0 if payload is None else item.header.records_count
        if pending.full():
            yield _chunk(pending)
            pending = _Pending(next_offset=pending.next_offset)
    if pending.batches or pending.problems:
        yield _chunk(pending)


def _payload(view: memoryview, batch: ScannedBatch, pending: _Pending) -> bytes | None:
    """The batch's records, decompressed; None when there are none or they cannot be read."""
    header = batch.header
    if not 0 <= header.records_count <= _MAX_COUNT:
        pending.problems.append(_undecodable(batch, f"{header.records_count} records are announced"))
        return None
    try:
        return decompress(header.codec, bytes(view[header.position + HEADER_BYTES : header.end]))
    except CodecError as error:
        pending.problems.append(_undecodable(batch, str(error)))
        return None


def _damage(problem: Problem, end: int, next_offset: int) -> ScannedBatch:
    """A stand-in for bytes that should be batches and are not."""
    header = BatchHeader(
        position=problem.position,
        base_offset=next_offset,
        length=min(end - problem.position, (1 << 31) - 1) - LENGTH_OVERHEAD,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    return ScannedBatch(header, crc_ok=False)


def _undecodable(batch: ScannedBatch, why: str) -> Problem:
    header = batch.header
    crc = "its CRC32C is right" if batch.crc_ok else "its CRC32C is wrong too"
    text = (
        f"the records of the batch at offset {header.base_offset} (byte {header.position}) cannot be read: {why}; {crc}"
    )
    return Problem("undecodable_records", header.position, text)


def _chunk(pending: _Pending) -> Chunk:
    readable = [(b, p) for b, p in zip(pending.batches, pending.payloads, strict=True) if p is not None]
    try:
        decoded = _decode(readable)
    except RecordFormatError:  # one bad batch must not cost the chunk: find it
        good = [pair for pair in readable if _readable_alone(pair, pending)]
        readable, decoded = good, _decode(good)
    of_batch = {
        batch.header.position: (kind, epoch)
        for (batch, _), kind, epoch in zip(readable, decoded.control_types, decoded.coordinator_epochs, strict=True)
    }
    return Chunk(_batch_columns(pending.batches, of_batch), decoded.columns, tuple(pending.problems))


def _decode(readable: list[tuple[ScannedBatch, bytes]]) -> DecodedRecords:
    return decode_records([(batch.header, payload) for batch, payload in readable])


def _readable_alone(pair: tuple[ScannedBatch, bytes], pending: _Pending) -> bool:
    try:
        _decode([pair])
    except RecordFormatError as error:
        pending.problems.append(_undecodable(pair[0], str(error)))
        return False
    return True


def _batch_columns(
    batches: list[ScannedBatch], of_batch: dict[int, tuple[str | None, int | None]]
) -> dict[str, pa.Array]:
    headers = [batch.header for batch in batches]
    control = [of_batch.get(h.position, (None, None)) for h in headers]
    return {
        "base_offset": pa.array([h.base_offset for h in headers], pa.int64()),
        "last_offset": pa.array([h.last_offset for h in headers], pa.int64()),
        "leader_epoch": pa.array([h.leader_epoch for h in headers], pa.int32()),
        "crc": pa.array([h.crc for h in headers], pa.int64()),
        "crc_ok": pa.array([batch.crc_ok for batch in batches], pa.bool_()),
        "producer_id": pa.array([h.producer_id for h in headers], pa.int64()),
        "producer_epoch": pa.array([h.producer_epoch for h in headers], pa.int16()),
        "base_sequence": pa.array([h.base_sequence for h in headers], pa.int32()),
        "records_count": pa.array([h.records_count for h in headers], pa.int32()),
        "transactional": pa.array([h.transactional for h in headers], pa.bool_()),
        "control": pa.array([h.control for h in headers], pa.bool_()),
        "control_type": pa.array([kind for kind, _ in control], pa.string()),
        "coordinator_epoch": pa.array([epoch for _, epoch in control], pa.int32()),
        "timestamp": pa.array([h.max_timestamp for h in headers], pa.int64()),
        "size": pa.array([h.size for h in headers], pa.int32()),
        "compression": pa.array([codec_name(h.codec) for h in headers], pa.string()),
        "position": pa.array([h.position for h in headers], pa.int64()),
    }
