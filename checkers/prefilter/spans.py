"""Ranges of the history's index, each with the files that hold it, so that one task reads a range and nothing else.

Events and records are written in the order of their index, and Parquet footers have the least and the greatest index of
every row group. A range is read from both tables at once, so that records are joined to their events without a shuffle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from harness.history.schema import TABLES

SPAN_ROWS = 1_000_000
INDEX: Mapping[str, str] = {"ops": "index", "op_records": "op_index"}
"""Column that holds the index, by table."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SCATTERED = 3
"""How many times rows may be read before it is cheaper to sort the table first."""
_UNIQUE = ("value", "txn")
"""String columns that hardly repeat; the others are read as dictionaries."""


@dataclass(frozen=True)
class Span:
    """A range of the index, from `low` to below `high`, and by table the files that hold rows of it."""

    low: int
    high: int
    files: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Group:
    """A row group: file, rows, least and greatest index."""

    file: str
    rows: int
    low: int
    high: int


def plan(files: Mapping[str, Sequence[Path]]) -> tuple[Span, ...]:
    """Ranges of about SPAN_ROWS records each."""
    groups = {table: _groups(files[table], INDEX[table]) for table in INDEX}
    cuts = [_LEAST, *_cuts(groups["op_records"], SPAN_ROWS), _MOST]
    return tuple(
        Span(low, high, {table: _within(found, low, high) for table, found in groups.items()})
        for low, high in pairwise(cuts)
    )


def scattered(files: Mapping[str, Sequence[Path]], planned: Sequence[Span]) -> bool:
    """Whether the tables are not sorted, so that the ranges would read many rows several times."""
    groups = [g for table in INDEX for g in _groups(files[table], INDEX[table])]
    read = sum(g.rows * sum(s.low <= g.high and g.low < s.high for s in planned) for g in groups)
    return read > _SCATTERED * sum(g.rows for g in groups)


def _groups(files: Sequence[Path], column: str) -> list[_Group]:
    found = []
    for file in files:
        footer = pq.read_metadata(file)
        at = footer.schema.to_arrow_schema().get_field_index(column)
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            known = group.column(at).statistics
            low, high = (known.min, known.max) if known is not None and known.has_min_max else (_LEAST, _MOST)
            if group.num_rows:
                found.append(_Group(str(file), group.num_rows, low, high))
    return sorted(found, key=lambda g: (g.low, g.file))


def _cuts(groups: Sequence[_Group], rows: int) -> list[int]:
    """The starts of the ranges, ascending, without the first."""
    cuts: set[int] = set()
    held = 0
    for group in groups:
        if held and held + group.rows > rows:
            cuts.add(group.low)
            held = 0
        held += group.rows
        if group.rows > 2 * rows:  # a foreign file: cut within the group, as if the index were spread evenly
            pieces = group.rows // rows
            cuts.update(group.low + (group.high - group.low) * n // pieces for n in range(1, pieces))
            held = rows
    return sorted(c for c in cuts if c > _LEAST)


def _within(groups: Sequence[_Group], low: int, high: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(g.file for g in groups if g.low < high and g.high >= low))


def read(span: Span, table: str, columns: Sequence[str]) -> pa.Table:
    """The range's rows of a table in order of the index, in one chunk; strings that repeat come as dictionaries."""
    index = INDEX[table]
    fields = [TABLES[table].schema.field(c) for c in columns]
    names = [f.name for f in fields if f.type == pa.string() and f.name not in _UNIQUE]
    coded = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([pa.field(f.name, coded if f.name in names else f.type) for f in fields])
    if not span.files[table]:
        return schema.empty_table()
    parquet = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=names))
    held = ds.dataset(list(span.files[table]), schema=schema, format=parquet)
    rows = held.to_table(filter=(pc.field(index) >= span.low) & (pc.field(index) < span.high), use_threads=False)
    rows = rows.unify_dictionaries().combine_chunks()
    keys = rows[index]
    if len(keys) > 1 and not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        rows = rows.take(pc.sort_indices(keys))
    return rows
