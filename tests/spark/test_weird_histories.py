"""Odd histories: a verdict, never a crash, through `shatter check` and through the judge after random damage."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import weird
from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from checkers.spark.stored import open_stored
from harness.core.errors import HistoryError
from harness.history.imports import as_run_folder
from harness.history.jsonl.importer import import_jsonl

CODES = {"valid": 0, "invalid": 1, "unknown": 2}


def check(file: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    """`shatter check FILE --json`: exit code, results, and other output."""
    command = [sys.executable, "-m", "harness.cli.app", "check", str(file), "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr


def written(file: Path, events: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(e) + "\n" for e in events), encoding="utf-8")
    return file


def test_many_odd_things_in_one_history(tmp_path: Path) -> None:
    file = written(tmp_path / "weird.jsonl", weird.history())
    code, results, said = check(file, "--out", str(tmp_path / "run"))
    assert code == 1, said
    assert not [why for why in results["not_looked_at"].values() if "Error" in why], results["not_looked_at"]
    found: dict[str, set[str]] = {}
    for kind, body in results["anomalies"].items():
        for witness in body["witnesses"]:
            found.setdefault(witness.get("topic", "?"), set()).add(kind)
    assert {t: k for t, k in found.items() if k != {"unseen"}} == {t: k for t, k in weird.KINDS.items() if k}


def test_odd_operations_of_jepsen(tmp_path: Path) -> None:
    file = tmp_path / "weird.edn"
    file.write_text(weird.EDN, encoding="utf-8")
    code, results, said = check(file)
    assert code in CODES.values(), said
    assert not [why for why in results["not_looked_at"].values() if "Error" in why], results["not_looked_at"]


def test_a_torn_table(tmp_path: Path) -> None:
    import_jsonl(written(tmp_path / "h.jsonl", weird.history()[:2]), tmp_path / "run")
    whole = next((tmp_path / "run" / "op_records").glob("*.parquet"))
    (whole.parent / "part-000001.parquet").write_bytes(whole.read_bytes()[:-9])
    (tmp_path / "run" / "configs").mkdir()
    (tmp_path / "run" / "configs" / "part-000000.parquet").write_text("no Parquet at all")
    code, results, said = check(tmp_path / "run")
    assert code in (1, 2), said
    for name in ("op_records/part-000001.parquet", "configs/part-000000.parquet"):
        assert name in results["why"], results["why"]


def test_files_that_do_not_belong_to_a_table_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    run = import_jsonl(written(tmp_path / "h.jsonl", weird.history()[:2]), tmp_path / "run")
    stored = open_stored(run, spark)
    rows = stored.table("ops").count()
    (run / "ops" / "notes.txt").write_text("hi")
    (run / "ops" / "old=1").mkdir()
    whole = next((run / "ops").glob("*.parquet"))
    (run / "ops" / "old=1" / whole.name).write_bytes(whole.read_bytes())
    assert stored.table("ops").count() == rows
    assert open_stored(run, spark).rows == stored.rows


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_gets_a_verdict(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Fields are dropped, swapped between lines or given another line's values; what is still readable is judged."""
    rng = random.Random(seed)
    kept: list[dict[str, Any]] = []
    while len(kept) < 400:
        event = dict(rng.choice(weird.history()))
        donor = rng.choice(weird.history())
        for name in rng.sample(sorted(event), rng.randint(0, 2)):
            if name in ("index", "time"):
                continue
            if rng.random() < 0.3:
                event.pop(name)
            elif name in donor:
                event[name] = donor[name]
        event |= {"index": len(kept), "time": 10 * len(kept) if rng.random() < 0.9 else rng.randint(-(10**6), 10**6)}
        try:
            import_jsonl(written(tmp_path / "one.jsonl", [event]), tmp_path / f"one{len(list(tmp_path.iterdir()))}")
        except HistoryError:
            continue
        kept.append(event)
    with as_run_folder(written(tmp_path / "damaged.jsonl", kept)) as run:
        judgement = judge(run, "cluster-mirror/strict", spark)
    assert judgement.verdict in CODES
    assert not [why for why in judgement.unjudged.values() if "Error" in why], judgement.unjudged
