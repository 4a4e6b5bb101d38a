"""Passes the files of a run to Spark by their literal names, never as patterns or addresses.

Spark treats a path as a pattern (`[ ] { } * ?`), and a relative one with a colon as the address of a file system.
All Parquet is read by `read_parquet` and written by `write_parquet`; the session (checkers.spark.session) reads and
writes local files without checksum files, whose names a colon breaks and which may be stale.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T


def read_parquet(spark: SparkSession, schema: T.StructType | str, *paths: Path, base: Path | None = None) -> DataFrame:
    """The rows of files, or of all files of a folder. base: folder below which COLUMN=VALUE folders define columns."""
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    if base is not None:
        reader = reader.option("basePath", _plain(base))
    return reader.parquet(*map(_plain, paths))


def write_parquet(frame: DataFrame, folder: Path, *, overwrite: bool = False) -> None:
    """Store the frame as a folder of Parquet files."""
    frame.write.mode("overwrite" if overwrite else "errorifexists").parquet(_plain(folder))


def _plain(path: Path) -> str:
    return str(path.absolute())
