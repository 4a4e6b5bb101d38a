"""Runs checkers, several at a time, and stores their results; one that fails does not affect the others.

Spark spends most of a small check on planning, which uses one processor. So several threads submit queries; a shared
view is built by the first that needs it, and the others wait (`views`). The result does not depend on their order.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from checkers.base import ANOMALY_COLUMNS, Checker
from checkers.spark.files import read_parquet, write_parquet
from checkers.spark.scratch import row_count
from checkers.spark.session import jvm_died, name_call_sites
from checkers.views.tables import Tables
from harness.core.errors import ShatterError, StorageError
from harness.core.owners import REMEMBERED

FOLDER = "anomalies"
_FAILURES = (
    *(PySparkException, Py4JError, pa.ArrowException, MemoryError),
    *(ValueError, KeyError, TypeError, AttributeError),
)
NOTHING = "there is nothing of this sort in the run"


@dataclass(frozen=True, kw_only=True)
class CheckerResults:
    """anomalies: everything found, read back from results/anomalies (None: nothing). unanswered: checker → why it gave
    no answer. failures: one sentence for each that failed. seconds: checker → wall time, including waits for other
    checkers and shared views."""

    anomalies: DataFrame | None
    unanswered: dict[str, str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def run_checkers(tables: Tables, chosen: Sequence[Checker]) -> CheckerResults:
    """Run the checkers and replace RUN/results/anomalies with their findings: one folder of Parquet files, or none.

    Raises StorageError when the results cannot be written; ShatterError when Spark's JVM has ended.
    """
    results = tables.stored.path / "results"
    folder, fresh = results / FOLDER, results / f"_{FOLDER}"
    unanswered: dict[str, str] = {}
    failures: list[str] = []
    seconds: dict[str, float] = {}
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        REMEMBERED.add(fresh)
        for checker, (why, took) in zip(chosen, _all(tables, chosen, fresh), strict=True):
            seconds[checker.name] = took
            if why is not None:
                unanswered[checker.name] = why
                if why is not NOTHING:
                    failures.append(f"checker {checker.name} failed, so its kinds are not judged ({why})")
        if failures and jvm_died():
            raise ShatterError(f"Spark's JVM ended before every checker had finished ({failures[0]})")
        if failures and (damaged := tables.stored.run.damaged()):
            failures = damaged
            unanswered = {name: why if why is NOTHING else damaged[0] for name, why in unanswered.items()}
        shutil.rmtree(folder, ignore_errors=True)
        if any(fresh.glob("*.parquet")):
            fresh.rename(folder)
        else:
            fresh.rmdir()
        REMEMBERED.drop(fresh)
    except OSError as error:
        raise StorageError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}; free space there, or copy the "
            "run elsewhere"
        ) from error
    if not folder.exists():
        return CheckerResults(anomalies=None, unanswered=unanswered, failures=tuple(failures), seconds=seconds)
    schema = ", ".join(f"`{name}` {kind}" for name, kind in ANOMALY_COLUMNS)
    found = read_parquet(tables.spark, schema, folder)
    return CheckerResults(anomalies=found, unanswered=unanswered, failures=tuple(failures), seconds=seconds)


def _all(tables: Tables, chosen: Sequence[Checker], fresh: Path) -> list[tuple[str | None, float]]:
    """Run all checkers; returns for each why it gave no answer (None: it did), and seconds."""
    name_call_sites(tables.spark)
    workers = max(2, os.cpu_count() or 1)
    pool = ThreadPoolExecutor(workers, "checker", initializer=name_call_sites, initargs=(tables.spark,))
    try:
        return list(pool.map(lambda checker: _answer(checker, tables, fresh), chosen))
    except BaseException:
        tables.spark.sparkContext.cancelAllJobs()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _answer(checker: Checker, tables: Tables, fresh: Path) -> tuple[str | None, float]:
    began, why = time.monotonic(), None
    try:
        if not _run(checker, tables, fresh):
            why = NOTHING
    except _FAILURES as error:
        why = _reason(error)
    except ConnectionError as error:  # the JVM is gone
        why = _reason(error)
    except OSError as error:
        if error.errno is not None:  # of a file system: the results cannot be written
            raise
        why = _reason(error)  # Arrow cannot read what it was given
    return why, round(time.monotonic() - began, 2)


def _reason(error: BaseException) -> str:
    """One line. For an error in the JVM: the line that names a file, else the root cause."""
    said = [str(error)]
    cause = error.java_exception if isinstance(error, Py4JJavaError) else None
    while cause is not None:
        said.append(str(cause.toString()))
        cause = cause.getCause()
    lines = [text.strip().splitlines()[0][:300] for text in said if text.strip()]
    chosen = next((line for line in lines if ".parquet" in line), lines[-1] if lines else "no reason given")
    return f"{type(error).__name__}: {chosen}"


def _run(checker: Checker, tables: Tables, fresh: Path) -> bool:
    """Store one checker's findings as fresh/CHECKER-N.parquet; False when there was nothing to check."""
    if checker.skip is not None and checker.skip(tables):
        return True
    own = fresh / checker.name
    found = checker.check(tables)
    if found is None:
        return False
    if tables.is_empty(found):
        return True
    if not tables.large:
        table = found.toArrow()
        if table.num_rows:
            pq.write_table(table, fresh / f"{checker.name}-00000.parquet")
        return True
    found = found.hint("rebalance")  # files of a good size
    try:
        write_parquet(found, own, overwrite=True)
        if row_count(own):
            for number, file in enumerate(sorted(own.glob("*.parquet"))):
                file.rename(fresh / f"{checker.name}-{number:05d}.parquet")
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return True
