"""One Spark task: it decodes its share of the segment files and stores the rows as Parquet.

Runs in Spark's Python workers. Rows go from the decoder straight into the run's folders, without passing through the
JVM; only one row per segment file goes back to Spark. A file is complete when it has its final name, and the name
depends only on the number of the share, so that a task that is run again replaces what it wrote before.
"""

from __future__ import annotations

import json
import mmap
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.errors import HistoryError
from harness.evidence.segments import Chunk, decode_segment
from harness.history.schema import TABLES

PREFIX = "decoded-"
INPUT = "share int, path string, cluster string, broker int, look int, topic string, topic_id string, partition int, base_offset bigint, last boolean"  # noqa: E501
RESULT = pa.schema(
    [
        ("path", pa.string()),
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("bad_crc", pa.int64()),
        ("end_offset", pa.int64()),
        ("problems", pa.string()),
        ("refused", pa.string()),
        ("failed", pa.string()),
    ]
)
RESULT_DDL = "path string, batches bigint, records bigint, bad_crc bigint, end_offset bigint, problems string, refused string, failed string"  # noqa: E501
_DICTIONARY = {
    "batches": ["cluster", "topic", "topic_id", "control_type", "compression", "segment", "producer_id"],
    "records": ["cluster", "topic", "control_type", "producer_id", "headers"],
}


class _Output:
    """One Parquet file of one table, under a name that readers ignore until `close` renames it."""

    def __init__(self, run_dir: Path, table: str, share: int) -> None:
        folder = run_dir / table
        folder.mkdir(parents=True, exist_ok=True)
        self._final = folder / f"{PREFIX}{share:06d}.parquet"
        self._temporary = folder / f".{self._final.name}.{uuid.uuid4().hex}.tmp"
        self._schema = TABLES[table].schema
        self._writer: pq.ParquetWriter | None = None
        self._dictionary = _DICTIONARY[table]

    def __enter__(self) -> _Output:
        return self

    def write(self, columns: dict[str, Any], rows: int) -> None:
        """Append rows; a column may be an array or one value for all rows, and is null when it is not given."""
        arrays = []
        for field in self._schema:
            value = columns.get(field.name)
            if isinstance(value, pa.Array):
                arrays.append(value.cast(field.type))
            else:
                arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._temporary, self._schema, use_dictionary=self._dictionary)
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            os.replace(self._temporary, self._final)  # noqa: PTH105 (atomic also where the name is taken)
        else:
            self._temporary.unlink(missing_ok=True)


def run_task(rows: Iterator[pa.RecordBatch], run_dir: str) -> Iterator[pa.RecordBatch]:
    """Decode the segments named in `rows` (columns of INPUT), all of one share; yields one row of RESULT per segment.

    A file that cannot be read, or must not (HistoryError), is reported in its row and does not stop the others.
    """
    segments = [row for batch in rows for row in batch.to_pylist()]
    for share in sorted({s["share"] for s in segments}):
        own = [s for s in segments if s["share"] == share]
        with _Output(Path(run_dir), "batches", share) as batches, _Output(Path(run_dir), "records", share) as records:
            results = [_decode_file(segment, batches, records) for segment in own]
        yield pa.RecordBatch.from_pylist(results, schema=RESULT)


def _decode_file(segment: dict[str, Any], batches: _Output, records: _Output) -> dict[str, Any]:
    path = Path(segment["path"])
    where = {k: segment[k] for k in ("cluster", "broker", "look", "topic", "partition")}
    result: dict[str, Any] = {"path": str(path), "batches": 0, "records": 0, "bad_crc": 0, "end_offset": None}
    problems: list[dict[str, Any]] = []
    try:
        for chunk in _chunks(path, segment):
            _store(chunk, where, segment, batches, records)
            result["batches"] += len(chunk.batches["crc_ok"])
            result["records"] += len(chunk.records["offset"])
            result["bad_crc"] += chunk.batches["crc_ok"].false_count
            if len(chunk.batches["last_offset"]):
                result["end_offset"] = chunk.batches["last_offset"][-1].as_py() + 1
            problems += [{"kind": p.kind, "position": p.position, "text": p.text} for p in chunk.problems]
    except HistoryError as error:
        result["refused"] = str(error)
    except OSError as error:
        result["failed"] = f"{path}: {error.strerror or error}"
    result["problems"] = json.dumps(problems) if problems else None
    return result


def _chunks(path: Path, segment: dict[str, Any]) -> Iterator[Chunk]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield from decode_segment(view, name=str(path), base_offset=segment["base_offset"], last=segment["last"])
        finally:
            view.release()


def _store(chunk: Chunk, where: dict[str, Any], segment: dict[str, Any], batches: _Output, records: _Output) -> None:
    extra = {"topic_id": segment["topic_id"], "segment": Path(segment["path"]).name}
    if len(chunk.batches["crc_ok"]):
        batches.write({**where, **extra, **chunk.batches}, len(chunk.batches["crc_ok"]))
    if len(chunk.records["offset"]):
        records.write({**where, **chunk.records}, len(chunk.records["offset"]))
