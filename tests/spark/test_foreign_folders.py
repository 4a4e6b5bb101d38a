"""Run folders that others wrote, moved or changed: the same verdict wherever they are, or one error line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import weird
from pyspark.sql import SparkSession
from test_weird_histories import written

from checkers.judge.judge import Judgement, judge
from checkers.spark.stored import open_stored
from harness.core.errors import HistoryError, StorageError
from harness.evidence.decode import decode_run
from harness.history.jsonl.importer import import_jsonl
from harness.history.store import open_run
from harness.report.html import report_softly, write_report

ODD = "r [1] {a,b} *? 100% %20 #1 a:b ü 'x' \\ x=1"
"""Characters that are special to Spark, Hadoop or URLs."""


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return import_jsonl(written(tmp_path / "h.jsonl", weird.history()), tmp_path / "plain")


def found(judgement: Judgement) -> dict[str, int]:
    assert not [why for why in judgement.unjudged.values() if "Error" in why], judgement.unjudged
    return {finding.kind.name: finding.count for finding in judgement.findings}


def rewritten(file: Path, rows: pa.Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)


def as_others_write(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as a dictionary of large strings; integers as narrow as possible."""
    if pa.types.is_string(column.type):
        return column.cast(pa.large_string()).dictionary_encode()
    if pa.types.is_int64(column.type):
        least, most = (pc.min_max(column)[end].as_py() or 0 for end in ("min", "max"))
        if least >= -(2**31) and most < 2**31:
            return column.cast(pa.int32())
    return column


def test_the_same_verdict_from_an_odd_place_in_odd_columns_and_hive_folders(
    spark: SparkSession, tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = found(judge(plain, None, spark))
    assert expected
    odd = tmp_path / ODD / ODD
    shutil.copytree(plain, odd)
    shutil.rmtree(odd / "results")
    (odd / "results.json").unlink()
    ops = pq.read_table(plain / "ops")
    shutil.rmtree(odd / "ops")
    half = ops.num_rows // 2
    narrow = ops.slice(half)
    columns = [as_others_write(narrow[name]) for name in narrow.column_names]
    assert {str(column.type) for column in columns} >= {"int32"}
    rewritten(odd / "ops" / "second: [part].parquet", pa.table(columns, names=narrow.column_names))
    rest = ops.slice(0, half)
    for cluster in rest["cluster"].unique().to_pylist():
        rows = rest.filter(pc.equal(rest["cluster"], cluster) if cluster is not None else pc.is_null(rest["cluster"]))
        place = odd / "ops" / f"cluster={cluster or '__HIVE_DEFAULT_PARTITION__'}"
        rewritten(place / "part-0.parquet", rows.drop_columns(["cluster"]))
    (odd / "op_records" / ".part-000000.parquet.crc").write_bytes(b"crc\0\0\0\2\0stale")
    assert open_run(odd).rows("ops") == ops.num_rows
    stored = open_run(odd).read_table("ops").sort_by("index")
    assert stored.equals(ops.sort_by("index").cast(stored.schema))
    assert list(map(len, open_run(odd).batches("ops", ["cluster", "index"])))
    assert found(judge(odd, None, spark)) == expected
    assert "<h1>" in write_report(odd).read_text()
    monkeypatch.chdir(tmp_path / ODD)
    assert open_stored(Path(ODD), spark).table("op_records").count() == open_run(plain).rows("op_records")
    (tmp_path / ODD / ODD).rename("a:b {1}")
    assert found(judge(Path("a:b {1}"), None, spark)) == expected, "a relative name with a colon is no address"


def test_reports_what_is_not_a_file_and_ignores_what_hive_did_not_write(
    spark: SparkSession, tmp_path: Path, plain: Path
) -> None:
    os.mkfifo(plain / "ops" / "x.parquet")
    os.mkfifo(plain / "faults.parquet")
    (plain / "acls").mkdir(exist_ok=True)
    (plain / "acls" / "folder.parquet").mkdir()
    (plain / "acls" / "gone.parquet").symlink_to(tmp_path / "nowhere")
    (plain / "ops" / "notes").write_text("x")
    (plain / "ops" / "date=2026-01-01").mkdir()
    shutil.copy(next((plain / "ops").glob("part*.parquet")), plain / "ops" / "date=2026-01-01" / "p.parquet")
    bomb = pa.table({"index": pa.array([0] * 20_000_000, pa.int64())})
    (plain / "configs").mkdir(exist_ok=True)
    pq.write_table(bomb, plain / "configs" / "bomb.parquet", compression="zstd")
    judgement = judge(plain, None, spark)
    for name in (
        "ops/x.parquet",
        "acls/folder.parquet",
        "acls/gone.parquet",
        "ops/date=2026-01-01",
        "configs/bomb.parquet",
    ):
        assert str(plain / name) in judgement.why
    assert "<h1>" in write_report(plain).read_text()


def test_nothing_is_written_through_links(spark: SparkSession, tmp_path: Path, plain: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim"
    victim.write_text("dear")
    (plain / "results").symlink_to(outside)
    with pytest.raises(StorageError, match=r"results is a symbolic link .* nothing is written through it"):
        judge(plain, None, spark)
    (plain / "results").unlink()
    (plain / "results.json").symlink_to(victim)
    with pytest.raises(StorageError, match=r"results\.json is a symbolic link, which is not overwritten"):
        judge(plain, None, spark)
    (plain / "results.json").unlink()
    (plain / "report.html").symlink_to(victim)
    judge(plain, None, spark)
    said: list[str] = []
    assert report_softly(plain, say=said.append) is None
    (sentence,) = said
    assert "report.html is a symbolic link" in sentence
    assert "the verdict stands" in sentence
    segments = plain / "evidence" / "A" / "1" / "t-0"
    segments.mkdir(parents=True)
    os.mkfifo(segments / "00000000000000000000.log")
    with pytest.raises(HistoryError, match=r"000\.log is not a regular file"):
        decode_run(spark, plain)
    (segments / "00000000000000000000.log").unlink()
    (segments / "00000000000000000000.log").write_bytes(b"")
    shutil.rmtree(plain / "batches", ignore_errors=True)
    (plain / "batches").symlink_to(outside)
    with pytest.raises(StorageError, match="batches is a symbolic link"):
        decode_run(spark, plain)
    assert victim.read_text() == "dear"
    assert [p.name for p in outside.iterdir()] == ["victim"]
