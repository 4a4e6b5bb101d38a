"""Intermediate results: computed once, stored in columns, and read back without their plans.

A view that several checkers need is written as Parquet and read back. That bounds memory, whatever the size of the
run, and keeps plans short: Spark analyses the whole plan again at every step, so views built on views on views would
cost more than the data. A view without rows becomes an empty relation, which the optimiser removes. In a small run a
small view stays in memory: it becomes a local relation in the plan, and whatever is derived only from it is computed
while planning.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from checkers.spark.files import read_parquet, write_parquet
from harness.core.owners import claim, release

_HELD_BYTES = 512 * 1024
"""Up to this size a view of a small run is held in memory."""


def empty_frame(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows, in a form that the optimiser recognises (createDataFrame makes an RDD, which is opaque to it)."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(0).select(*columns).where(F.lit(False))


def one_partition(frame: DataFrame) -> DataFrame:
    """The frame as one partition, so that nothing made of it needs an exchange."""
    return frame.coalesce(1)


def row_count(folder: Path) -> int:
    """Rows of a folder of Parquet files, from their footers."""
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


class Scratch:
    """Kept frames, in a folder unless they are small. On a cluster all workers must share it, like the run's folder.

    small: whether the run is so small that everything derived from it may pass through this process.
    """

    def __init__(self, folder: Path, spark: SparkSession, *, small: bool = False) -> None:
        self.folder = folder
        self._spark = spark
        self.small = small
        self._empty: list[DataFrame] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._claimed = False

    def store(self, frame: DataFrame) -> Path:
        """Compute the frame now; returns the folder of Parquet files that holds it."""
        folder = self._next()
        write_parquet(frame, folder)
        return folder

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now; what is returned reads the result."""
        schema = frame.schema
        if not self.small:
            folder = self.store(frame)
            return self._read(folder, schema) if row_count(folder) else self.nothing(schema)
        table = frame.toArrow()
        if not table.num_rows:
            return self.nothing(schema)
        if table.nbytes <= _HELD_BYTES:
            return self._spark.createDataFrame(table, schema)
        return one_partition(self._read(self._write(table), schema))

    def _next(self) -> Path:
        with self._lock:
            if not self._claimed:
                claim(self.folder)
                self._claimed = True
            return self.folder / f"{next(self._numbers):03d}"

    def _read(self, folder: Path, schema: T.StructType) -> DataFrame:
        return read_parquet(self._spark, schema, folder)

    def nothing(self, schema: T.StructType) -> DataFrame:
        """A kept frame without rows."""
        self._empty.append(empty_frame(self._spark, schema))
        return self._empty[-1]

    def _write(self, table: pa.Table) -> Path:
        folder = self._next()
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part-000000.parquet")
        return folder

    def is_empty(self, frame: DataFrame) -> bool:
        """Whether it is a kept frame (itself, not one made of it) without rows."""
        return any(frame is empty for empty in self._empty)

    def close(self) -> None:
        """Remove everything."""
        release(self.folder)
