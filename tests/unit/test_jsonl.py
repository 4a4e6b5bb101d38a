"""The JSONL importer: the recorded cases, a round trip of any history, and one clear error per malformed line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import HistoryError, StorageError
from harness.history.jsonl.importer import import_jsonl
from harness.history.store import StoredRun, open_run

pytestmark = pytest.mark.unit

Event = dict[str, Any]


def event(index: int, f: str, type_: str = "ok", process: str = "p", **fields: Any) -> Event:
    return {"index": index, "process": process, "type": type_, "f": f, "time": index * 10, **fields}


def imported(folder: Path, events: list[Event], **options: Any) -> StoredRun:
    source = folder / "case.jsonl"
    source.write_text("".join(json.dumps(e, ensure_ascii=False) + "\n" for e in events))
    return open_run(import_jsonl(source, folder / "run", **options))


def rows(run: StoredRun, table: str) -> list[dict[str, Any]]:
    return run.read_table(table).to_pylist()


def cut(row: dict[str, Any]) -> dict[str, Any]:
    """Without nulls."""
    return {k: v for k, v in row.items() if v is not None}


def test_sends_become_operations_and_records(tmp_path: Path) -> None:
    place = {"cluster": "A", "topic": "t", "partition": 3, "value": "v"}
    run = imported(
        tmp_path,
        [
            event(0, "send", "invoke", **place, txn="T", pid=7, epoch=1, seq=2, retry=True),
            event(5, "send", "info", **place, offset=None, error="timeout"),
            event(6, "send", "ok", process=4, cluster="B", topic="t", value=17, offset=1 << 40),  # type: ignore[arg-type]
        ],
    )
    first, second, third = map(cut, rows(run, "ops"))
    assert first == {
        "index": 0,
        "time_ns": 0,
        "process": "p",
        "type": "invoke",
        "f": "send",
        "cluster": "A",
        "txn": "T",
        "retry": True,
    }
    assert (second["time_ns"], second["invoke_index"], second["error"]) == (50_000_000, 0, "timeout")
    assert (third["process"], third["invoke_index"], third["cluster"]) == ("4", 6, "B")
    records = [cut(r) for r in rows(run, "op_records")]
    assert records[0] == {
        "op_index": 0,
        "position": 0,
        "action": "send",
        "topic": "t",
        "partition": 3,
        "value": "v",
        "producer_id": 7,
        "producer_epoch": 1,
        "sequence": 2,
    }
    assert records[2] == {
        "op_index": 6,
        "position": 0,
        "action": "send",
        "topic": "t",
        "offset": 1 << 40,
        "value": "17",
    }
    assert run.meta.source == "jsonl"
    assert run.meta.status == "finished"
    assert set(run.meta.clusters) == {"A", "B"}


def test_polls_keep_order_position_and_what_they_asked_for(tmp_path: Path) -> None:
    place = {"cluster": "B", "topic": "t", "partition": 0, "group": "g", "isolation": "read_committed"}
    run = imported(
        tmp_path,
        [
            event(0, "poll", "invoke", **place),
            event(1, "poll", "ok", **place, value=[[5, "a"], [7, 3], [9, None]], replica=2),
            event(2, "poll", "ok", **place, value=[], reset="latest", position=9, error="offset_out_of_range"),
        ],
    )
    assert [(r["op_index"], r["position"], r["action"], r["offset"], r["value"]) for r in rows(run, "op_records")] == [
        (1, 0, "poll", 5, "a"),
        (1, 1, "poll", 7, "3"),
        (1, 2, "poll", 9, None),
        (2, 0, "position", 9, None),
    ]
    last = rows(run, "ops")[2]
    assert (last["group"], last["isolation"], last["reset"], last["error"]) == (
        *("g", "read_committed", "latest", "offset_out_of_range"),
    )
    assert [r["invoke_index"] for r in rows(run, "ops")] == [None, 0, 2]
    assert rows(run, "ops")[1]["replica"] == 2


def test_a_second_completion_of_one_operation_belongs_to_the_same_invoke(tmp_path: Path) -> None:
    send = {"cluster": "A", "topic": "t", "partition": 0, "value": "v"}
    run = imported(
        tmp_path,
        [
            event(0, "send", "invoke", **send),
            event(1, "send", "ok", **send, offset=1),
            event(2, "send", "fail", **send),
            event(3, "send", "ok", **{**send, "value": "w"}, offset=2),  # another record, which was never invoked
            event(4, "send", "invoke", **send),  # never completes
            event(5, "send", "invoke", **{**send, "value": "x"}),
            event(6, "send", "ok", **{**send, "value": "x"}),
        ],
    )
    assert [r["invoke_index"] for r in rows(run, "ops")] == [None, 0, 0, 3, None, None, 5]


def test_a_log_dump_becomes_records_batches_and_log_ends(tmp_path: Path) -> None:
    place = {"cluster": "B", "topic": "t", "partition": 1}
    value = [
        {"offset": 4, "value": "x", "pid": 3, "pepoch": 1, "lepoch": 7, "seq": 5, "txn": "T", "key": "k"},
        {"offset": 6, "pid": 3, "pepoch": 1, "lepoch": 8, "ctl": "ABORT", "txn": "T"},
        {"offset": 7, "pid": -1, "pepoch": -1, "lepoch": 8, "ctl": "MIRROR_PID_RESET"},
        {"offset": 8, "value": "plain"},
    ]
    run = imported(
        tmp_path,
        [
            event(0, "log_dump", **place, replica=None, log_start=4, leo=9, hw=9, lso=8, value=value, mirror_of="A"),
            event(1, "log_dump", **place, replica=2, value=[{"offset": 4, "value": "x"}], isr=[1, 2], leader=1),
            event(2, "log_dump", **place, replica=2, value=[], leo=0),
            event(3, "log_dump", "invoke", **place, replica=2),
            event(4, "log_dump", "fail", **place, replica=2),
        ],
    )
    ends = rows(run, "log_ends")
    assert [
        (e["broker"], e["look"], e["log_start"], e["log_end"], e["high_watermark"], e["last_stable"]) for e in ends
    ] == [
        (-1, 0, 4, 9, 9, 8),
        (2, 0, None, 5, None, None),
        (2, 1, None, 0, None, None),
    ]
    assert (ends[0]["mirror_of"], ends[1]["isr"], ends[1]["leader"]) == ("A", [1, 2], 1)
    first, abort, reset, plain, other = rows(run, "records")
    assert cut(first) == {
        "cluster": "B",
        "broker": -1,
        "look": 0,
        "topic": "t",
        "partition": 1,
        "offset": 4,
        "key": "k",
        "value": "x",
        "base_offset": 4,
        "leader_epoch": 7,
        "producer_id": 3,
        "producer_epoch": 1,
        "sequence": 5,
        "transactional": True,
        "txn": "T",
    }
    assert (abort["control_type"], abort["transactional"], abort["value"]) == ("ABORT", True, None)
    assert (reset["control_type"], reset["transactional"], reset["producer_id"]) == ("PID_RESET", False, -1)
    assert (plain["producer_id"], plain["producer_epoch"], plain["sequence"], plain["transactional"]) == (
        -1,
        -1,
        -1,
        False,
    )
    assert (other["broker"], other["look"]) == (2, 0)
    batches = rows(run, "batches")
    assert [
        (b["base_offset"], b["last_offset"], b["control"], b["control_type"], b["records_count"]) for b in batches
    ] == [
        (4, 4, False, None, 1),
        (6, 6, True, "ABORT", 1),
        (7, 7, True, "PID_RESET", 1),
        (8, 8, False, None, 1),
        (4, 4, False, None, 1),
    ]
    assert run.meta.clusters["B"].brokers == [2]
    assert not run.has("ops")


def test_offsets_of_groups(tmp_path: Path) -> None:
    place = {"group": "g", "topic": "t", "partition": 0}
    run = imported(
        tmp_path,
        [
            event(0, "commit_offset", cluster="A", **place, offset=10, processed=9),
            event(1, "fetch_offset", cluster="A", **place, offset=4, offset_epoch=2),
            event(2, "sync_group_offset", cluster="B", **place, offset=8, source_offset=10),
            event(3, "checkpoint", cluster="B", **place, offset=7, source_offset=9, kind="share"),
            event(4, "sync_group_offset", "fail", cluster="B", **place, offset=1),
        ],
    )
    assert [(r["action"], r["offset"], r["processed"], r["leader_epoch"]) for r in rows(run, "op_records")] == [
        ("commit", 10, 9, None),
        ("fetch", 4, None, 2),
    ]
    assert [r["group"] for r in rows(run, "ops")] == ["g", "g"]
    assert [(r["event"], r["kind"], r["offset"], r["source_offset"]) for r in rows(run, "group_offsets")] == [
        ("sync", "consumer", 8, 10),
        ("checkpoint", "share", 7, 9),
    ]


def test_mirror_statements_reach_every_partition_they_are_about(tmp_path: Path) -> None:
    send = {"cluster": "A", "value": "v"}
    run = imported(
        tmp_path,
        [
            event(0, "mirror_start", "invoke", "admin", cluster="B", topic="t"),
            event(1, "mirror_start", "ok", "admin", cluster="B", topic="t", mirror="m"),
            event(2, "send", topic="t", partition=0, **send),
            event(3, "mirror_stop", "fail", "admin", cluster="B", topic="t", error="wrong state"),
            event(4, "mirror_stop", "ok", "admin", cluster="B", topic="t", partition=1, source_offset=5),
            event(5, "send", topic="t", partition=1, **send),
            event(6, "send", topic="u", partition=0, **send),
            event(7, "mirror_state", "ok", "admin", cluster="B", topic="t", partition=0, state="mirroring", lag=3),
            event(8, "stop_mm2", "info", "nemesis"),
            event(9, "start_mm2", "info", "nemesis"),
            event(10, "failover", "info", "nemesis", to="B"),
            event(11, "mirror_start", "ok", "admin", cluster="B", topic="elsewhere", source="A"),
        ],
    )
    said = {
        (r["time_ns"] // 10**7, r["topic"], r["partition"], r["state"], r["event"]) for r in rows(run, "mirror_states")
    }
    places = [("t", 0), ("t", 1), ("u", 0)]
    assert said == {
        *((1, "t", p, "PREPARING", "start") for p in (0, 1)),
        (4, "t", 1, "STOPPED", "stop"),
        (7, "t", 0, "MIRRORING", "look"),
        *((8, *place, "PAUSED", "pause") for place in places),
        *((9, *place, "MIRRORING", "resume") for place in places),
        *((10, *place, "STOPPED", "failover") for place in places),
        (11, "elsewhere", None, "PREPARING", "start"),
    }
    assert {r["cluster"] for r in rows(run, "mirror_states")} == {"B"}
    by_time = {r["time_ns"] // 10**7: r for r in rows(run, "mirror_states")}
    assert by_time[4]["source_offset"] == 5
    assert by_time[7]["lag"] == 3
    assert (by_time[1]["mirror"], by_time[11]["mirror"]) == ("m", "A->B")
    refused = [r for r in rows(run, "ops") if r["type"] == "fail"]
    assert [(r["f"], r["error"]) for r in refused] == [("mirror_stop", "wrong state")]
    faults = rows(run, "faults")
    assert [(f["name"], f["action"], f["fault_id"]) for f in faults] == [
        ("stop_mm2", "inject", 0),
        ("start_mm2", "heal", 0),
        ("failover", "inject", 1),
    ]


def test_acls_topics_retention_and_epochs(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            event(0, "acl_create", "invoke", "admin", cluster="B", acl="DENY x"),
            event(1, "acl_create", "ok", "admin", cluster="B", acl="DENY x"),
            event(2, "acl_delete", "info", "mirror", cluster="B", acl="DENY x"),  # a report
            event(3, "acl_list", cluster="B", value=["DENY x", "ALLOW y"]),
            event(4, "acl_list", cluster="B", value=[]),
            event(5, "create_topic", "ok", "admin", cluster="A", topic="t", config={"retention.ms": 5}),
            event(6, "delete_topic", "ok", "admin", cluster="A", topic="t"),
            event(7, "retention", "info", "nemesis", cluster="A", topic="t", partition=0, log_start=4),
            event(8, "epochs", cluster="B", topic="t", partition=0, leader_epoch=12),
        ],
    )
    assert [(a["event"], a["actor"], a["look"], a["binding"]) for a in rows(run, "acls")] == [
        ("create", "admin", None, "DENY x"),
        ("delete", "mirror", None, "DENY x"),
        ("look", None, 0, "DENY x"),
        ("look", None, 0, "ALLOW y"),
        ("look", None, 1, None),
    ]
    assert [(c["event"], c["topic"], c["name"], c["value"]) for c in rows(run, "configs")] == [
        ("create", "t", "retention.ms", "5"),
        ("delete", "t", None, None),
        ("retention", "t", "log_start", "4"),
    ]
    targets = [(r["op_index"], r["topic"], r["offset"], r["value"]) for r in rows(run, "op_records")]
    assert (2, None, None, "DENY x") in targets
    assert (7, "t", 4, None) in targets
    assert [(e["log_start"], e["leader_epoch"], e["broker"]) for e in rows(run, "log_ends")] == [
        (4, None, None),
        (None, 12, None),
    ]
    (fault,) = rows(run, "faults")
    assert (fault["name"], fault["cluster"], fault["target"]) == ("retention", "A", "topic t")


def test_the_info_of_an_invoked_operation_is_no_evidence(tmp_path: Path) -> None:
    events: list[Event] = []
    for f, fields in (
        ("acl_delete", {"acl": "x"}),
        ("mirror_stop", {"topic": "t", "partition": 0}),
        ("delete_topic", {"topic": "t"}),
        ("retention", {"topic": "t", "partition": 0, "log_start": 4}),
    ):
        events += [
            event(len(events) + i, f, t, "admin", cluster="B", **fields) for i, t in enumerate(("invoke", "info"))
        ]
    run = imported(tmp_path, events)
    assert set(run.files) == {"ops", "op_records"}
    assert run.rows("ops") == 8


def test_a_mirror_state_may_have_a_lag_alone(tmp_path: Path) -> None:
    run = imported(tmp_path, [event(0, "mirror_state", cluster="B", topic="t", partition=0, lag=0)])
    (look,) = rows(run, "mirror_states")
    assert (look["state"], look["lag"], look["event"]) == (None, 0, "look")


def test_faults_are_paired(tmp_path: Path) -> None:
    run = imported(
        tmp_path,
        [
            event(0, "kill", "info", "nemesis", node=1),
            event(1, "kill", "info", "nemesis", node=2),
            event(2, "start", "info", "nemesis", node=1),
            event(3, "pause", "invoke", "nemesis", node=3),
            event(4, "pause", "ok", "nemesis", node=3),
            event(5, "resume", "info", "nemesis"),
            event(6, "resume", "info", "nemesis"),
            event(7, "delay_rpc", "info", "nemesis-2", rpc="EndTxn", txn="T1", ms=[1, 2]),
            event(8, "anything at all", "fail", "nemesis", error="no"),
        ],
    )
    faults = rows(run, "faults")
    assert [(f["name"], f["action"], f["fault_id"], f["target"]) for f in faults] == [
        ("kill", "inject", 0, "node 1"),
        ("kill", "inject", 1, "node 2"),
        ("start", "heal", 0, "node 1"),
        ("pause", "inject", 2, "node 3"),
        ("pause", "bit", 2, "node 3"),
        ("resume", "heal", 2, None),
        ("resume", "heal", 3, None),
        ("delay_rpc", "inject", 4, "rpc EndTxn"),
        ("anything at all", "inject", 5, None),
    ]
    assert json.loads(faults[7]["params"]) == {"rpc": "EndTxn", "txn": "T1", "ms": [1, 2]}
    assert (faults[8]["ok"], faults[8]["result"]) == (False, "no")


def test_blank_lines_holes_and_other_units_are_fine(tmp_path: Path) -> None:
    source = tmp_path / "h.jsonl"
    one = json.dumps(event(3, "txn_begin", cluster="A", txn="T"))
    two = json.dumps({**event(900, "txn_commit", cluster="A", txn="T", unknown=1), "time": 2.5})
    source.write_text(f"\n{one}\r\n\n{two}")
    run = open_run(import_jsonl(source, tmp_path / "run", time_unit="us"))
    assert [(r["index"], r["time_ns"]) for r in rows(run, "ops")] == [(3, 30_000), (900, 2_500)]
    with pytest.raises(HistoryError, match="time unit 'h' does not exist; there are ns, us, ms, s"):
        import_jsonl(source, tmp_path / "other", time_unit="h")


GOOD = event(0, "send", cluster="A", topic="t", partition=0, value="v")
SEND = event(1, "send", cluster="A", topic="t", partition=0, value="v")
POLL = event(1, "poll", cluster="A", topic="t", partition=0, value=[[0, "v"]])
DUMP = event(1, "log_dump", cluster="A", topic="t", partition=0, value=[])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("nonsense", "not JSON"),
        ("[1]", r"expected a JSON object, found \[1\]"),
        ("\udcff", "not JSON"),
        ('{"a":"\\ud800"}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ({k: v for k, v in SEND.items() if k != "time"}, "fields index, process, type, f, time; 'time' is missing"),
        ({**SEND, "index": "1"}, '"index" of f "send" to be an integer, found \'1\''),
        ({**SEND, "index": 1 << 63}, '"index" of f "send" to be an integer'),
        ({**SEND, "index": 0}, '"index" of f "send" to be greater than 0 of the line before, found 0'),
        ({**SEND, "process": None}, '"process" of f "send" to be a string or an integer, found None'),
        ({**SEND, "type": "okay"}, "to be invoke, ok, fail or info, found 'okay'"),
        ({**SEND, "time": "now"}, "to be a number, found 'now'"),
        ({**SEND, "time": 1 << 62}, "to fit 64 bits in nanoseconds"),
        ({**SEND, "f": "sendd"}, 'expected a known f, found "sendd"; known are acl_create'),
        ({**SEND, "f": 5}, '"f" of f "5" to be a string, found 5'),
        ({k: v for k, v in SEND.items() if k != "topic"}, 'f "send" to have a field "topic"'),
        ({**SEND, "topic": 5}, 'field "topic" of f "send" to be a string, found 5'),
        ({**SEND, "partition": "0"}, '"partition" of f "send" to be an integer, found \'0\''),
        ({**SEND, "partition": True}, '"partition" of f "send" to be an integer, found True'),
        ({**SEND, "partition": 1 << 31}, "integer of 32 bits"),
        ({**SEND, "offset": 1.5}, '"offset" of f "send" to be an integer, found 1.5'),
        ({**SEND, "value": ["v"]}, 'field "value" of f "send" to be a string, a number or null'),
        ({**SEND, "retry": "yes"}, "to be true or false"),
        ({**POLL, "value": "v"}, '"value" of f "poll" to be a list'),
        ({**POLL, "value": ["v"]}, r"list of \[offset, value\] pairs"),
        ({**POLL, "value": [[0, "v", 1]]}, "pairs"),
        ({**POLL, "value": [["0", "v"]]}, "offset of a polled record to be an integer, found '0'"),
        ({**POLL, "value": [[0, {}]]}, "value of a polled record to be a string"),
        ({k: v for k, v in POLL.items() if k != "partition"}, 'to have a field "partition"'),
        ({k: v for k, v in DUMP.items() if k != "value"}, 'f "log_dump" to have a field "value"'),
        ({**DUMP, "value": [5]}, "list of objects"),
        ({**DUMP, "value": [{"value": "v"}]}, 'to have a field "offset"'),
        (
            {**DUMP, "value": [{"offset": (1 << 63) - 1}]},
            '"offset" of f "log_dump" to be less than 9223372036854775807',
        ),
        ({**DUMP, "value": [{"offset": 0, "pepoch": 1 << 20}]}, "integer of 16 bits"),
        ({**DUMP, "isr": "all"}, "list of broker ids"),
        ({k: v for k, v in DUMP.items() if k != "cluster"}, 'to have a field "cluster"'),
        ({**SEND, "cluster": "a"}, r'"cluster" of f "send" to be A \(source\), B \(dest.* or C .*, found \'a\''),
        ({**DUMP, "mirror_of": "a"}, '"mirror_of" of f "log_dump" to be A'),
        (event(1, "failover", to="b"), '"to" of f "failover" to be A'),
        (event(1, "mirror_start", process="nemesis", cluster="b"), '"cluster" of f "mirror_start" to be A'),
        (event(1, "row", table="acls", row={"cluster": "b", "time_ns": 1, "event": "look"}), 'of f "row" to be A'),
        (event(1, "txn_commit", cluster="A"), 'f "txn_commit" to have a field "txn"'),
        (event(1, "commit_offset", cluster="A", topic="t"), 'to have a field "group"'),
        (event(1, "acl_create", cluster="A"), 'to have a field "acl"'),
        ({**event(1, "txn_begin", cluster="A", txn="T"), "time": -1}, 'field "time" to be 0 or more, found -1'),
        (event(1, "acl_list", cluster="A", value=[{}]), "list of strings"),
        (event(1, "mirror_state", cluster="B", topic="t", lag="0"), 'field "lag" of f "mirror_state" to be an integer'),
        (event(1, "create_topic", cluster="B", topic="t", config=[]), "object of name: value"),
        (event(1, "epochs", cluster="B", topic="t", partition=0), 'to have a field "leader_epoch"'),
    ],
)
def test_a_malformed_line_is_one_clear_error(tmp_path: Path, line: Event | str, words: str) -> None:
    source = tmp_path / "bad.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    source.write_bytes(f"{json.dumps(GOOD)}\n\n{text}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(HistoryError, match=words) as caught:
        import_jsonl(source, tmp_path / "run")
    said = str(caught.value)
    assert said.startswith(f"{source}, line 3: expected")
    assert "\n" not in said
    assert len(said) < 700
    assert not list((tmp_path / "run").glob("**/*")), "a failed import must leave nothing"


def test_files_that_are_no_history(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"nowhere\.jsonl cannot be read: No such file"):
        import_jsonl(tmp_path / "nowhere.jsonl", tmp_path / "run")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(HistoryError, match="holds no event"):
        import_jsonl(tmp_path / "empty.jsonl", tmp_path / "run")
    with pytest.raises(HistoryError, match="cannot be read: Is a directory"):
        import_jsonl(tmp_path, tmp_path / "run")


def test_the_target_must_be_free_and_writable(tmp_path: Path) -> None:
    imported(tmp_path, [GOOD])
    with pytest.raises(HistoryError, match="already holds a run"):
        import_jsonl(tmp_path / "case.jsonl", tmp_path / "run")
    assert open_run(tmp_path / "run").rows("ops") == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write to"):
        import_jsonl(tmp_path / "case.jsonl", tmp_path / "file" / "run")


# -- any history comes back ------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["t", "u", "ünï", "a b"])
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=6)
_OFFSETS = st.one_of(st.none(), st.integers(0, 1 << 50))
_TYPES = st.sampled_from(["invoke", "ok", "fail", "info"])


def _fields(f: str) -> st.SearchStrategy[Event]:
    place = {"cluster": st.sampled_from("AB"), "topic": _NAMES, "partition": st.integers(0, 3)}
    options: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "send": {
            **place,
            "value": st.one_of(_VALUES, st.none()),
            "offset": _OFFSETS,
            "txn": st.one_of(st.none(), _NAMES),
            "pid": st.one_of(st.none(), st.integers(-2, 1 << 60)),
            "epoch": st.one_of(st.none(), st.integers(-1, 32767)),
            "seq": st.one_of(st.none(), st.integers(-1, (1 << 31) - 1)),
        },
        "poll": {
            **place,
            "value": st.lists(st.tuples(st.integers(0, 99), _VALUES).map(list), max_size=4),
            "group": st.one_of(st.none(), _NAMES),
        },
        "log_dump": {
            **place,
            "replica": st.one_of(st.none(), st.integers(0, 3)),
            "leo": st.integers(0, 100),
            "value": st.lists(
                st.fixed_dictionaries(
                    {"offset": st.integers(0, 99), "value": st.one_of(_VALUES, st.none())},
                    optional={"ctl": st.sampled_from(["COMMIT", "ABORT"]), "pid": st.integers(0, 9)},
                ),
                max_size=4,
            ),
        },
        "checkpoint": {**place, "group": _NAMES, "offset": _OFFSETS, "source_offset": _OFFSETS},
        "acl_list": {"cluster": st.sampled_from("AB"), "value": st.lists(_VALUES, max_size=3)},
        "txn_abort": {"cluster": st.sampled_from("AB"), "txn": _NAMES},
    }
    return st.fixed_dictionaries({"f": st.just(f), **options[f]})


_EVENTS = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from(["p1", "p2", 7]),
        _TYPES,
        st.sampled_from(["send", "poll", "log_dump", "checkpoint", "acl_list", "txn_abort"]).flatmap(_fields),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(drawn=_EVENTS)
def test_any_history_can_be_rewritten_from_the_tables(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, Any, str, Event]]
) -> None:
    events: list[Event] = []
    index = 0
    for step, process, type_, fields in drawn:
        index += step
        events.append({"index": index, "process": process, "type": type_, "time": index * 3, **fields})
    run = imported(tmp_path_factory.mktemp("h"), events)
    records: dict[int, list[dict[str, Any]]] = {}
    for record in rows(run, "op_records"):
        records.setdefault(record["op_index"], []).append(record)
    ops = {r["index"]: r for r in rows(run, "ops")}
    for e in events:
        f = e["f"]
        if f in ("send", "poll", "txn_abort"):
            op = ops.pop(e["index"])
            mine = records.pop(e["index"], [])
            assert (op["process"], op["type"], op["f"]) == (str(e["process"]), e["type"], f)
            assert (op["time_ns"], op["cluster"]) == (e["time"] * 10**6, e["cluster"])
            assert (op["txn"], op["group"]) == (e.get("txn"), e.get("group"))
            assert [r["position"] for r in mine] == list(range(len(mine)))
            assert {(r["topic"], r["partition"]) for r in mine} <= {(e.get("topic"), e.get("partition"))}
            if f == "send":
                (r,) = mine
                told = (r["value"], r["offset"], r["producer_id"], r["producer_epoch"], r["sequence"])
                assert told == (e["value"], e["offset"], e["pid"], e["epoch"], e["seq"])
            elif f == "poll":
                assert [[r["offset"], r["value"]] for r in mine if r["action"] == "poll"] == e["value"]
    assert not ops
    assert not records
    seen = [e for e in events if e["type"] in ("ok", "info")]
    dumps = [e for e in seen if e["f"] == "log_dump"]
    ends = rows(run, "log_ends")
    assert [(d["cluster"], d["topic"], d["partition"], d["leo"], d["time"] * 10**6) for d in dumps] == [
        (e["cluster"], e["topic"], e["partition"], e["log_end"], e["time_ns"]) for e in ends
    ]
    stored = rows(run, "records")
    assert [(r["offset"], r.get("value"), r.get("ctl"), r.get("pid", -1)) for d in dumps for r in d["value"]] == [
        (r["offset"], r["value"], r["control_type"], r["producer_id"]) for r in stored
    ]
    looks = {(e["cluster"], e["topic"], e["partition"], e["broker"], e["look"]) for e in ends}
    assert len(looks) == len(ends)
    assert {(r["cluster"], r["topic"], r["partition"], r["broker"], r["look"]) for r in stored} <= looks
    checkpoints = [e for e in seen if e["f"] == "checkpoint"]
    assert [(e["group"], e["offset"], e["source_offset"]) for e in checkpoints] == [
        (g["group"], g["offset"], g["source_offset"]) for g in rows(run, "group_offsets")
    ]
    lists = [e["value"] or [None] for e in seen if e["f"] == "acl_list"]
    assert [binding for value in lists for binding in value] == [a["binding"] for a in rows(run, "acls")]
