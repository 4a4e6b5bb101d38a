"""Runs checkers one by one and stores what they find, so that one that fails takes nothing from the others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from checkers.base import ANOMALY_COLUMNS, Checker
from checkers.scratch import row_count
from checkers.tables import Tables
from harness.errors import StorageError

FOLDER = "anomalies"


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """anomalies: everything found, read back from results/anomalies (None: nothing). failed: checker → why it gave no
    answer. seconds: checker → wall time, shared views included in the first that needs them."""

    anomalies: DataFrame | None
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def gather(tables: Tables, chosen: Sequence[Checker]) -> Gathered:
    """Run the checkers and replace RUN/results/anomalies by what they found: one folder of Parquet files, or none.

    Raises StorageError when the results cannot be written.
    """
    results = tables.stored.path / "results"
    folder, fresh = results / FOLDER, results / f"_{FOLDER}"
    failed: dict[str, str] = {}
    seconds: dict[str, float] = {}
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for checker in chosen:
            began = time.monotonic()
            why = _run(checker, tables, fresh)
            if why is not None:
                failed[checker.name] = why
            seconds[checker.name] = round(time.monotonic() - began, 2)
        shutil.rmtree(folder, ignore_errors=True)
        if any(fresh.glob("*.parquet")):
            fresh.rename(folder)
        else:
            fresh.rmdir()
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written: {error.strerror or error}; free space there, or copy the run elsewhere"
        ) from error
    if not folder.exists():
        return Gathered(anomalies=None, failed=failed, seconds=seconds)
    schema = ", ".join(f"`{name}` {kind}" for name, kind in ANOMALY_COLUMNS)
    found = tables.spark.read.schema(schema).parquet(str(folder))
    return Gathered(anomalies=found, failed=failed, seconds=seconds)


def _run(checker: Checker, tables: Tables, fresh: Path) -> str | None:
    """Store what one checker finds as fresh/CHECKER-N.parquet; returns why it could not be told."""
    own = fresh / checker.name
    try:
        found = checker.find(tables)
        if found is None:
            return None
        # A few rows make one file; in a large run Spark splits them by size.
        found = found.hint("rebalance") if tables.large else found.coalesce(1)
        found.write.mode("overwrite").parquet(str(own))
        if row_count(own):
            for number, file in enumerate(sorted(own.glob("*.parquet"))):
                file.rename(fresh / f"{checker.name}-{number:05d}.parquet")
    except (PySparkException, Py4JError, ValueError, KeyError, TypeError, AttributeError) as error:
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return None
