"""Export keeps the history: every table of every recorded case comes back from EDN unchanged, and the operations for
Jepsen are pairs of invocation and completion. What is left out is named."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import HistoryError
from harness.history.edn import sidecar as edn_beside
from harness.history.edn.importer import export_edn, import_edn
from harness.history.edn.reader import EdnReader
from harness.history.edn.sidecar import BESIDE, sentence
from harness.history.imports import as_run_folder
from harness.history.jsonl.importer import import_jsonl
from harness.history.ops import F, OpRecord, OpType
from harness.history.recorder import RunRecorder
from harness.history.schema import TABLES
from harness.history.store import StoredRun, open_run

pytestmark = pytest.mark.unit

HISTORIES = Path(__file__).parent.parent / "histories"
CASES = sorted(p for p in HISTORIES.glob("**/*") if p.suffix in (".jsonl", ".edn"))


def content(run: StoredRun) -> dict[str, Any]:
    """The content of a run without event numbers: table → rows, in order where events have one."""
    ops = sorted(run.read_table("ops").to_pylist(), key=lambda row: row["index"])
    place = {row["index"]: n for n, row in enumerate(ops)}
    held: dict[str, Any] = {}
    for row in ops:
        row |= {"index": place[row["index"]], "invoke_index": place.get(row["invoke_index"])}
        row["cluster"] = row["cluster"] or "A"
    held["ops"] = ops
    records = run.read_table("op_records").to_pylist()
    held["op_records"] = sorted(
        ({**row, "op_index": place[row["op_index"]]} for row in records), key=lambda r: (r["op_index"], r["position"])
    )
    for name in TABLES:
        if name not in held:
            held[name] = Counter(json.dumps(row, sort_keys=True) for row in run.read_table(name).to_pylist())
    meta = run.meta
    held["meta"] = (meta.source, meta.topic_map, meta.topic_maps, {**meta.clusters}, meta.left_out)
    return held


def as_jepsen_pairs_them(path: Path) -> None:
    """Pair every completion of an integer process with its own invocation of the same :f."""
    under_way: dict[int, Any] = {}
    last = -1
    for op in EdnReader(io.StringIO(path.read_text(encoding="utf-8"))):
        assert op[":index"] > last
        last = op[":index"]
        process = op[":process"]
        if type(process) is not int:
            assert (process, op[":type"]) == (BESIDE, ":info")
        elif op[":type"] == ":invoke":
            assert process not in under_way, op
            under_way[process] = op[":f"]
        else:
            assert under_way.pop(process) == op[":f"], op


@pytest.mark.parametrize("case", CASES, ids=[p.name for p in CASES])
def test_a_recorded_case_comes_back(tmp_path: Path, case: Path) -> None:
    with as_run_folder(case) as folder:
        run = open_run(folder)
        cluster = next(iter(sorted(run.meta.clusters)), "A")
        words = ("send", "poll", "txn", "assign", "subscribe", "crash")
        if not any(
            row["f"] in words and row["cluster"] in (None, cluster) for row in run.read_table("ops").to_pylist()
        ):
            with pytest.raises(HistoryError, match=f"holds no operation on cluster {cluster}"):
                export_edn(folder, tmp_path / "out.edn", cluster=cluster)
            return
        exported = export_edn(folder, tmp_path / "out.edn", cluster=cluster)
        assert exported.tables_left_out == ()
        again = open_run(import_edn(exported.path, tmp_path / "again"))
        for table, rows in content(run).items():
            assert content(again)[table] == rows, table
    as_jepsen_pairs_them(exported.path)


def test_oversized_tables_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = import_jsonl(HISTORIES / "D05-replica-divergence-fast-failover.jsonl", tmp_path / "run")
    monkeypatch.setattr(edn_beside, "ROWS", 5)
    exported = export_edn(run, tmp_path / "out.edn")
    assert set(exported.tables_left_out) == {"batches", "records", "log_ends"}
    again = open_run(import_edn(exported.path, tmp_path / "again"))
    assert again.meta.left_out == list(exported.tables_left_out)
    assert not any(again.has(table) for table in exported.tables_left_out)
    assert sentence(exported.tables_left_out) == (
        "the export to EDN left out the logs of replicas (tables batches, records, log_ends), so what they would show"
        " is not known; check the run itself"
    )
    assert sentence(("metrics", "run.json")) == (
        "the export to EDN left out table metrics, how the run went (run.json), so what they would show is not known;"
        " check the run itself"
    )
    assert sentence(()) == ""


def test_a_real_run_is_exported_without_its_logs(tmp_path: Path) -> None:
    """Only the run knows whether they are complete."""
    with RunRecorder(tmp_path / "run") as recorder:
        sent = [OpRecord("send", "t", 0, None, "v")]
        recorder.complete(recorder.invoke("p", F.SEND, cluster="A", records=sent), OpType.OK, records=sent)
        recorder.row("log_ends", cluster="A", broker=1, look=0, time_ns=5, topic="t", partition=0, log_end=1)
        recorder.row("faults", fault_id=0, name="kill", action="inject", time_ns=5)
    exported = export_edn(tmp_path / "run", tmp_path / "out.edn")
    assert exported.tables_left_out == ("log_ends", "run.json")
    again = open_run(import_edn(exported.path, tmp_path / "again"))
    assert [row["name"] for row in again.read_table("faults").to_pylist()] == ["kill"]
    assert again.meta.source == "edn"


def exported_lines(tmp_path: Path, *events: dict[str, Any]) -> list[str]:
    """Operations for Jepsen as `process type value`."""
    file = tmp_path / "h.jsonl"
    place = {"cluster": "A", "topic": "jepsen", "partition": 0}
    told = [{"index": n, "time": n, "process": 0, "f": "send", **place, **event} for n, event in enumerate(events)]
    file.write_text("".join(json.dumps(line) + "\n" for line in told))
    import_jsonl(file, tmp_path / "run")
    export_edn(tmp_path / "run", tmp_path / "out.edn")
    as_jepsen_pairs_them(tmp_path / "out.edn")
    assert content(open_run(import_edn(tmp_path / "out.edn", tmp_path / "again"))) == content(
        open_run(tmp_path / "run")
    )
    forms = EdnReader(io.StringIO((tmp_path / "out.edn").read_text()))
    return [f"{o[':process']} {o[':type']} {o[':value']}" for o in forms if type(o[":process"]) is int]


def test_concurrent_operations_become_those_of_several_processes(tmp_path: Path) -> None:
    told = exported_lines(
        tmp_path,
        {"type": "invoke", "value": 1},
        {"type": "invoke", "value": 2},
        {"type": "ok", "value": 2, "offset": 1},
        {"type": "invoke", "value": 3},
        {"type": "info", "value": 3},
        {"type": "ok", "value": 1, "offset": 0},
        {"type": "invoke", "value": 4},
    )
    assert told == [
        "0 :invoke [[':send', 0, 1]]",
        "1 :invoke [[':send', 0, 2]]",
        "1 :ok [[':send', 0, [1, 2]]]",
        "1 :invoke [[':send', 0, 3]]",
        "1 :info [[':send', 0, 3]]",
        "0 :ok [[':send', 0, [0, 1]]]",
        "0 :invoke [[':send', 0, 4]]",
    ]


def test_concurrent_sends_of_one_value_are_distinguished_by_op(tmp_path: Path) -> None:
    told = exported_lines(
        tmp_path,
        {"type": "invoke", "value": 1, "op": "a"},
        {"type": "invoke", "value": 1, "op": "b"},
        {"type": "fail", "value": 1, "op": "b"},
        {"type": "ok", "value": 1, "offset": 0, "op": "a"},
    )
    assert told[2:] == ["1 :fail [[':send', 0, 1]]", "0 :ok [[':send', 0, [0, 1]]]"]


@pytest.mark.parametrize("first", ["ok", "fail"])
def test_a_send_that_ended_ok_and_fail_is_info_to_jepsen(tmp_path: Path, first: str) -> None:
    ends = [{"type": "ok", "value": 1, "offset": 0}, {"type": "fail", "value": 1, "error": "late"}]
    told = exported_lines(tmp_path, {"type": "invoke", "value": 1}, *(ends if first == "ok" else ends[::-1]))
    assert [line.split(" [")[0] for line in told] == ["0 :invoke", "0 :info"]


def test_a_second_equal_completion_is_a_retry_to_jepsen(tmp_path: Path) -> None:
    ok = {"type": "ok", "value": 1, "offset": 0}
    told = exported_lines(tmp_path, {"type": "invoke", "value": 1}, ok, ok)
    assert [line.split(" [")[0] for line in told] == ["0 :invoke", "0 :ok", "0 :invoke", "0 :ok"]


def test_columns_that_jepsen_lacks_are_exported_too(tmp_path: Path) -> None:
    """Columns that Jepsen lacks, and an empty poll."""
    exported_lines(
        tmp_path,
        {"type": "invoke", "value": 1, "retry": True, "pid": 5, "epoch": 0, "seq": 0, "key": "k"},
        {"type": "ok", "value": 1, "offset": 0, "retry": True, "pid": 5, "epoch": 0, "seq": 0, "key": "k"},
        {"type": "ok", "f": "poll", "process": 1, "replica": 2},
        {"type": "ok", "f": "poll", "process": 1, "value": [[0, 1], [1, 2]], "position": 9},
        {"type": "ok", "f": "commit_offset", "process": 1, "group": "g", "offset": 1, "processed": 0},
        {"type": "ok", "f": "poll", "process": "x", "cluster": "B", "value": [[0, 1]]},
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (":f 5 :was :ok", "expected :f to be a keyword"),
        (":f :send :was :ok", "expected an event of :process :beside to have :f, :was and :by"),
        (':f :send :was :okay :by "p"', "expected :was to be :invoke, :ok, :fail or :info, found :okay"),
        (':f :send :was :ok :by "p" :records 5', "expected :records to be a vector, found 5"),
        (':f :send :was :ok :by "p" :records [5]', "a record as a vector of its columns, found 5"),
        (':f :send :was :ok :by "p" :records [["send" "t" "0"]]', "column partition takes int32, not '0'"),
        (':f :send :was :ok :by "p" :invoke-index "0"', 'expected :invoke-index to be an integer, found "0"'),
        (':f :send :was :ok :by "p" :retry 5', "column retry takes bool"),
        (':f :row :table "ops" :row {}', 'expected :table to be a table of rows, found "ops"'),
        (":f :row :table [1] :row {}", r"expected :table to be a table of rows, found \[1\]"),
        (':f :row :table "faults" :row 5', "expected :row to be a map, found 5"),
        (':f :row :table "faults" :row {:who 1}', "expected columns of table faults, found who"),
        (':f :row :table "faults" :row {:name "kill"}', "column fault_id must have a value"),
    ],
)
def test_a_malformed_line_of_process_beside_is_one_clear_error(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "h.edn"
    file.write_text(f"{{:type :ok :process 0 :f :poll}}\n{{:type :info :process :beside {line}}}\n")
    with pytest.raises(HistoryError, match=words) as caught:
        import_edn(file, tmp_path / "run")
    assert "h.edn, line 2: " in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (":more 5", "expected :more to be a map"),
        (":more {:key [1]}", "one value for each record"),
        (":more {:who 1}", "one value for each record"),
        (':more {:sequence "x"}', "column sequence takes int32"),
        (":records {}", "expected :records to be a vector"),
        (":replica :a", "expected :replica to be a broker id"),
        (":retry 1", "expected :retry to be true or false"),
    ],
)
def test_keys_of_an_export_that_are_wrong(tmp_path: Path, extra: str, words: str) -> None:
    file = tmp_path / "h.edn"
    file.write_text(f"{{:type :ok :process 0 :f :send :value [[:send 0 [0 1]] [:send 0 [1 2]]] {extra}}}")
    with pytest.raises(HistoryError, match=words):
        import_edn(file, tmp_path / "run")
