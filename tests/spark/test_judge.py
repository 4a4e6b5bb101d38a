"""The judge: verdicts and their order, reasons, witnesses, and missing or damaged data."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from literal import History
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from bench.generate_history import Shape, generate
from checkers import catalogue
from checkers.judge.executor import _reason
from checkers.judge.judge import judge
from checkers.spark.stored import open_stored
from checkers.views.tables import Tables
from harness.core.errors import HistoryError


def stored(run: Path) -> dict[str, Any]:
    """results.json."""
    document: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"))
    return document


def losses(**meta: Any) -> History:
    """A history in which A loses ten acknowledged records of twelve, and B none."""
    h = History(**meta)
    h.send("p", "A", "t", 0, *(f"v{n}" for n in range(12)), offset=0)
    h.send("q", "B", "u", 0, "w0", offset=0)
    h.log("A", "t", 0, (0, "v0"), (11, "v11"))
    h.log("B", "u", 0, (0, "w0"))
    return h


def test_worst_verdict_wins_and_witnesses_are_capped_and_deterministic(spark: SparkSession, tmp_path: Path) -> None:
    run = losses(why="killed").write(tmp_path / "run")
    first = judge(run, "kafka-clean", spark)
    again = stored(run)
    judge(run, "kafka-clean", spark)
    assert first.verdict == "invalid"
    assert first.headline == "invalid, 10 never allowed: A lost acknowledged writes (S1)"
    assert again["valid"] is False
    lost = again["anomalies"]["lost_write"]
    assert lost["count"] == 10
    assert 0 < len(lost["witnesses"]) < 10
    assert [w["offset"] for w in lost["witnesses"]] == list(range(1, len(lost["witnesses"]) + 1))
    assert lost["witnesses"][0]["op_indices"] == [0, 1]
    assert stored(run)["anomalies"] == again["anomalies"]
    found = spark.read.parquet(str(run / "results" / "anomalies"))
    assert found.where("kind = 'lost_write'").count() == 10, "the whole set is stored"


def test_an_unclean_election_on_a_is_a_loss_of_a_alone(spark: SparkSession, tmp_path: Path) -> None:
    run = losses().write(tmp_path / "run")
    judgement = judge(run, "kafka-clean+unclean-a", spark).to_json()
    lost = judgement["anomalies"]["lost_write"]
    assert (lost["count"], lost["allowed"]) == (10, True)
    assert {w["cluster"] for w in lost["witnesses"]} == {"A"}
    assert judgement["valid"] is True
    assert judgement["headline"] == "valid, 10 allowed: A lost acknowledged writes (S1)"
    assert stored(run)["headline"] == judgement["headline"]
    assert lost["reason"] in judgement["why"]


def test_a_checker_that_breaks_makes_its_kinds_unknown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(t: Tables) -> DataFrame | None:
        return t.table("ops").select("no such column")

    checker = dataclasses.replace(catalogue.CHECKERS["thin"], check=broken)
    monkeypatch.setitem(catalogue.CHECKERS, "thin", checker)
    h = History()
    h.send("p", "A", "t", 0, "v0", offset=0)
    h.poll("c", "A", "t", 0, (0, "v0"))
    judgement = judge(h.write(tmp_path / "run"), "kafka-clean", spark)
    assert judgement.verdict == "unknown"
    assert "checker thin failed" in judgement.why
    assert "thin" in judgement.unjudged


def test_a_torn_file_is_named_and_the_rest_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    run = losses().write(tmp_path / "run")
    torn = run / "ops" / "part-000001.parquet"
    torn.write_bytes(b"PAR1 and then nothing")
    judgement = judge(run, "kafka-clean+unclean", spark)
    assert judgement.verdict == "unknown"
    assert str(torn) in judgement.why
    assert {f.kind.name for f in judgement.findings} == {"lost_write"}


def test_a_thin_interrupted_run_is_unknown_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    h = History(source="shatter", floor={"ok_sends": 5, "faults_bit": 1})
    h.meta = h.meta.model_copy(update={"status": "interrupted", "why": "Ctrl-C"})
    h.send("p", "A", "t", 0, "v0", offset=0)
    h.poll("f", "A", "t", 0, (0, "v0"), phase="final")
    h.final_read("A", "t", 0, 1)
    h.log("A", "t", 0, (0, "v0"), broker=1, leader=1)
    judgement = judge(h.write(tmp_path / "run"), "kafka-clean", spark)
    assert judgement.verdict == "unknown"
    assert {f.kind.name: f.count for f in judgement.findings} == {"thin": 2}
    assert "Ctrl-C" in judgement.why
    told = [w["explain"] for f in judgement.findings for w in f.witnesses]
    assert told == ["only 0 faults were seen to bite, the floor is 1", "only 1 sends succeeded, the floor is 5"]


def test_a_generated_history_is_valid_and_all_its_client_kinds_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    generate(tmp_path / "run", Shape(lines=400))
    judgement = judge(tmp_path / "run", "kafka-clean", spark)
    assert (judgement.verdict, judgement.findings) == ("valid", ()), judgement.why
    assert {"lost_write", "duplicate", "phantom", "reordered", "poll_skip"} <= set(judgement.looked_at)


def test_without_mirror_states_mirror_loss_is_not_judged(spark: SparkSession, tmp_path: Path) -> None:
    h = History(source="shatter", test={"contract": "cluster-mirror/strict", "mirror": "reference"})
    h.send("p", "A", "t", 0, "v0", "v1", offset=0)
    h.log("A", "t", 0, (0, "v0"), (1, "v1"), broker=1, leader=1)
    h.log("B", "t", 0, (0, "v0"), broker=1, leader=1)  # stopped before v1, which mirror_states would show
    for cluster, end in (("A", 2), ("B", 1)):
        h.poll("f", cluster, "t", 0, *((n, f"v{n}") for n in range(end)), phase="final")
        h.final_read(cluster, "t", 0, end)
    place = {"cluster": "B", "topic": "t", "partition": 0, "mirror": "A-B"}
    run = h.write(tmp_path / "without")
    judgement = judge(run, None, spark)
    assert (judgement.verdict, judgement.findings) == ("unknown", ())
    assert f"table mirror_states is missing in {run}, so " in judgement.why
    assert judgement.unjudged["mirror_loss"] == "table mirror_states is missing"
    h.row("mirror_states", state="STOPPED", event="stop", source_offset=1, destination_offset=1, **place)
    assert judge(h.write(tmp_path / "with"), None, spark).verdict == "valid"


def test_a_missing_table_of_a_real_run_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    h = History(source="shatter")
    h.send("p", "A", "t", 0, "v0", offset=0)
    h.poll("f", "A", "t", 0, (0, "v0"), phase="final")
    h.log("A", "t", 0, (0, "v0"), broker=1, leader=1)
    judgement = judge(h.write(tmp_path / "run"), None, spark)
    assert judgement.verdict == "unknown"
    assert "table final_reads is missing" in judgement.why


def test_a_damaged_page_is_named(spark: SparkSession, tmp_path: Path) -> None:
    run = losses().write(tmp_path / "run")
    file = next((run / "records").glob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[4:60] = b"\x55" * 56
    file.write_bytes(data)
    with pytest.raises(Py4JJavaError) as caught:
        open_stored(run, spark).table("records").toArrow()
    assert re.match(r"Py4JJavaError: .*/records/part-000000\.parquet", _reason(caught.value))
    judgement = judge(run, "kafka-clean", spark)
    assert judgement.verdict == "unknown"
    assert f"{file} cannot be read" in judgement.why
    assert "Py4J" not in judgement.why
    assert not [why for why in judgement.unjudged.values() if "Py4J" in why]
    file = next((run / "ops").glob("*.parquet"))
    damage_column(file, "type")
    with pytest.raises(HistoryError, match=f"^{file} cannot be read"):
        judge(run, "kafka-clean", spark)


def damage_column(file: Path, name: str) -> None:
    """Overwrite the beginning of a column's data."""
    footer = pq.read_metadata(file)
    columns = [footer.row_group(0).column(i) for i in range(footer.num_columns)]
    column = next(c for c in columns if c.path_in_schema == name)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(file.read_bytes())
    data[start : start + 40] = b"\x55" * 40
    file.write_bytes(data)


