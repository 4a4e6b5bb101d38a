"""The files of a table: those in its folder, and those in folders below that are named COLUMN=VALUE.

The second is the layout of Hive and Spark's `partitionBy`: such a folder gives a column's value for all rows below it,
and the files leave that column out (where they have it all the same, the folder's name counts). Names that begin with a
dot or an underscore, checksum files among them, are ignored, and so is any other folder. An entry with the name of a
table's file that is not a regular file (a named pipe, a device, a folder, a dangling link) is reported, never opened.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from harness.core.errors import HistoryError
from harness.history.schema import TABLES, Column

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_FLAGS: Final = {"true": True, "false": False}


@dataclass
class Parts:
    """files: in order of their paths. problems: one sentence for each entry that is named like a file but is none."""

    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def table_parts(folder: Path) -> Parts:
    """The files of the table whose name this folder has; none where there is no folder.

    Raises HistoryError for a folder's value that does not fit its column, or a folder that cannot be listed.
    """
    found = Parts()
    try:
        if folder.is_dir():
            _collect(folder, folder, found)
    except OSError as error:
        raise HistoryError(f"{error.filename or folder} cannot be read: {error.strerror}; make it readable") from error
    found.files.sort()
    return found


def _collect(folder: Path, top: Path, found: Parts) -> None:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        if entry.suffix == ".parquet":
            if entry.is_file():
                found.files.append(entry)
            else:
                found.problems.append(f"{entry} is not a regular file, so nothing of it is read; move it away")
        elif "=" in entry.name and entry.is_dir():
            if partition_values(entry, top) is not None:
                _collect(entry, top, found)
            elif any(entry.rglob("*.parquet")):
                column = entry.name.partition("=")[0]
                found.problems.append(
                    f"{entry} is named for {column!r}, which is no column of table {top.name} (or a second time), so "
                    "what it holds is not read; move its files up, or move it away"
                )


def partition_values(path: Path, top: Path) -> dict[str, Any] | None:
    """Column → value, from the names of the folders between a table's folder and this file or folder in it.

    None when one of them does not name a column, or names a list or a column that another one names already.
    Raises HistoryError for a value that does not fit its column.
    """
    columns = {column.name: column for column in TABLES[top.name].columns}
    values: dict[str, Any] = {}
    folders = path.relative_to(top).parts
    for name in folders if path.suffix != ".parquet" else folders[:-1]:
        key, _, text = name.partition("=")
        column = columns.get(key)
        if column is None or key in values or pa.types.is_list(column.type):
            return None
        values[key] = _value(urllib.parse.unquote(text), column, path)
    return values


def _value(text: str, column: Column, path: Path) -> Any:
    if text == _NULL and column.nullable:
        return None
    value: Any = text
    if pa.types.is_boolean(column.type):
        value = _FLAGS.get(text.lower())
    elif pa.types.is_integer(column.type):
        value = int(text) if text.lstrip("-").isdecimal() and len(text) < 20 else None
    try:
        if value is None or (text == _NULL and not column.nullable):
            raise ValueError
        pa.scalar(value, column.type)
    except (ValueError, pa.ArrowException):
        raise HistoryError(
            f"{path}: {column.name}={text!r} does not fit column {column.name} ({column.type}: {column.doc}); rename "
            "the folder"
        ) from None
    return value
