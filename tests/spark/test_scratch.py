"""Cached frames: the same rows and columns from memory, from files of this process and from Spark's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkers.spark.scratch import Scratch


def frame(spark: SparkSession, rows: int) -> DataFrame:
    text = F.when(F.col("id") % 3 != 0, F.concat(F.lit("v"), "id"))  # null in every third row
    return spark.range(rows).select("id", text.alias("value"), F.array("id", F.col("id") * 2).alias("pair"))


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("rows", [1, 50_000])
def test_cached_rows_equal_the_computed_ones(spark: SparkSession, tmp_path: Path, rows: int, small: bool) -> None:
    scratch = Scratch(tmp_path / "scratch", spark, small=small)
    whole = frame(spark, rows)
    kept = scratch.keep(whole)
    assert kept.dtypes == whole.dtypes
    assert sorted(kept.collect()) == sorted(whole.collect())
    assert not scratch.is_empty(kept)
    assert (tmp_path / "scratch").exists() == (rows > 1 or not small), "few rows of a small run need no file"
    scratch.close()
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("small", [True, False])
def test_a_frame_without_rows_is_known_to_be_empty(spark: SparkSession, tmp_path: Path, small: bool) -> None:
    scratch = Scratch(tmp_path / "scratch", spark, small=small)
    kept = scratch.keep(frame(spark, 10).where("id > 99"))
    assert scratch.is_empty(kept)
    assert kept.columns == ["id", "value", "pair"]
    assert kept.collect() == []
    scratch.close()
