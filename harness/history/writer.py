"""Writes rows of the stored format as small complete Parquet files.

Each file is written under a name that Spark and pyarrow ignore (a leading dot), forced to the disk, and only
then renamed to `TABLE/part-NNNNNN.parquet`. A reader therefore never sees half a file; a
crash can only leave a dot file, which nothing reads and `clean_leftovers` removes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.errors import HistoryError, StorageError
from harness.history.schema import TABLES, Table

PART_PREFIX = "part-"
# Columns whose values hardly repeat: a Parquet dictionary would be built only to be thrown away.
_UNIQUE = frozenset(
    {
        "index",
        "invoke_index",
        "op_index",
        "time_ns",
        "offset",
        "value",
        "value_hash",
        "crc",
        "base_offset",
        "last_offset",
    }
)
Columns = Sequence[Sequence[Any]]  # one sequence of values per column, in the table's order
_RANGES = {"int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}


def table_named(name: str) -> Table:
    """The table of this name. Raises HistoryError that lists all tables."""
    try:
        return TABLES[name]
    except KeyError:
        raise HistoryError(f"no table is named {name!r}; there are {', '.join(TABLES)}") from None


def check_value(table: str, column: str, kind: pa.DataType, nullable: bool, value: Any) -> None:
    """Raise HistoryError unless `value` can be stored in a column of this type."""
    if value is None:
        if nullable:
            return
        raise HistoryError(f"table {table}: column {column} must have a value")
    if pa.types.is_boolean(kind):
        good = isinstance(value, bool)
    elif pa.types.is_integer(kind):
        limit = _RANGES[str(kind)]
        good = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    elif pa.types.is_string(kind):
        good = isinstance(value, str)
    else:  # a list of int32
        limit = _RANGES["int32"]
        good = isinstance(value, list | tuple) and all(type(v) is int and -limit <= v < limit for v in value)
    if not good:
        raise HistoryError(f"table {table}: column {column} takes {kind}, not {value!r} ({type(value).__name__})")


def to_columns(rows: Sequence[Sequence[Any]]) -> Columns:
    """Rows of equal length, turned into columns."""
    return list(zip(*rows, strict=True))


def to_arrow(table: Table, columns: Columns) -> pa.Table:
    """Columns (all of the table's, in order) as an Arrow table with the table's schema.

    Raises HistoryError that names the column and the value when one does not fit.
    """
    schema = table.schema
    if not columns:
        return schema.empty_table()
    try:
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        for field, array in zip(schema, arrays, strict=True):
            if not field.nullable and array.null_count:
                raise ValueError(f"null in {field.name}")
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        for column, values in zip(table.columns, columns, strict=False):  # slow, but it names the value
            for value in values:
                check_value(table.name, column.name, column.type, column.nullable, value)
        raise HistoryError(f"table {table.name}: rows cannot be stored: {error}") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def fitting(table: Table, columns: Columns) -> Columns:
    """The same columns without the rows that do not fit the table."""
    return to_columns([row for row in zip(*columns, strict=True) if _fits(table, row)])


def _fits(table: Table, row: Sequence[Any]) -> bool:
    if len(row) != len(table.columns):
        return False
    try:
        for column, value in zip(table.columns, row, strict=True):
            check_value(table.name, column.name, column.type, column.nullable, value)
    except HistoryError:
        return False
    return True


class PartWriter:
    """Writes one table of one run folder, file by file. Not thread-safe: one writer per table at a time.

    Numbering continues after the existing files, so that evidence can be added to a run later.
    """

    def __init__(self, run_dir: Path, table: str, *, folder: Path | None = None) -> None:
        self.table = table_named(table)
        self.folder = folder or run_dir / table
        self.files_written = 0
        self._next: int | None = None
        self._dictionary = [
            c.name for c in self.table.columns if c.name not in _UNIQUE and not pa.types.is_list(c.type)
        ]

    def write(self, rows: pa.Table) -> Path | None:
        """Store the rows as one complete file and return it; None when there are no rows.

        Raises StorageError that names the folder when it cannot be written.
        """
        if rows.num_rows == 0:
            return None
        try:
            return self._write(rows)
        except (OSError, pa.ArrowException) as error:
            raise storage_error(self.folder, error) from error

    def write_rows(self, rows: Sequence[Sequence[Any]]) -> Path | None:
        """Store rows given as values in column order. Raises HistoryError for a row that does not fit."""
        return self.write(to_arrow(self.table, to_columns(rows))) if rows else None

    def _write(self, rows: pa.Table) -> Path:
        if self._next is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            numbers = [_number(p) for p in self.folder.glob(f"{PART_PREFIX}*.parquet")]
            self._next = max(numbers, default=-1) + 1
        final = self.folder / f"{PART_PREFIX}{self._next:06d}.parquet"
        temporary = self.folder / f".{final.name}.{os.getpid()}.tmp"
        try:
            with temporary.open("wb") as sink:
                pq.write_table(rows, sink, use_dictionary=self._dictionary, compression="snappy")
                sink.flush()
                os.fsync(sink.fileno())
            temporary.rename(final)
        except BaseException:
            with suppress(OSError):  # what cannot be written may not be removable either
                temporary.unlink()
            raise
        sync_folder(self.folder)
        self._next += 1
        self.files_written += 1
        return final


def storage_error(folder: Path, error: BaseException) -> StorageError:
    """The one sentence for a folder that cannot be written."""
    reason = getattr(error, "strerror", None) or str(error)
    return StorageError(
        f"cannot write to {folder}: {reason}; free space there or make it writable, or choose another folder with --out"
        " (everything stored before stays readable)"
    )


def sync_folder(folder: Path) -> None:
    """Force the folder's entries (a rename) to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clean_leftovers(run_dir: Path, tables: Iterable[str] = TABLES) -> list[Path]:
    """Remove the temporary files that a killed writer left; returns them."""
    found = [p for name in tables for p in (run_dir / name).glob(".part-*.tmp")]
    for path in found:
        path.unlink(missing_ok=True)
    return found


def _number(path: Path) -> int:
    digits = path.name.removeprefix(PART_PREFIX).split(".")[0].split("-")[0]
    return int(digits) if digits.isdigit() else -1
