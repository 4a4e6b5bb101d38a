"""An archive of the classes that Spark loads, which halves the time from nothing to the first answer.

    python -m checkers.spark.class_archive

Loading and verifying some fifteen thousand classes takes the JVM several seconds of every check. It can keep them,
ready to be mapped into memory (class data sharing, JEP 350). The archive is made once, by make, of what judging a tiny
history needs, and lies in the virtual environment; it is of one Java and one Spark, and the JVM ignores one that does
not fit. Without it everything works, some seconds later.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from harness.core.errors import ShatterError
from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES

_FOLDER = Path(sys.prefix) / "share" / "shatterproof"
_QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_EXIT_S = 120


def archive(java_home: Path) -> Path:
    """Where the archive of this Java and this Spark is, or would be."""
    try:
        release = (java_home / "release").read_text(encoding="utf-8")
    except OSError:
        release = str(java_home)
    versions = {line.split("=")[0]: line.split("=")[-1].strip('"') for line in release.splitlines()}
    return _FOLDER / f"spark-{pyspark.__version__}-java-{versions.get('JAVA_VERSION', 'unknown')}.jsa"


def options(java_home: Path) -> tuple[str, ...]:
    """Options of the JVM that use the archive, if there is one."""
    file = archive(java_home)
    return (*_QUIET, f"-XX:SharedArchiveFile={file}") if file.exists() else ()


def make() -> Path:
    """Make the archive anew."""
    from checkers.judge.judge import judge
    from checkers.spark.session import find_java, spark_session

    file = archive(find_java())
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        spark = spark_session(java_options=(*_QUIET, f"-XX:ArchiveClassesAtExit={fresh}"))
        run = _history(Path(folder) / "run")
        judge(run, "mm2-at-least-once", spark)
        # What large runs use besides: compiled code, plans that change while they run, Python workers.
        rows = (
            spark.read.option("__globPaths__", "false")
            .parquet(str(run / "ops"))
            .mapInArrow(lambda batches: batches, "index bigint")
        )
        rows.groupBy("index").count().repartition(2).sortWithinPartitions("index").count()
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_S)
        fresh.replace(file)
    return file


def _history(folder: Path) -> Path:
    """A run folder with one meaningless row in each table, so that every checker has something to look at."""
    RunFile.create(folder, RunMeta(run_id="classes", status="finished", topic_map={"t": "t"}))
    for name, table in TABLES.items():
        row = {c.name: _anything(c.type) for c in table.columns if not c.nullable or c.name in ("cluster", "topic")}
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist([row], schema=table.schema), folder / name / "part-000000.parquet")
    return folder


def _anything(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return True
    return "A" if pa.types.is_string(kind) else 0


def main() -> int:
    """Make the archive where there is none. Never fails: it is good to have, no more."""
    from checkers.spark.session import find_java

    say = sys.stderr.write
    try:
        if not archive(find_java()).exists():
            say("keeping the classes that Spark loads, for faster checks (a minute, once)\n")
            make()
    except (ShatterError, OSError, Py4JError, PySparkException, subprocess.TimeoutExpired) as error:
        say(f"the classes that Spark loads are not kept, checks start some seconds later: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
