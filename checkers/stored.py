"""The stored tables of a run as Spark DataFrames, each with every column of harness.history.schema.

Files written by an older or another writer may lack columns: those are null. A table without a readable file is
missing; `Stored.table` then gives an empty frame, and `Stored.has` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from harness.history.runfile import RunMeta, read_meta
from harness.history.schema import TABLES

_SPARK_TYPES: dict[pa.DataType, T.DataType] = {
    pa.int64(): T.LongType(),
    pa.int32(): T.IntegerType(),
    pa.int16(): T.ShortType(),
    pa.string(): T.StringType(),
    pa.bool_(): T.BooleanType(),
    pa.list_(pa.int32()): T.ArrayType(T.IntegerType()),
}


def spark_schema(table: str) -> T.StructType:
    """The table's schema as Spark sees it; every column nullable, because Parquet readers make it so."""
    return T.StructType([T.StructField(c.name, _SPARK_TYPES[c.type], True) for c in TABLES[table].columns])


@dataclass(frozen=True)
class Stored:
    """A run folder opened for checking. `files`: table → its readable Parquet files. `problems`: one sentence each."""

    path: Path
    meta: RunMeta
    files: dict[str, tuple[str, ...]]
    spark: SparkSession
    problems: tuple[str, ...] = ()

    @property
    def imported(self) -> bool:
        """Whether the history was written by something else than `shatter run`."""
        return self.meta.source != "shatter"

    def has(self, table: str) -> bool:
        """Whether the table has at least one readable file."""
        return bool(self.files.get(table))

    def table(self, name: str) -> DataFrame:
        """The whole table; empty when it is missing."""
        schema = spark_schema(name)
        if not self.has(name):
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(*self.files[name])


def open_stored(path: Path, spark: SparkSession) -> Stored:
    """Open a run folder. Raises HistoryError when it is not one."""
    meta = read_meta(path)
    files = {name: tuple(sorted(str(p) for p in (path / name).glob("*.parquet"))) for name in TABLES}
    return Stored(path=path, meta=meta, files={k: v for k, v in files.items() if v}, spark=spark)
