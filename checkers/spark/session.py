"""The Spark session that checks run in: local by default, any master on request."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyspark.core.context
from pyspark import SparkContext
from pyspark.sql import SparkSession

from checkers.spark import class_archive
from checkers.spark.gateway import save_requests
from harness.core.errors import ShatterError
from harness.core.owners import new_temporary, release

OLDEST_JAVA = 17
MASTER = "local[*]"
_LOOPBACK = re.compile(r"spark://(127\.\d+\.\d+\.\d+|localhost):")
_FOLDERS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines")


def java_version(java: Path) -> int | None:
    """Major version of a `java` binary; None when it does not run within 20 s."""
    try:  # the `release` file in its folder saves a start
        release = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except OSError:
        release = ""
    if said := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE):
        return int(said[1]) if os.access(java, os.X_OK) else None
    try:
        run = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else None


def find_java() -> Path:
    """The JAVA_HOME for Spark. Raises ShatterError when no Java 17 or newer is found.

    Tried in order: JAVA_HOME, `java` in PATH, the usual folders (the oldest that is new enough, because Spark
    supports new releases late).
    """
    candidates: list[Path] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home))
    if found := shutil.which("java"):
        candidates.append(Path(found).resolve().parent.parent)
    for folder in _FOLDERS:
        homes = [h / "Contents/Home" if (h / "Contents/Home").exists() else h for h in sorted(Path(folder).glob("*"))]
        candidates.extend(sorted(homes, key=lambda h: java_version(h / "bin/java") or 0) if homes else [])
        if candidates and (java_version(candidates[0] / "bin/java") or 0) >= OLDEST_JAVA:
            break
    for home_ in candidates:
        if (java_version(home_ / "bin/java") or 0) >= OLDEST_JAVA:
            return home_
    raise ShatterError(
        f"no Java {OLDEST_JAVA} or newer was found, which Spark needs: install one (Debian, Ubuntu: apt-get install"
        " openjdk-17-jre-headless) or point JAVA_HOME at it"
    )


def spark_session(
    *,
    master: str = MASTER,
    memory: str = "2g",
    app: str = "shatterproof",
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """A session, made or reused: adaptive execution, no UI, quiet logs, UTC.

    `memory` bounds the driver, which in local mode is the only process. Raises ShatterError without Java, or when the
    master cannot be reached. `java_options`: of the driver's JVM; None: those that use the archive of classes.
    """
    if SparkSession.getActiveSession() is None:
        java = find_java()
        os.environ["JAVA_HOME"] = str(java)
        java_options = class_archive.options(java) if java_options is None else java_options
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for noisy in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    temporary = _temporary()
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in _options(master, memory, _java_options(java_options or (), temporary)).items():
        builder = builder.config(key, value)
    try:
        with _quiet_launch(), _launch_settings(temporary):
            session = builder.getOrCreate()
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ShatterError(
            f"Spark did not start on master {master}: {reason[0] if reason else type(error).__name__}; check --master"
            " and JAVA_HOME"
        ) from error
    save_requests()
    return session


def _options(master: str, memory: str, java_options: str) -> dict[str, str]:
    local = master.startswith("local")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
        "spark.sql.shuffle.partitions": str(_cores(master) * 2) if local else "200",
        "spark.sql.files.openCostInBytes": "262144",
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.codegen.wholeStage": "true",
        # One check compiles some hundreds of classes, most of which the next one needs again: with Spark's default of
        # 100 every check compiles all of them.
        "spark.sql.codegen.cache.maxEntries": "3000",
        # Else every column and function asks Spark six more times, to name this code's line in an error's context.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ui.explainMode": "simple",  # of every step of every query, and shown nowhere
        "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
        "spark.log.level": "ERROR",
        # Without checksum files: those in a foreign folder may be stale, and a name with a colon breaks them.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if local or _LOOPBACK.match(master):
        # A local driver must listen on localhost, whatever the host's name resolves to. Remote workers must reach it at
        # an address that Spark, or SPARK_LOCAL_IP, determines.
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return options


def _temporary() -> Path | None:
    """The folder for temporary files of a JVM that is about to be started, including Spark's own, which a killed JVM
    leaves behind; it is removed with this process. None where the JVM runs already.

    SPARK_LOCAL_DIRS and spark.local.dir still determine where Spark spills to.
    """
    if SparkContext._gateway is not None:
        return None
    folder = new_temporary("spark")
    atexit.register(release, folder)
    return folder


def jvm_died() -> bool:
    """Whether the JVM that PySpark started has ended (e.g. because it was killed)."""
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


@contextmanager
def living_jvm(what: str) -> Iterator[None]:
    """Within the block failures due to a dead JVM become one sentence. what: `the check of runs/x`.

    Raises: ShatterError when the JVM has ended, even if nothing failed because of it.
    """
    try:
        yield
    except Exception as error:
        if jvm_died():
            raise _dead(what) from error
        raise
    if jvm_died():
        raise _dead(what)


def _dead(what: str) -> ShatterError:
    return ShatterError(
        f"Spark's JVM ended during {what} (it was killed, or there was no memory), so there is no verdict; free memory "
        "and call `shatter check` for it"
    )


def forget_dead_jvm() -> None:
    """Let the next session start a new JVM if the one that PySpark holds has ended."""
    if not jvm_died():
        return
    context: Any = SparkContext
    session: Any = SparkSession
    context._gateway = context._jvm = context._active_spark_context = None
    session._instantiatedSession = None


@contextmanager
def _launch_settings(temporary: Path | None) -> Iterator[None]:
    """Changes two globals within the block: where PySpark's launcher creates temporary folders, and SIGINT, whose
    handler PySpark would replace."""
    context: Any = pyspark.core.context
    before = tempfile.tempdir, context.signal
    tempfile.tempdir = str(temporary) if temporary is not None else tempfile.tempdir
    context.signal = SimpleNamespace(signal=lambda *_: None, SIGINT=signal.SIGINT)
    try:
        yield
    finally:
        tempfile.tempdir, context.signal = before


@contextmanager
def _quiet_launch() -> Iterator[None]:
    """Redirect the stderr of the JVM that is started within the block to a file.

    Its launcher prints lines there that no log configuration controls. When it does not start, its output is printed.
    """
    if SparkSession.getActiveSession() is not None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile("w+b") as file:
            os.dup2(file.fileno(), 2)
            try:
                yield
            except BaseException:
                file.seek(0)
                os.write(kept, file.read())
                raise
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)


def name_call_sites(spark: SparkSession) -> None:
    """Give everything that this thread asks Spark for one name. Without one Spark searches the stack of calls for the
    name of each step of each query, which takes a twentieth of the time of a check."""
    for key in ("callSite.short", "callSite.long"):
        spark.sparkContext.setLocalProperty(key, "check")


SMALL_ROWS = 200_000
"""Up to this many stored rows compiling and planning cost more than processing the data."""

_UNCOMPILED_ROWS: Final = 20_000


def tuned(spark: SparkSession, *, rows: int) -> SparkSession:
    """A session on the same Spark with settings for a run of this many stored rows; `spark` itself is unchanged.

    A small run is one partition from its files to the result: no exchanges, broadcasts or tasks that only wait for each
    other, which cost more than its data.
    """
    session = spark.newSession()
    if rows <= SMALL_ROWS:
        options = {
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.leafNodeDefaultParallelism": "1",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.optimizer.disableHints": "true",
            "spark.sql.constraintPropagation.enabled": "false",  # what it infers saves reading rows, of which few exist
            # Expressions are evaluated as trees: compiling a class for each pays off for many rows only.
            **({"spark.sql.codegen.factoryMode": "NO_CODEGEN"} if rows <= _UNCOMPILED_ROWS else {}),
        }
        for key, value in options.items():
            session.conf.set(key, value)
    return session


def _cores(master: str) -> int:
    found = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master)
    if found:
        return max(1, int(found[1]))
    return 1 if master == "local" else os.cpu_count() or 1


def _java_options(more: Sequence[str], temporary: Path | None) -> str:
    """A log4j configuration that keeps Spark's start-up messages off the terminal, and only the C1 compiler.

    The optimising compiler takes half of the processor time of a check of minutes and paid off in none of the measured
    checks, from ten lines of history to a million.
    """
    path = Path(__file__).with_name("log4j2.properties")
    own = (
        f"-Dlog4j2.configurationFile={path.as_uri()}",
        *("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"),
        # Without concurrent marking, which the classes that Spark generates start again and again.
        *("-XX:+UseParallelGC", "-XX:MetaspaceSize=256m"),
    )
    if temporary is not None:
        more = (*more, f"-Djava.io.tmpdir={temporary}")
    return " ".join(f'"{option}"' if " " in option else option for option in (*own, *more))