def test_a_nemesis_that_never_bit_is_reported_though_others_did(spark: SparkSession, tmp_path: Path) -> None:
    schedule = [{"fault_id": n, "nemesis": name} for n, name in enumerate(("broker-pause", "link-partition"))]

    def run(name: str, *bit: str) -> Path:
        h = History(source="shatter", schedule=schedule)
        h.send("p", "A", "t", 0, "v0", offset=0)
        h.poll("f", "A", "t", 0, (0, "v0"), phase="final")
        h.final_read("A", "t", 0, 1)
        h.log("A", "t", 0, (0, "v0"), broker=1, leader=1)
        for n, nemesis in enumerate(("broker-pause", "link-partition")):
            for action in ("inject", *(["bit"] if nemesis in bit else [])):
                h.row("faults", fault_id=n, name=nemesis, action=action, ok=True)
        return h.write(tmp_path / name)

    judgement = judge(run("one", "broker-pause"), "kafka-clean", spark)
    assert judgement.verdict == "unknown"
    assert "no fault of nemesis link-partition was seen to bite" in judgement.why
    found = [(f.kind.name, w["form"]) for f in judgement.findings for w in f.witnesses]
    assert found == [("thin", "nemesis")]
    assert judge(run("both", "broker-pause", "link-partition"), "kafka-clean", spark).verdict == "valid"


def test_anomalies_after_a_failed_healing_are_unknown(spark: SparkSession, tmp_path: Path) -> None:
    def history(**meta: Any) -> History:
        h = History(source="shatter", phases=[{"name": "settle", "start_ns": 0}], topic_map={"t": "t"}, **meta)
        h.send("p", "A", "t", 0, "v0", "v1", "v2", offset=0)
        h.log("A", "t", 0, (0, "v0"), (1, "v1"), (2, "v2"), broker=1, leader=1)
        h.log("B", "t", 0, (0, "v0"), (2, "v2"), broker=1, leader=1)
        place = {"cluster": "B", "topic": "t", "partition": 0, "mirror": "A-B"}
        h.row("mirror_states", state="MIRRORING", source_offset=3, destination_offset=3, lag=0, **place)
        for cluster, values in (("A", (0, 1, 2)), ("B", (0, 2))):
            h.poll("f", cluster, "t", 0, *((n, f"v{n}") for n in values), phase="final")
            h.final_read(cluster, "t", 0, 3)
        return h

    accused = judge(history().write(tmp_path / "healed"), "mm2-at-least-once", spark)
    assert accused.verdict == "invalid"
    assert "mirror_loss" in accused.why
    gone = judge(history(unhealed=["mirror-0 is absent"]).write(tmp_path / "gone"), "mm2-at-least-once", spark)
    assert gone.verdict == "unknown", gone.why
    assert "the harness could not heal: mirror-0 is absent" in gone.why
    assert "mirror_loss 1 may be due to what the harness could not heal" in gone.why
