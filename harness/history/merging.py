"""Joins the many small files of a recorded table into a few, after the recording has ended.

A recording makes about one file a second and table, so that a kill loses little; each file slows every Spark
scan (300 files of 1,500 rows: 5 times the time of one). The new files are written whole into a folder next to the
table's; then two renames exchange the folders. A process that is killed between the two leaves the table under its
hidden names, and `recover` puts it back.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.errors import HistoryError, StorageError
from harness.history.schema import TABLES
from harness.history.writer import PartWriter, sync_folder

log = logging.getLogger(__name__)

_MIN_FILES: Final = 16  # fewer are left as they are
_LARGE_ROWS: Final = 50_000  # files of this size on average are left as they are
_ROWS_PER_FILE: Final = 1_000_000


def merge_files(run_dir: Path, tables: Iterable[str]) -> None:
    """Compact these tables where it pays off. Never raises for a full disk: the small files are only slower."""
    for table in tables:
        files = sorted((run_dir / table).glob("part-*.parquet"))
        if len(files) < _MIN_FILES or not _small(files):
            continue
        try:
            _rewrite(run_dir, table, files)
        except (OSError, pa.ArrowException, StorageError) as error:
            shutil.rmtree(_new(run_dir, table), ignore_errors=True)
            log.warning("%s keeps its %d small files: %s", run_dir / table, len(files), error)


def recover(run_dir: Path) -> None:
    """Put back a table whose merge was killed between its two renames, and remove its other leftovers.

    Raises HistoryError when the folder cannot be written.
    """
    for table in TABLES:
        new, old, folder = _new(run_dir, table), _old(run_dir, table), run_dir / table
        try:
            if not folder.exists() and old.is_dir():
                old.rename(folder)
                shutil.rmtree(new, ignore_errors=True)
        except OSError as error:
            raise HistoryError(f"{old} must be renamed to {folder}, but cannot: {error.strerror}; rename it") from error


def _rewrite(run_dir: Path, table: str, files: list[Path]) -> None:
    new, old, folder = _new(run_dir, table), _old(run_dir, table), run_dir / table
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    writer = PartWriter(run_dir, table, folder=new)
    pending: list[pa.Table] = []
    rows = 0
    for file in files:
        pending.append(pq.read_table(file.absolute()))
        rows += pending[-1].num_rows
        if rows >= _ROWS_PER_FILE:
            writer.write(pa.concat_tables(pending))
            pending, rows = [], 0
    if pending:
        writer.write(pa.concat_tables(pending))
    if len(list(folder.iterdir())) != len(files):
        raise OSError("there are other files next to the recorded ones")
    folder.rename(old)
    new.rename(folder)
    sync_folder(run_dir)
    shutil.rmtree(old, ignore_errors=True)


def _small(files: list[Path]) -> bool:
    rows = sum(int(pq.read_metadata(file.absolute()).num_rows) for file in files)
    return rows < _LARGE_ROWS * len(files)


def _new(run_dir: Path, table: str) -> Path:
    return run_dir / f".{table}.new"


def _old(run_dir: Path, table: str) -> Path:
    return run_dir / f".{table}.old"
