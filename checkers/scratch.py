"""Intermediate results on disk: computed once, in columns, and forgotten by the plans that use them.

A view that several checkers need is written as Parquet and read back. That bounds memory, whatever the size of the
run, and keeps plans short: Spark analyses a plan anew at every step, so that views built on views on views would cost
more than the data. A view without rows becomes an empty relation, of which the optimiser leaves nothing.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T


def empty_frame(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows, in a way that the optimiser sees (createDataFrame makes an RDD, which it cannot look into)."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(0).select(*columns).where(F.lit(False))


def row_count(folder: Path) -> int:
    """Rows of a folder of Parquet files, from their footers."""
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


class Scratch:
    """A folder of kept frames. On a cluster it must lie on a path that all workers share, as the run's does."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self._spark = spark
        self._empty: list[DataFrame] = []
        self._numbers = itertools.count(1)

    def store(self, frame: DataFrame) -> Path:
        """Compute the frame now; gives the folder of Parquet files that holds it."""
        folder = self.folder / f"{next(self._numbers):03d}"
        frame.write.parquet(str(folder))
        return folder

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now; what is returned reads the result."""
        folder = self.store(frame)
        schema = frame.schema
        if row_count(folder) == 0:
            self._empty.append(empty_frame(self._spark, schema))
            return self._empty[-1]
        return self._spark.read.schema(schema).parquet(str(folder))

    def is_empty(self, frame: DataFrame) -> bool:
        """Whether it is a kept frame (itself, not one made of it) without rows."""
        return any(frame is empty for empty in self._empty)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
