"""Small runs of the reference mirror as a user makes them, judged; and their stored tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from rich.console import Console

from harness.clusters.images import ImageSet
from harness.commands import check_run
from harness.progress import RichDisplay
from harness.provision import make_plan
from harness.report.results import Results
from harness.runner import run_test
from harness.signals import Interrupts
from harness.testspec import parse_spec

SMALL = {"mirror": "reference", "topics": 1, "partitions": 3, "rate": 150, "producers": 2, "consumers": 1}


def judged(images: ImageSet, out: Path, spark: SparkSession, **keys: object) -> Results:
    """Run a small test and judge it. A run that did not get to its end fails here, with its reason."""
    plan = make_plan(parse_spec({**SMALL, **keys}, where="test"))
    result = run_test(plan, images=images, out=out, display=RichDisplay(Console()), interrupts=Interrupts())
    assert result.status == "finished", result.why
    return check_run(result.folder, contract=None, spark=spark)


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    """A stored table of the one run in a folder."""
    (run,) = out.iterdir()
    return ds.dataset(run / table, format="parquet").to_table().to_pylist()  # type: ignore[no-any-return]
