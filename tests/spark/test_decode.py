"""Real segment files of a run's evidence folder become rows of the run's tables."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checkers.views.tables import Tables
from harness.core.errors import HistoryError
from harness.evidence.decode import decode_run, needs_decoding
from harness.history.runfile import RunFile, RunMeta, read_meta
from harness.history.schema import TABLES

SEGMENTS = Path(__file__).parents[1] / "data" / "segments"
FIRST = "00000000000000000000.log"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose cluster A had one broker; broker 2 holds a copy of two partitions."""
    folder = tmp_path / "run"
    RunFile.create(folder, RunMeta(run_id="r", clusters={"A": {}}))  # type: ignore[arg-type]
    shutil.copytree(SEGMENTS / "A", folder / "evidence" / "A")
    for name in ("txn-0", "trimmed-0"):
        shutil.copytree(SEGMENTS / "A" / "1" / name, folder / "evidence" / "A" / "2" / name)
    return folder


def looks(run: Path, *rows: dict[str, Any]) -> None:
    (run / "log_ends").mkdir()
    pq.write_table(
        pa.Table.from_pylist(list(rows), TABLES["log_ends"].schema), run / "log_ends" / "part-000000.parquet"
    )


def test_all_files_of_all_replicas(spark: SparkSession, run: Path) -> None:
    report = decode_run(spark, run)
    assert report is not None
    dumps = [p.read_text("utf-8", "replace") for p in (SEGMENTS / "A").rglob("*.dump")]
    txn = (SEGMENTS / "A" / "1" / "txn-0" / FIRST).with_suffix(".dump").read_text()
    trimmed = (SEGMENTS / "A" / "1" / "trimmed-0" / FIRST).with_suffix(".dump").read_text("utf-8", "replace")
    printed = "\n".join([*dumps, txn, trimmed])
    assert report.batches == printed.count("baseOffset: ")
    assert report.records == printed.count("| offset: ")
    assert (report.segments, report.bad_crc, report.problems) == (len(dumps) + 2, 0, ())

    t = Tables.open(run, spark)
    assert t.table("records").count() == report.records
    row = t.table("batches").where("broker = 2 and topic = 'txn' and control_type = 'COMMIT'").first()
    assert row is not None
    assert (row.cluster, row.partition, row.look, row.segment, row.control) == ("A", 0, 1, FIRST, True)
    assert row.topic_id == (SEGMENTS / "A/1/txn-0/partition.metadata").read_text().splitlines()[1].split(": ")[1]
    value = t.table("records").where("topic = 'client-zstd' and offset = 9").first()
    assert value is not None
    assert (value.key, value.value, value.base_offset, value.broker) == ("ключ", "größer ✓", 0, 1)
    assert t.truth_log.where("topic = 'txn'").count() == 27, "one replica counts"
    t.close()


def test_log_ends_of_replicas_without_a_snapshot(spark: SparkSession, run: Path) -> None:
    place = {"cluster": "A", "topic": "trimmed", "partition": 0}
    looks(run, {**place, "broker": 1, "look": 1, "time_ns": 70, "log_start": 5, "log_end": 24, "leader": 1})
    decode_run(spark, run)
    ends = {(r.topic, r.broker): r for r in Tables.open(run, spark).table("log_ends").collect()}
    seen, unseen, empty = ends["trimmed", 1], ends["trimmed", 2], ends["compacted", 1]
    assert (seen.time_ns, seen.high_watermark) == (70, None), "the row of the look stays as it was"
    assert (unseen.log_start, unseen.log_end, unseen.high_watermark, unseen.leader) == (0, 24, None, 1)
    assert (unseen.look, unseen.time_ns) == (1, 70)
    assert (empty.log_start, empty.log_end, empty.high_watermark) == (0, 32, 32)
    assert len(ends) == len(list((run / "evidence").glob("*/*/*/")))


def test_log_start_of_a_dead_broker_comes_from_its_checkpoint(spark: SparkSession, run: Path) -> None:
    decode_run(spark, run)
    rows = Tables.open(run, spark).table("log_ends").where("topic = 'trimmed'").collect()
    assert {(r.broker, r.log_start) for r in rows} == {(1, 5), (2, 0)}, "broker 2 has no checkpoint file here"


def test_decoding_again_or_after_an_interruption_adds_no_rows(spark: SparkSession, run: Path) -> None:
    (run / "records").mkdir()
    other = {"cluster": "Z", "offset": 3}
    pq.write_table(pa.Table.from_pylist([other], TABLES["records"].schema), run / "records" / "part-000000.parquet")
    report = decode_run(spark, run)
    assert report is not None
    assert not needs_decoding(run)
    assert decode_run(spark, run) is None
    (run / "batches" / "_decoded.json").unlink()  # as if it had been interrupted before its last step
    (run / "records" / ".decoded-000000.parquet.x.tmp").write_bytes(b"half")
    assert needs_decoding(run)
    assert decode_run(spark, run) == report
    assert Tables.open(run, spark).table("records").count() == report.records + 1, "other writers' rows stay"
    assert not list((run / "records").glob(".*.tmp"))


def test_damage_is_reported_and_the_rest_decoded(spark: SparkSession, run: Path) -> None:
    torn = run / "evidence/A/2/txn-0" / FIRST
    torn.write_bytes(torn.read_bytes()[:-10])
    flipped = run / "evidence/A/1/client-none-0" / FIRST
    data = bytearray(flipped.read_bytes())
    data[200] ^= 1
    flipped.write_bytes(bytes(data))
    (run / "evidence/A/1/client-gzip-0" / FIRST).write_bytes(b"")
    report = decode_run(spark, run)
    assert report is not None
    assert report.bad_crc == 1
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"evidence/A/2/txn-0/{FIRST}: truncated at byte ")
    assert read_meta(run).notes == list(report.problems)
    bad = Tables.open(run, spark).table("batches").where("not crc_ok").collect()
    assert [(b.topic, b.broker, b.base_offset, b.records_count) for b in bad] == [("client-none", 1, 0, 12)]
    assert json.loads((run / "batches" / "_decoded.json").read_text())["bad_crc"] == 1


def test_old_format_is_refused_by_name(spark: SparkSession, run: Path) -> None:
    body = struct.pack(">bbqii", 1, 0, 5, -1, 2) + b"hi"
    old = run / "evidence/A/2/txn-0" / FIRST
    old.write_bytes(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body)
    with pytest.raises(HistoryError, match=r"evidence/A/2/txn-0/0+\.log: message format v1 at byte 0"):
        decode_run(spark, run)
    assert needs_decoding(run)


def test_folders_that_are_no_replica(spark: SparkSession, run: Path) -> None:
    gone = run / "evidence/A/1" / f"txn-0.{'0a' * 16}-delete"
    shutil.copytree(run / "evidence/A/1/txn-0", gone)
    report = decode_run(spark, run)
    assert report is not None
    (run / "batches" / "_decoded.json").unlink()
    (run / "evidence/A/1/nopartition").mkdir()
    (run / "evidence/A/1/nopartition" / FIRST).write_bytes(b"")
    with pytest.raises(HistoryError, match="nopartition: not EVIDENCE/CLUSTER/BROKER/TOPIC-PARTITION"):
        decode_run(spark, run)


def test_without_segments(spark: SparkSession, tmp_path: Path) -> None:
    RunFile.create(tmp_path / "r", RunMeta(run_id="r"))
    assert decode_run(spark, tmp_path / "r") is None
