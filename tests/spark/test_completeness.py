"""Incomplete evidence neither proves nor excludes anomalies: the kinds that need it are unknown, and it is named.

One correct history of two clusters with three brokers each (from the model) is stored whole, and then with a part of
its evidence removed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from literal import History
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.example import Example, simulate
from model.pack import store
from model.plan import Plan

from checkers.judge.judge import Judgement, judge
from harness.history.schema import TABLES

CONTRACT = "cluster-mirror/strict"
MIRROR_KINDS = {"mirror_loss", "mirror_duplicate", "offset_identity", "failback", "sequence_gap"}
Rows = pa.Table
WHY = "B-broker-1: its logs could not be copied: no space left"


@pytest.fixture(scope="module")
def example() -> Example:
    plan = Plan(seed=7, scenario="failover", brokers=3, partitions=2, sends=12, producers=("idempotent", "txn"))
    return simulate(plan, 1)


def keep(run: Path, table: str, wanted: Callable[[Rows], pa.ChunkedArray]) -> None:
    """Leave only some rows of a table in the run."""
    file = run / table / "part-000000.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.filter(wanted(rows)), file)


def tell(run: Path, rows: list[dict[str, object]]) -> None:
    """Store `captured_logs`."""
    (run / "captured_logs").mkdir()
    table = pa.Table.from_pylist(rows, schema=TABLES["captured_logs"].schema)
    pq.write_table(table, run / "captured_logs" / "part-000000.parquet")


def captured(run: Path) -> list[dict[str, object]]:
    """The metadata of a complete capture."""
    place = ["cluster", "broker", "topic", "partition", "look"]
    rows = pq.read_table(run / "records" / "part-000000.parquet").group_by(place).aggregate([("offset", "count")])
    return [
        {**{c: row[c] for c in place}, "complete": True, "batches": 0, "records": row["offset_count"]}
        for row in rows.to_pylist()
    ]


def judged(spark: SparkSession, run: Path) -> Judgement:
    return judge(run, None, spark)


def accused(judgement: Judgement) -> dict[str, int]:
    return {f.kind.name: f.breaches for f in judgement.findings if f.breaches}


def of_b(rows: Rows, *brokers: int) -> pa.ChunkedArray:
    """Rows of B's logs, of all its brokers or of some."""
    there = pc.equal(rows["cluster"], "B")
    return pc.and_(there, pc.is_in(rows["broker"], pa.array(brokers, pa.int32()))) if brokers else there


def test_the_whole_history_is_valid(spark: SparkSession, example: Example, tmp_path: Path) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    tell(run, captured(run))
    judgement = judged(spark, run)
    assert (judgement.verdict, accused(judgement)) == ("valid", {}), judgement.why
    assert not MIRROR_KINDS - {"failback"} & set(judgement.unjudged)


def test_without_the_logs_of_b_its_kinds_are_unknown(spark: SparkSession, example: Example, tmp_path: Path) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    for table in ("batches", "records"):
        keep(run, table, lambda rows: pc.invert(of_b(rows)))
    judgement = judged(spark, run)
    assert (judgement.verdict, accused(judgement)) == ("unknown", {}), judgement.why
    assert set(judgement.unjudged) >= MIRROR_KINDS
    topic = example.topic
    assert f"the logs of {topic}-0 on B, {topic}-1 on B are incomplete" in judgement.why
    assert "mirror_loss" in judgement.unjudged
    assert "was not captured" in judgement.unjudged["mirror_loss"]


def test_one_complete_in_sync_replica_suffices_for_its_partition_but_not_for_others(
    spark: SparkSession, example: Example, tmp_path: Path
) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    for table in ("batches", "records"):
        keep(run, table, lambda rows: pc.invert(of_b(rows, 2, 3)))
    judgement = judged(spark, run)
    assert (judgement.verdict, accused(judgement)) == ("unknown", {}), judgement.why
    assert "mirror_loss" in judgement.looked_at
    assert {"replica_divergence", "stop_cut", "crc_invalid"} <= set(judgement.unjudged)


def test_reports_the_problems_of_the_capture(spark: SparkSession, example: Example, tmp_path: Path) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    rows = captured(run)
    tell(run, [{**r, "complete": False, "why": WHY} if (r["cluster"], r["broker"]) == ("B", 1) else r for r in rows])
    judgement = judged(spark, run)
    assert (judgement.verdict, accused(judgement)) == ("unknown", {})
    assert WHY in judgement.why


def test_rows_lost_since_they_were_stored_are_noticed(spark: SparkSession, example: Example, tmp_path: Path) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    tell(run, captured(run))
    ends = {p.number: p.end for p in example.world.b.partitions}
    lost = pa.array([end - 1 for end in ends.values()])
    keep(run, "records", lambda rows: pc.invert(pc.and_(of_b(rows), pc.is_in(rows["offset"], lost))))
    judgement = judged(spark, run)
    assert (judgement.verdict, accused(judgement)) == ("unknown", {}), judgement.why
    assert "has lost rows since it was stored" in judgement.why


