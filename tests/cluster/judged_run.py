"""Small runs of the reference mirror as a user starts them, judged; and their stored tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from rich.console import Console

from harness.cli.judging import check_run
from harness.clusters.docker.images import ImageSet
from harness.core.progress import RichDisplay
from harness.core.signals import Interrupts
from harness.core.testspec import parse_spec
from harness.report.results import Results
from harness.run.plan import make_plan
from harness.run.runner import run_test

SMALL = {"mirror": "reference", "topics": 1, "partitions": 3, "rate": 150, "producers": 2, "consumers": 1}


def judged(images: ImageSet, out: Path, spark: SparkSession, **keys: object) -> Results:
    """Run a small test and judge it. A run that did not finish fails here, with its reason."""
    plan = make_plan(parse_spec({**SMALL, **keys}, where="test"))
    result = run_test(plan, images=images, out=out, display=RichDisplay(Console()), interrupts=Interrupts())
    assert result.status == "finished", result.why
    return check_run(result.folder, contract=None, spark=spark)


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    """A stored table of the one run in a folder."""
    (run,) = out.iterdir()
    return ds.dataset(run / table, format="parquet").to_table().to_pylist()  # type: ignore[no-any-return]
