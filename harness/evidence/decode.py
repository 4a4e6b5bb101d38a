"""Decodes a run's captured segment files into its tables `batches` and `records`, on Spark.

`decode_run` may be called again: it does nothing when the run is decoded, and starts over when it was interrupted.
Replicas in no snapshot (their broker was dead) get their row in `log_ends` from the files in their folder. Which
replicas had to be captured, and which are complete, is stored in `captured_logs` (see `completeness`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.atomic_files import refuse_folder, write_beside
from harness.core.errors import HistoryError
from harness.evidence.completeness import by_replica, capture_failures, expected_replicas
from harness.evidence.completeness import rows as completeness_rows
from harness.evidence.log_dirs import ReplicaLog, find_logs, has_segments
from harness.evidence.segment_task import INPUT, PREFIX, RESULT_DDL, run_task
from harness.evidence.snapshots import FINAL_SNAPSHOT
from harness.history.runfile import RunFile, read_meta
from harness.history.schema import TABLES
from harness.history.store import read_files, whole_files
from harness.history.writer import storage_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DONE = "_decoded.json"
_SHARE_BYTES = 64 << 20
_NOTES = 20


@dataclass(frozen=True, kw_only=True)
class DecodeReport:
    """What was decoded. `problems`: one sentence each, file first (torn last batches, zeros, damage)."""

    segments: int
    batches: int
    records: int
    bad_crc: int
    problems: tuple[str, ...] = ()


def needs_decoding(run_dir: Path) -> bool:
    """Whether segment files were captured whose tables are not (completely) there."""
    return has_segments(run_dir) and not (run_dir / "batches" / _DONE).exists()


def decode_run(spark: SparkSession, run_dir: Path, *, look: int = FINAL_SNAPSHOT) -> DecodeReport | None:
    """Decode every captured segment of the run; None when there is nothing to do.

    look: number of the snapshot that the rows belong to. Problems also go into the notes of run.json.
    Raises HistoryError when a file is of an old message format or cannot be read, StorageError when the folder cannot
    be written. Rows of other writers in the same tables stay.
    """
    if not needs_decoding(run_dir):
        return None
    run_dir = run_dir.resolve()
    for table in ("batches", "records", "log_ends"):
        refuse_folder(run_dir / table)
    logs = find_logs(run_dir)
    _remove_earlier(run_dir)
    rows = _shares(logs, look, spark.sparkContext.defaultParallelism)
    results = _decode(spark, run_dir, rows)
    broken = [r["refused"] or r["failed"] for r in results if r["refused"] or r["failed"]]
    if broken:
        more = f" (and {len(broken) - 1} more files)" if len(broken) > 1 else ""
        raise HistoryError(f"{broken[0]}{more}")
    expected = expected_replicas(run_dir, read_meta(run_dir))
    _store_unseen_ends(run_dir, logs, results, look)
    captured = completeness_rows(expected, by_replica(logs, results), capture_failures(run_dir), look=look)
    _store_rows(run_dir, "captured_logs", captured)
    report = DecodeReport(
        segments=len(results),
        batches=sum(r["batches"] for r in results),
        records=sum(r["records"] for r in results),
        bad_crc=sum(r["bad_crc"] for r in results),
        problems=tuple(_problems(results, run_dir)),
    )
    _finish(run_dir, report)
    return report


def _shares(logs: Sequence[ReplicaLog], look: int, cores: int) -> list[tuple[Any, ...]]:
    """One row per segment (columns of INPUT), dealt to shares of about equal bytes, a few per core.

    Neighbours stay together, so that the rows of a replica are in few files.
    """
    files = [(log, segment) for log in logs for segment in log.segments]
    total = sum(segment.size for _, segment in files)
    wanted = max(1, min(len(files), max(2 * cores, total // _SHARE_BYTES)))
    rows: list[tuple[Any, ...]] = []
    before = 0
    for log, segment in files:
        share = min(wanted - 1, before * wanted // max(1, total))
        where = (log.cluster, log.broker, look, log.topic, log.topic_id, log.partition)
        rows.append((int(share), str(segment.path), *where, segment.base_offset, segment.last))
        before += segment.size
    return rows


def _decode(spark: SparkSession, run_dir: Path, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    folder = str(run_dir)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(batches, folder)

    try:
        for table in ("batches", "records"):
            (run_dir / table).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(run_dir, error) from error
    if not rows:
        return []
    shares = max(row[0] for row in rows) + 1
    # One partition per share: a shuffle by hash could put two large shares into one task and leave another idle.
    pairs = spark.sparkContext.parallelize([(row[0], row) for row in rows], 1)
    spread = pairs.partitionBy(shares, lambda share: int(share)).values()
    files = spark.createDataFrame(spread, INPUT)
    return [row.asDict() for row in files.mapInArrow(task, RESULT_DDL).collect()]


def _remove_earlier(run_dir: Path) -> None:
    """Remove the files that an interrupted decoding left; those of other writers have other names."""
    for table in ("batches", "records", "log_ends", "captured_logs"):
        for pattern in (f"{PREFIX}*.parquet", f".{PREFIX}*.tmp"):
            for path in (run_dir / table).glob(pattern):
                path.unlink(missing_ok=True)


def _store_unseen_ends(run_dir: Path, logs: Sequence[ReplicaLog], results: Sequence[dict[str, Any]], look: int) -> None:
    """`log_ends` rows of replicas without a row in this snapshot: log start and end, and the checkpointed watermark."""
    seen, leaders, now = _snapshot_rows(run_dir, look)
    ends = {r["path"]: r["end_offset"] for r in results}
    rows: list[dict[str, Any]] = []
    for log in logs:
        place = (log.cluster, log.topic, log.partition)
        if (*place, log.broker) in seen:
            continue
        first, last = log.segments[0], log.segments[-1]
        known = [ends[str(s.path)] for s in log.segments if ends.get(str(s.path)) is not None]
        end = max([last.base_offset, *known])
        start = max(first.base_offset, log.log_start or 0)
        watermark = None if log.high_watermark is None else min(log.high_watermark, end)
        row = {
            "log_start": start,
            "log_end": max(end, start),
            "high_watermark": watermark,
            "leader": leaders.get(place),
        }
        where = {"cluster": log.cluster, "topic": log.topic, "partition": log.partition}
        rows.append({**where, "broker": log.broker, "look": look, "time_ns": now, **row})
    _store_rows(run_dir, "log_ends", rows)


def _store_rows(run_dir: Path, table: str, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    folder = run_dir / table
    try:
        folder.mkdir(exist_ok=True)
        temporary = folder / f".{PREFIX}{table}.tmp"
        pq.write_table(pa.Table.from_pylist(list(rows), schema=TABLES[table].schema), temporary)
        temporary.replace(folder / f"{PREFIX}{table}.parquet")
    except OSError as error:
        raise storage_error(folder, error) from error


_Place = tuple[str, str, int]


def _snapshot_rows(run_dir: Path, look: int) -> tuple[set[tuple[str, str, int, int]], dict[_Place, int], int]:
    """Replicas in this snapshot, the last known leader of each partition, and the time of the last snapshot."""
    files, _problems = whole_files(run_dir / "log_ends")
    if not files:
        return set(), {}, 0
    columns = ["cluster", "topic", "partition", "broker", "look", "time_ns", "leader", "log_end"]
    rows = read_files(run_dir / "log_ends", files, columns).to_pylist()
    rows.sort(key=lambda r: r["time_ns"])
    seen = {
        (r["cluster"], r["topic"], r["partition"], r["broker"])
        for r in rows
        if r["look"] == look and r["log_end"] is not None
    }
    leaders = {
        (r["cluster"], r["topic"], r["partition"]): r["leader"]
        for r in rows
        if (-1 if r["leader"] is None else r["leader"]) >= 0
    }
    return seen, leaders, rows[-1]["time_ns"] if rows else 0


def _problems(results: Sequence[dict[str, Any]], run_dir: Path) -> Iterator[str]:
    for result in results:
        for problem in json.loads(result["problems"] or "[]"):
            yield f"{Path(result['path']).relative_to(run_dir)}: {problem['text']}"


def _finish(run_dir: Path, report: DecodeReport) -> None:
    """Notes for the reader of the verdict, then the mark that makes the next call return at once."""
    try:
        run_file = RunFile.open(run_dir)
        for text in report.problems[:_NOTES]:
            run_file.add_note(text)
        if len(report.problems) > _NOTES:
            run_file.add_note(f"{len(report.problems) - _NOTES} more problems of this kind in {_DONE} of table batches")
        mark = {
            "segments": report.segments,
            "batches": report.batches,
            "records": report.records,
            "bad_crc": report.bad_crc,
            "problems": list(report.problems),
        }
        write_beside(run_dir / "batches" / _DONE, json.dumps(mark, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise storage_error(run_dir, error) from error