def test_anomalies_of_complete_partitions_still_count(spark: SparkSession, example: Example, tmp_path: Path) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    cut = example.world.cuts[1]
    data = [b for b in example.world.b.partitions[1].log.batches if b.control is None and b.last < cut]
    for table, column in (("records", "offset"), ("batches", "base_offset")):
        gone = pa.array([r.offset for r in data[0].records] if table == "records" else [data[0].base])

        def wanted(rows: Rows, column: str = column, gone: pa.Array = gone) -> pa.ChunkedArray:
            missing = pc.and_(of_b(rows), pc.equal(rows["partition"], 0))
            there = pc.and_(pc.and_(of_b(rows), pc.equal(rows["partition"], 1)), pc.is_in(rows[column], gone))
            return pc.invert(pc.or_(missing, there))

        keep(run, table, wanted)
    judgement = judged(spark, run)
    assert judgement.verdict == "invalid", judgement.why
    assert "mirror_loss" in accused(judgement)
    witnesses = [w for f in judgement.findings if f.kind.name == "mirror_loss" for w in f.witnesses]
    assert {w["partition"] for w in witnesses} == {1}
    assert "mirror_loss" in judgement.unjudged, "it was not looked for in the other partition"


def test_anomalies_that_rows_of_a_torn_file_might_excuse_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    h = History(source="jsonl")
    h.send("p", "A", "t", 0, "v0", "v1", offset=0)
    h.poll("c", "A", "t", 0, (0, "v0"), (1, "ghost"))
    run = h.write(tmp_path / "run")
    assert judge(run, "kafka-clean", spark).verdict == "invalid"
    (run / "op_records" / "part-000001.parquet").write_bytes(b"PAR1 and then nothing")
    judgement = judge(run, "kafka-clean", spark)
    assert (judgement.verdict, accused(judgement)) == ("unknown", {})
    assert "so it does not count" in judgement.why


def test_a_history_that_proves_nothing_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    refused, aborted, looked = History(source="jsonl"), History(source="jsonl"), History(source="jsonl")
    refused.send("p", "A", "t", 0, "v0", end="fail")
    refused.poll("c", "A", "t", 0)
    judgement = judge(refused.write(tmp_path / "refused"), "kafka-clean", spark)
    assert (judgement.verdict, judgement.findings) == ("unknown", ())
    assert "nothing was acknowledged, read or stored" in judgement.why
    aborted.send("p", "A", "t", 0, "v0", end="info")
    assert judge(aborted.write(tmp_path / "info"), "kafka-clean", spark).verdict == "unknown"
    looked.send("p", "A", "t", 0, "v0", offset=0)
    looked.poll("c", "A", "t", 0, (0, "v0"))
    assert judge(looked.write(tmp_path / "looked"), "kafka-clean", spark).verdict == "valid"


def emptied(table: str) -> Callable[[Path], None]:
    """The table is there and has no row."""
    return lambda run: keep(run, table, lambda rows: pc.invert(pc.is_valid(rows[rows.column_names[0]])))


def deleted(table: str) -> Callable[[Path], None]:
    return lambda run: shutil.rmtree(run / table)


def snapshots_of_b_deleted(run: Path) -> None:
    keep(run, "log_ends", lambda rows: pc.invert(pc.equal(rows["cluster"], "B")))


def last_snapshot_of_b_deleted(run: Path) -> None:
    keep(run, "log_ends", lambda rows: pc.invert(pc.and_(pc.equal(rows["cluster"], "B"), pc.equal(rows["look"], 1))))


def logs_of_b_cut_off(run: Path) -> None:
    """Of the last half of each log of B nothing is left, and of its ends only what decoding makes of the rest."""
    records = pq.read_table(run / "records" / "part-000000.parquet").filter(pc.field("cluster") == "B")
    half = pc.max(records["offset"]).as_py() // 2
    for table, column in (("records", "offset"), ("batches", "last_offset")):
        keep(run, table, lambda rows, column=column: pc.invert(pc.and_(of_b(rows), pc.greater(rows[column], half))))
    place = ["cluster", "broker", "look", "topic", "partition"]
    left = pq.read_table(run / "records" / "part-000000.parquet").filter(pc.field("cluster") == "B")
    ends = left.group_by(place).aggregate([("offset", "max")]).to_pylist()
    made = [
        {**{c: e[c] for c in place}, "time_ns": 1, "log_start": 0, "log_end": e["offset_max"] + 1, "leader": 1}
        for e in ends
    ]
    snapshots_of_b_deleted(run)
    rows = pa.Table.from_pylist(made, schema=TABLES["log_ends"].schema)
    pq.write_table(rows, run / "log_ends" / "decoded-log_ends.parquet")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (emptied("log_ends"), "table log_ends is empty in"),
        (emptied("mirror_states"), "table mirror_states is empty in"),
        (emptied("records"), "table records is empty in"),
        (deleted("ops"), "table ops is missing in"),
        (snapshots_of_b_deleted, "no snapshot of cluster B is there"),
        (last_snapshot_of_b_deleted, "was captured, and no snapshot shows where it ends"),
        (logs_of_b_cut_off, "was captured, and no snapshot shows where it ends"),
    ],
    ids=["log_ends", "mirror_states", "records", "ops", "snapshots of B", "last snapshot of B", "logs of B cut off"],
)
def test_what_is_missing_is_named_and_accuses_nobody(
    spark: SparkSession, example: Example, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    run = store([example], tmp_path / "run", contract=CONTRACT)
    damage(run)
    judgement = judged(spark, run)
    assert (judgement.verdict, accused(judgement)) == ("unknown", {}), judgement.why
    assert said in judgement.why
    assert "mirror_loss" in judgement.unjudged or said.startswith("table ops")
