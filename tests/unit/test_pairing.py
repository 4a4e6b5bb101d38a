"""Which invocation a completion belongs to, with several pending operations of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from harness.core.errors import HistoryError
from harness.history import pairing
from harness.history.edn.importer import import_edn
from harness.history.jsonl.importer import import_jsonl
from harness.history.pairing import Pairing

Step = tuple[str, dict[str, Any]]
PLACE = {"cluster": "A", "topic": "t", "partition": 0}


def indices(run: Path) -> list[int | None]:
    rows = ds.dataset(run / "ops", format="parquet").to_table(columns=["index", "invoke_index"])
    return [row["invoke_index"] for row in rows.sort_by("index").to_pylist()]


def paired(tmp_path: Path, f: str, *steps: Step) -> list[int | None]:
    lines = [
        json.dumps({"index": n, "process": "p", "type": type_, "f": f, "time": n, **PLACE, **fields})
        for n, (type_, fields) in enumerate(steps)
    ]
    (tmp_path / "h.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return indices(import_jsonl(tmp_path / "h.jsonl", tmp_path / "run"))


def invoke(**fields: Any) -> Step:
    return "invoke", fields


def ok(**fields: Any) -> Step:
    return "ok", fields


def test_sends_under_way_are_paired_by_their_values(tmp_path: Path) -> None:
    sent = [invoke(value=v) for v in "abc"]
    done = [ok(value="c", offset=2), ("info", {"value": "a"}), ok(value="b", offset=1)]
    assert paired(tmp_path, "send", *sent, *done) == [None, None, None, 2, 0, 1]


def test_one_value_twice_under_way_is_paired_in_order_or_by_name(tmp_path: Path) -> None:
    twice = [invoke(value="a"), invoke(value="a", retry=True), ok(value="a"), ("fail", {"value": "a"})]
    assert paired(tmp_path, "send", *twice) == [None, None, 0, 1]


def test_the_name_of_an_operation_counts_before_its_value(tmp_path: Path) -> None:
    named = [invoke(value="a", op="x"), invoke(value="a", op="y"), ok(value="a", op="y"), ok(value="a", op="x")]
    again = [("fail", {"op": "x"}), ok(value="a", op="z")]
    assert paired(tmp_path, "send", *named, *again) == [None, None, 1, 0, 0, 5]


def test_a_completion_may_name_the_index_of_its_invoke(tmp_path: Path) -> None:
    assert paired(tmp_path, "poll", invoke(), invoke(), ok(op=1), ok(op=0)) == [None, None, 1, 0]


def test_completions_without_a_value_are_paired_by_partition_then_age(tmp_path: Path) -> None:
    steps = [invoke(partition=0), invoke(partition=1), invoke(partition=0), ok(partition=1), ok(partition=0), ok()]
    assert paired(tmp_path, "poll", *steps) == [None, None, None, 1, 0, 2]


def test_a_send_without_value_takes_the_oldest_and_another_value_takes_none(tmp_path: Path) -> None:
    steps = [invoke(value="a"), invoke(value="b"), ok(value="z"), ("fail", {}), ok(value="b")]
    assert paired(tmp_path, "send", *steps) == [None, None, 2, 0, 1]


def test_second_completions_find_their_invoke_with_others_under_way(tmp_path: Path) -> None:
    steps = [invoke(value="a"), invoke(value="b"), ok(value="a"), ("fail", {"value": "a"}), ok(value="b")]
    assert paired(tmp_path, "send", *steps) == [None, None, 0, 0, 1]


def test_commits_are_paired_by_offset_and_fetches_by_place(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    group = {"group": "g"}
    steps = [invoke(offset=5, **group), invoke(offset=7, **group), ok(offset=7, **group), ok(offset=5, **group)]
    assert paired(tmp_path / "c", "commit_offset", *steps) == [None, None, 1, 0]
    steps = [invoke(partition=0, **group), invoke(partition=1, **group), ok(partition=1, offset=3, **group)]
    assert paired(tmp_path, "fetch_offset", *steps, ok(offset=4, **group)) == [None, None, 1, 0]


def test_operations_of_other_processes_and_functions_are_left_alone() -> None:
    p = Pairing()
    p.invoked(0, "p", "send", "a")
    assert p.completed(1, "q", "send", "a") == 1
    assert p.completed(2, "p", "poll", "a") == 2
    assert p.completed(3, "p", "send", "a") == 0


def test_operations_that_never_complete_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "UNDER_WAY_AT_MOST", 2)
    p = Pairing()
    for n in range(3):
        p.invoked(n, "p", "poll")
    assert [p.completed(9, "p", "poll") for _ in range(3)] == [1, 2, 9]


def test_an_operation_without_a_fitting_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match='line 1: expected field "op" of f "send" to be a string or an integer'):
        paired(tmp_path, "send", invoke(value="a", op=[1]))


def test_edn_is_paired_by_name_or_values(tmp_path: Path) -> None:
    ops = [
        *(f"{{:type :invoke :process 0 :f :send :value [[:send 0 {v}]]}}" for v in (1, 2)),
        *(f"{{:type :ok :process 0 :f :send :value [[:send 0 [{v - 1} {v}]]]}}" for v in (2, 1)),
        *(f"{{:type :invoke :process 0 :f :poll :value [[:poll]] :op {op}}}" for op in (":a", "[1 2]")),
        *(f"{{:type :ok :process 0 :f :poll :value [[:poll {{}}]] :op {op}}}" for op in ("[1 2]", ":a")),
    ]
    (tmp_path / "h.edn").write_text("\n".join(ops), encoding="utf-8")
    assert indices(import_edn(tmp_path / "h.edn", tmp_path / "run")) == [None, None, 1, 0, None, None, 5, 4]
