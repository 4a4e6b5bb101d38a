"""The sieve on Spark: a clean history leaves no suspects whatever its ranges, and its hashes are Spark's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.generate_history import Shape, generate
from checkers.judge.judge import judge
from checkers.prefilter.hashing import xxh64
from checkers.views.tables import Tables


def rewritten(run: Path, table: str, *, values: dict[int, str] | None = None, disordered: bool = False) -> None:
    """Rewrite a table as one file: some read values replaced (by row number among the polled), or out of order."""
    files = sorted((run / table).glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(file) for file in files])
    for file in files:
        file.unlink()
    if values is not None:
        polled = [n for n, action in enumerate(rows["action"].to_pylist()) if action == "poll"]
        column = rows["value"].to_pylist()
        for number, value in values.items():
            column[polled[number]] = value
        rows = rows.set_column(rows.schema.get_field_index("value"), rows.schema.field("value"), pa.array(column))
    if disordered:
        rows = pa.concat_tables([rows.take(list(range(n, len(rows), 7))) for n in range(7)])
    pq.write_table(rows, run / table / "part-000000.parquet", row_group_size=400)


def test_keys_are_those_of_spark(spark: SparkSession) -> None:
    texts = ["x" * n + "é" * (n % 3) for n in range(100)]
    frame = spark.createDataFrame([(n, text) for n, text in enumerate(texts)], "n int, text string").orderBy("n")
    assert [row[0] for row in frame.select(F.xxhash64("text")).collect()] == xxh64(pa.array(texts)).tolist()


@pytest.mark.usefixtures("cut_up")
@pytest.mark.parametrize("base", [0, 10**12])
def test_a_clean_history_leaves_no_suspects(spark: SparkSession, tmp_path: Path, base: int) -> None:
    generate(tmp_path / "run", Shape(lines=4000, base_offset=base))
    tables = Tables.open(tmp_path / "run", spark)
    try:
        assert tables.is_empty(tables.prefilter.suspects)
        assert tables.is_empty(tables.prefilter.steps)
    finally:
        tables.close()


@pytest.mark.usefixtures("cut_up")
def test_tables_out_of_order_are_judged_alike(spark: SparkSession, tmp_path: Path) -> None:
    generate(tmp_path / "run", Shape(lines=4000))
    rewritten(tmp_path / "run", "op_records", disordered=True)
    rewritten(tmp_path / "run", "ops", disordered=True)
    judgement = judge(tmp_path / "run", "kafka-clean", spark)
    assert (judgement.verdict, judgement.findings) == ("valid", ()), judgement.why


@pytest.mark.usefixtures("cut_up")
def test_each_fault_is_found_once(spark: SparkSession, tmp_path: Path) -> None:
    generate(tmp_path / "run", Shape(lines=4000))
    rewritten(tmp_path / "run", "op_records", values={1000: "ghost"})
    judgement = judge(tmp_path / "run", "kafka-clean", spark)
    found = {finding.kind.name: finding.count for finding in judgement.findings}
    assert found["phantom"] == 1
    assert found["inconsistent_offsets"] == 1
    assert set(found) == {"phantom", "inconsistent_offsets"}
