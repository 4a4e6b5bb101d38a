"""A Spark standalone cluster, one master and two workers, finds the same rows and verdict as one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from literal import History
from standalone import cluster
from test_cycles import Story, each_reads_the_other, two_writers

from bench.generate_history import Shape, generate
from checkers.spark.session import SMALL_ROWS
from harness.evidence.decode import needs_decoding
from harness.history.imports import as_run_folder
from harness.history.schema import TABLES

HERE = Path(__file__).parent.parent
SEGMENTS = HERE / "data" / "segments" / "A"
CASE = HERE / "histories" / "D05-replica-divergence-fast-failover.jsonl"
CODES = {True: 0, False: 1, "unknown": 2}
CHECK_S = 400


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


def like_a_run(folder: Path) -> Path:
    """A real run whose segment files are not decoded yet: one has a flipped bit, records are lost, transactions depend
    on each other."""
    h = History(source="shatter", clusters={"A": {}})
    for n in range(12):
        h.send("p", "A", "client-none", 0, f"v{n}", offset=n)
    two_writers(Story(h, "two"))
    each_reads_the_other(Story(h, "each"))
    h.poll("f", "A", "client-none", 0, (11, "v11"), phase="final")
    h.final_read("A", "client-none", 0, 12)
    h.write(folder)
    shutil.copytree(SEGMENTS, folder / "evidence" / "A")
    flipped = folder / "evidence" / "A" / "1" / "client-none-0" / "00000000000000000000.log"
    data = bytearray(flipped.read_bytes())
    data[200] ^= 1
    flipped.write_bytes(bytes(data))
    return folder


def recorded(folder: Path) -> Path:
    """A recorded case, imported."""
    with as_run_folder(CASE, keep=folder):
        return folder


def large(folder: Path) -> Path:
    """Large enough for the sieve, with a phantom, a value at a second offset, and two values at one."""
    counts = generate(folder, Shape(lines=60_000))
    assert counts["lines"] + counts["sent"] + counts["read"] > SMALL_ROWS
    known = pq.read_table(folder / "op_records" / "part-000000.parquet").slice(0, 2000).to_pylist()
    first, second, *_ = [r for r in known if r["action"] == "poll" and r["partition"] == 0]
    h = History()
    read = [(10**6, "nobody"), (10**6 + 1, first["value"]), (second["offset"], "another")]
    h.event("late", "ok", "poll", index=10**7, cluster="A", phase="load", isolation="read_uncommitted")
    place = {"op_index": 10**7, "action": "poll", "topic": "t", "partition": 0}
    for position, (offset, value) in enumerate(read):
        h.row("op_records", **place, position=position, offset=offset, value=value)
    extra = h.write(folder.parent / "extra")
    for table in ("ops", "op_records"):
        assert pq.read_schema(extra / table / "part-000000.parquet").equals(TABLES[table].schema)
        (extra / table / "part-000000.parquet").rename(folder / table / "part-900000.parquet")
    return folder


def check(run: Path, master: str, contract: str) -> dict[str, Any]:
    """Run `shatter check RUN --master …` in a separate process; its results."""
    command = [sys.executable, "-m", "harness.cli.app", "check", str(run), "--master", master, "--contract", contract]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False, env=environment)
    results: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert done.returncode == CODES[results["valid"]], done.stdout + done.stderr
    return results


def rows(run: Path) -> list[str]:
    """Every anomaly with all columns."""
    folder = run / "results" / "anomalies"
    return sorted(map(str, pq.read_table(folder).to_pylist())) if folder.exists() else []


FOUND = {
    like_a_run: {"lost_write", "crc_invalid", "cycle_G0", "cycle_G1c"},
    recorded: {"lost_write", "replica_divergence"},
    large: {"phantom", "duplicate", "inconsistent_offsets"},
}


@pytest.mark.parametrize("make", FOUND, ids=lambda make: make.__name__)
def test_a_cluster_finds_the_same_as_one_process(make: Any, master: str, tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    twin = Path(shutil.copytree(run, tmp_path / "twin"))
    if make is like_a_run:
        assert needs_decoding(run)
    alone = check(run, "local[*]", "kafka-clean")
    spread = check(twin, master, "kafka-clean")
    assert FOUND[make] <= set(alone["anomalies"]), alone["why"]
    assert not [why for why in spread["not_looked_at"].values() if "Error" in why], spread["not_looked_at"]
    told = ("valid", "anomalies", "looked_at", "not_looked_at", "figures")
    assert {name: spread[name] for name in told} == {name: alone[name] for name in told}
    assert spread["why"].replace(str(twin), str(run)) == alone["why"]
    assert rows(twin) == rows(run)
    assert rows(run)
    assert not list((twin / "results").glob("scratch*"))
