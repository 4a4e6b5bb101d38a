"""Makes the archive of the classes that Spark loads (see spark.class_archive), by judging a tiny history.

python -m checkers.judge.make_class_archive
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from checkers.judge.judge import judge
from checkers.spark.class_archive import QUIET, archive
from checkers.spark.session import find_java, spark_session
from harness.core.errors import ShatterError
from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES

_EXIT_S = 120


def make() -> Path:
    """Recreate the archive."""
    file = archive(find_java())
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        spark = spark_session(java_options=(*QUIET, f"-XX:ArchiveClassesAtExit={fresh}"))
        run = _history(Path(folder) / "run")
        judge(run, "mm2-at-least-once", spark)
        # What large runs use in addition: compiled code, adaptive plans, Python workers.
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
    """A run folder with one meaningless row in each table, so that every checker has something to check."""
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
    """Make the archive if there is none. Never fails: the archive is optional."""
    say = sys.stderr.write
    try:
        if not archive(find_java()).exists():
            say("archiving the classes that Spark loads, for faster checks (a minute, once)\n")
            make()
    except (ShatterError, OSError, Py4JError, PySparkException, subprocess.TimeoutExpired) as error:
        say(f"the classes that Spark loads are not archived, checks start some seconds later: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
