"""The stored tables of a run as Spark DataFrames, each with every column of harness.history.schema.

Files written by an older or another writer may lack columns: those are null. A table without a readable file is
missing; `Stored.table` then gives an empty frame, and `Stored.has` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from checkers.spark.files import read_parquet
from checkers.spark.scratch import empty_frame, one_partition
from checkers.spark.session import SMALL_ROWS, tuned
from harness.history.parts import partition_values
from harness.history.runfile import RunMeta
from harness.history.schema import TABLES
from harness.history.store import StoredRun, open_run

_SPARK_TYPES: dict[pa.DataType, T.DataType] = {
    pa.int64(): T.LongType(),
    pa.int32(): T.IntegerType(),
    pa.int16(): T.ShortType(),
    pa.string(): T.StringType(),
    pa.bool_(): T.BooleanType(),
    pa.list_(pa.int32()): T.ArrayType(T.IntegerType()),
}


def spark_schema(table: str) -> T.StructType:
    """The table's schema for Spark; every column is nullable, as Parquet readers make it."""
    return T.StructType([T.StructField(c.name, _SPARK_TYPES[c.type], True) for c in TABLES[table].columns])


@dataclass(frozen=True)
class Stored:
    """A run folder opened for checking. `spark`: a session whose settings fit the run's size. `rows`, `size` (bytes of
    the files): of all tables."""

    run: StoredRun
    spark: SparkSession
    rows: int
    size: int

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    @property
    def meta(self) -> RunMeta:
        """run.json."""
        return self.run.meta

    @property
    def small(self) -> bool:
        """Whether planning and scheduling cost more than processing the data."""
        return self.rows <= SMALL_ROWS

    @property
    def imported(self) -> bool:
        """Whether the history was written by something other than `shatter run`."""
        return self.run.meta.source != "shatter"

    def has(self, table: str) -> bool:
        """Whether the table has at least one readable file."""
        return self.run.has(table)

    def table(self, name: str) -> DataFrame:
        """The whole table; empty when it is missing."""
        schema = spark_schema(name)
        if not self.has(name):
            return empty_frame(self.spark, schema)
        folder, files = self.path / name, self.run.files[name]
        flat = [file for file in files if file.parent == folder]
        frames = []
        if flat:
            # The folder rather than its files, if it holds nothing else: Spark lists one folder faster than many files.
            seen = {entry.name for entry in folder.iterdir() if not entry.name.startswith((".", "_"))}
            paths = [folder] if seen == {file.name for file in flat} else flat
            frames.append(read_parquet(self.spark, schema, *paths))
        names = [field.name for field in schema.fields]
        nested = self._by_columns(folder, [file for file in files if file.parent != folder])
        frames += [read_parquet(self.spark, schema, *group, base=folder).select(*names) for group in nested]
        whole = reduce(DataFrame.unionAll, frames)
        return one_partition(whole) if self.small else whole

    @staticmethod
    def _by_columns(folder: Path, files: Sequence[Path]) -> list[list[Path]]:
        """Files in COLUMN=VALUE folders, grouped by the columns that their folders define."""
        groups: dict[tuple[str, ...], list[Path]] = {}
        for file in files:
            groups.setdefault(tuple(partition_values(file, folder) or ()), []).append(file)
        return list(groups.values())


def open_stored(path: Path, spark: SparkSession) -> Stored:
    """Open a run folder; torn files are left out and named in `run.problems`. Raises HistoryError when it is not a
    run."""
    run = open_run(path, leave_out_torn=True)
    rows = sum(run.rows(table) for table in run.files)
    size = sum(file.stat().st_size for files in run.files.values() for file in files)
    return Stored(run=run, spark=tuned(spark, rows=rows), rows=rows, size=size)
