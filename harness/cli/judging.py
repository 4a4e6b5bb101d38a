"""Judging a stored run for a command: the Spark session, the judge, and showing results without risking the verdict."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.report.results import Results, load_results
from harness.report.terminal import print_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Spark:
    """One Spark session for all checks of a command, made at the first one."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """The session; a new one where the JVM of the last has died."""
        from checkers.spark.session import jvm_died, spark_session

        if self._session is not None and jvm_died():
            self.forget()
        if self._session is None:
            self._session = spark_session(master=self._master)
        return self._session

    def close(self) -> None:
        """Stop it."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def end(self) -> None:
        """Stop it; an error while stopping is ignored, because all results are printed by then."""
        with suppress(Exception):
            self.close()

    def forget(self) -> None:
        """Give up the session, whose JVM may have died: the next check gets a new one."""
        from checkers.spark.session import forget_dead_jvm

        self.end()
        forget_dead_jvm()


def check_run(folder: Path, *, contract: str | None, spark: SparkSession) -> Results:
    """Decode the evidence if that is still to be done, judge, store results.json, and return it."""
    from checkers.judge.judge import judge
    from checkers.spark.session import living_jvm
    from harness.evidence.decode import decode_run, needs_decoding

    with living_jvm(f"the check of {folder}"):
        if needs_decoding(folder):
            decode_run(spark, folder)
        judge(folder, contract, spark)
    return load_results(folder)


def show_softly(console: Console, results: Results, *, run: Path, report: Path | None) -> None:
    """Print a verdict. An error while printing changes nothing about the verdict."""
    try:
        print_results(console, results, run=run, report=report)
    except Exception as error:
        console.print(f"the verdict is {results.verdict}, and cannot be shown: {own_fault(error)}", markup=False)


def own_fault(error: Exception) -> str:
    """An exception as one short line."""
    first_line = (str(error).strip().splitlines() or ["no reason given"])[0]
    return f"{type(error).__name__}: {first_line[:300]}"
