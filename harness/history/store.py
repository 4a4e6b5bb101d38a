"""Opens a stored run: finds its tables, checks that every file is whole, and reads them without Spark.

A torn file is found by its footer, without reading the data. Columns that the schema does not know are ignored,
optional columns that a file lacks read as null, narrower integers are widened.

Folders named COLUMN=VALUE in a table's folder are read as Hive partitions (harness.history.parts).

Pages of data are not read on opening: a file with a whole footer and a damaged page is only found when it is read.

It cannot see rows that were never written, nor a file that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from harness.core.errors import HistoryError
from harness.history.merging import recover
from harness.history.parts import partition_values, table_parts
from harness.history.runfile import RunMeta, read_meta
from harness.history.schema import TABLES
from harness.history.writer import table_named

_MAGIC = b"PAR1"
_UNFOLDED_BYTES = 1 << 30
_UNFOLDED_TIMES = 1_000
"""A file may expand to this many bytes, and beyond that to this many times its own size."""
_ROWS = 10_000_000
_ROWS_PER_BYTE = 64
"""A file may hold this many rows, and beyond that this many per byte: no two rows of a history are the same."""


@dataclass(frozen=True)
class StoredRun:
    """A run folder whose files were checked. `files`: table → its Parquet files, in order; only tables with files.

    `problems`: one sentence per file that was left out (see `open_run`).
    """

    path: Path
    meta: RunMeta
    files: Mapping[str, tuple[Path, ...]]
    problems: tuple[str, ...] = ()

    def has(self, table: str) -> bool:
        """Whether the table has at least one whole file."""
        return bool(self.files.get(table_named(table).name))

    def rows(self, table: str) -> int:
        """How many rows the table has, from the files' footers."""
        return sum(pq.read_metadata(f).num_rows for f in self.files.get(table_named(table).name, ()))

    def read_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The table (or these columns) as Arrow, in file order; no rows when the table is missing.

        Raises HistoryError for a table or column that the format does not have, or a file with a damaged page.
        """
        schema = _readable(name, columns)
        if not self.has(name):
            return schema.empty_table()
        return read_files(self.path / name, self.files[name], schema.names)

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The table as record batches, file by file, in file order: for tables that do not fit in memory.

        Raises HistoryError as `read_table`.
        """
        schema = _readable(name, columns)
        for file in self.files.get(name, ()):
            with naming_damaged([file]):
                yield from _file_batches(self.path / name, file, schema.names)

    def damaged(self) -> list[str]:
        """One sentence for each file that has a damaged page. Reads everything."""
        return [said for files in self.files.values() for file in files if (said := _damage(file)) is not None]

    def sorted_by(self, name: str, column: str) -> bool:
        """Whether the table, read in file order, is in ascending order of an integer column."""
        last: int | None = None
        for batch in self.batches(name, [column]):
            values = batch.column(0)
            if len(values) == 0:
                continue
            if last is not None and values[0].as_py() < last:
                return False
            if len(values) > 1 and not pc.all(pc.less_equal(values[:-1], values[1:])).as_py():
                return False
            last = values[-1].as_py()
        return True


def read_files(folder: Path, files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    """These columns of files of the table whose name the folder has, as Arrow, in order of the files.

    Raises HistoryError that names a file with a damaged page.
    """
    schema = _readable(folder.name, columns)
    with naming_damaged(files):
        if all(file.parent == folder for file in files):
            return _dataset(files, _readable(folder.name)).to_table(columns=schema.names)
        batches = [batch for file in files for batch in _file_batches(folder, file, schema.names)]
        return pa.Table.from_batches(batches, schema=schema)


def _file_batches(folder: Path, file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of one file, with those that its folders' names give."""
    schema = _readable(folder.name, columns)
    values = partition_values(file, folder) or {}
    stored = [name for name in schema.names if name not in values]
    for batch in _dataset([file], _readable(folder.name)).to_batches(columns=stored):
        if values:
            arrays = [
                pa.repeat(pa.scalar(values[name], kind.type), batch.num_rows) if name in values else batch.column(name)
                for name, kind in zip(schema.names, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            yield batch


def _dataset(files: Sequence[Path], schema: pa.Schema) -> ds.Dataset:
    local = pa.fs.LocalFileSystem()  # else Arrow takes a name with a colon for an address
    return ds.dataset([str(file.absolute()) for file in files], schema=schema, format="parquet", filesystem=local)


def open_run(path: Path | str, *, leave_out_torn: bool = False) -> StoredRun:
    """Open a run folder and check every file's footer and columns.

    Raises HistoryError: not a run (see `read_meta`), a torn file, a required column that is missing or holds null, a
    column of the wrong type. With `leave_out_torn` a torn file is left out and named in `problems` instead.
    """
    path = Path(path)
    meta = read_meta(path)
    path = path.absolute()  # Arrow takes a relative name with a colon for an address
    recover(path)
    files: dict[str, tuple[Path, ...]] = {}
    problems: list[str] = []
    for name in TABLES:
        good, wrong = whole_files(path / name)
        problems += wrong
        if good:
            files[name] = good
    if problems and not leave_out_torn:
        more = f" ({len(problems) - 1} more files are torn too)" if len(problems) > 1 else ""
        raise HistoryError(problems[0] + more)
    return StoredRun(path=path, meta=meta, files=files, problems=tuple(problems))


def whole_files(folder: Path) -> tuple[tuple[Path, ...], list[str]]:
    """The files of the table whose name this folder has, and one sentence for each that is left out.

    Raises HistoryError for a file whose columns cannot be read as this table.
    """
    parts = table_parts(folder)
    good, problems = [], parts.problems
    for file in parts.files:
        problem = _torn(file)
        if problem is None:
            check_columns(folder.name, file, partition_values(file, folder) or {})
            good.append(file)
        else:
            problems.append(problem)
    return tuple(good), problems


def check_columns(table: str, file: Path, by_folder: Mapping[str, object] | None = None) -> None:
    """Raise HistoryError unless the file's columns can be read as this table. by_folder: those of its folders."""
    try:
        footer = pq.read_metadata(file)
        found = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(_torn_sentence(file, str(error))) from error
    for column in TABLES[table].columns:
        if by_folder and column.name in by_folder:
            continue
        at = found.get_field_index(column.name)
        if at < 0:
            if not column.nullable:
                raise HistoryError(
                    f"{file} has no column {column.name} ({column.type}: {column.doc}), which table {table} must have"
                )
        elif not _same(found.field(at).type, column.type):
            raise HistoryError(
                f"{file}: column {column.name} is {found.field(at).type}, table {table} has it as {column.type};"
                " write it in that type"
            )
        elif not column.nullable and found.field(at).nullable and _holds_null(file, footer, column.name):
            raise HistoryError(
                f"{file}: column {column.name} holds null, table {table} must have a value there ({column.doc});"
                " write one, or leave the row out"
            )


def _holds_null(file: Path, footer: pq.FileMetaData, column: str) -> bool:
    """Whether a column holds null, from the footer, or from the column where the footer does not say."""
    at = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == column)
    per_group = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
    if all(statistics is not None and statistics.has_null_count for statistics in per_group):
        return any(statistics.null_count for statistics in per_group)
    with naming_damaged([file]), pq.ParquetFile(file) as source:
        return any(batch.column(0).null_count for batch in source.iter_batches(columns=[column]))


@contextmanager
def naming_damaged(files: Sequence[Path | str]) -> Iterator[None]:
    """Raise HistoryError that names the damaged one of the files when Arrow cannot read them in this block."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        named = (said for file in files if (said := _damage(Path(file))) is not None)
        said = next(named, None)
        if said is None and len(files) == 1:
            said = _damage_sentence(Path(files[0]), error)
        if said is None:
            raise
        raise HistoryError(said) from error


def _damage(file: Path) -> str | None:
    """Why a file's data cannot be read, None when they can."""
    try:
        with pq.ParquetFile(file) as source:
            for _ in source.iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        return _damage_sentence(file, error)
    return None


def _damage_sentence(file: Path, error: BaseException) -> str:
    return (
        f"{file} cannot be read ({' '.join(str(error).split())}); restore it, or delete it or move it away"
        " (rows it held are then missing from the verdict)"
    )


def _torn(file: Path) -> str | None:
    try:
        size = file.stat().st_size
        with file.open("rb") as source:
            head = source.read(4)
            source.seek(max(0, size - 8))
            tail = source.read(8)
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}; make it readable, or move it away (the rest is intact)"
    if size < 12 or head != _MAGIC or tail[4:] != _MAGIC or int.from_bytes(tail[:4], "little") > size - 12:
        return _torn_sentence(file, f"{size:,} bytes, no whole Parquet footer")
    try:
        footer = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        return _torn_sentence(file, str(error))
    return _swollen(file, size, footer)


def _swollen(file: Path, size: int, footer: pq.FileMetaData) -> str | None:
    """A sentence for a file whose footer states an impossible size: it would fill memory before it is judged."""
    unfolded = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    if unfolded > max(_UNFOLDED_BYTES, _UNFOLDED_TIMES * size) or footer.num_rows > max(_ROWS, _ROWS_PER_BYTE * size):
        return (
            f"{file} has {size:,} bytes that expand to {footer.num_rows:,} rows of {unfolded:,} bytes, which is no"
            " history; move it away"
        )
    return None


def _torn_sentence(file: Path, detail: str) -> str:
    return (
        f"{file} is torn or not Parquet ({detail}); delete it or move it away, the rest of the run is intact"
        " (rows it held are then missing from the verdict)"
    )


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_large_string(found):
        found = pa.string()
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _same(found.value_type, wanted.value_type)
    if pa.types.is_signed_integer(found) and pa.types.is_signed_integer(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    return bool(found.equals(wanted) or pa.types.is_null(found))


def _readable(name: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The table's schema with every column nullable, cut to `columns`."""
    table = table_named(name)
    known = {c.name: c for c in table.columns}
    for column in columns or ():
        if column not in known:
            raise HistoryError(f"table {name} has no column {column!r}; it has {', '.join(known)}")
    return pa.schema([pa.field(c, known[c].type) for c in (known if columns is None else columns)])
