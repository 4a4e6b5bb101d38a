"""Foreign or unexpected files in a run's folder: they are read, or reported in one sentence; no read hangs, and no
write follows a link."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cli.export import export_run
from harness.core import remains
from harness.core.atomic_files import write_beside
from harness.core.errors import HistoryError, ShatterError, StorageError
from harness.core.owners import OWNER_FILE, Remembered, abandoned, new_temporary, release
from harness.history.jsonl.importer import import_jsonl
from harness.history.parts import partition_values, table_parts
from harness.history.runfile import RunFile, read_meta
from harness.history.schema import TABLES
from harness.history.store import open_run
from harness.report.html import report_softly, write_report
from harness.report.html import text_of as shown
from harness.report.results import load_results

pytestmark = pytest.mark.unit
LINES = [
    {"index": 0, "time": 0, "process": "p", "type": "invoke", "f": "send", "topic": "t", "partition": 0, "value": "v"},
    {"index": 1, "time": 1, "process": "p", "type": "ok", "f": "send", "topic": "t", "partition": 0, "value": "v"},
]
FAULT = {"fault_id": 1, "name": "broker-kill", "action": "inject", "time_ns": 5}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    file = tmp_path / "h.jsonl"
    file.write_text("".join(json.dumps({"cluster": "A", **line}) + "\n" for line in LINES))
    run = import_jsonl(file, tmp_path / "run")
    (run / "results.json").write_text(json.dumps({"valid": True, "why": "", "anomalies": {}}))
    return run


def in_the_way(path: Path, kind: str) -> None:
    """Put something other than a regular file where one is to be written."""
    if kind == "folder":
        path.mkdir()
    elif kind == "named pipe":
        os.mkfifo(path)
    elif kind == "symbolic link":
        (path.parent / "victim").write_text("dear")
        path.symlink_to(path.parent / "victim")
    elif kind == "device":
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:  # not root: use an existing device
            path.symlink_to("/dev/null")
    else:
        path.symlink_to(path.parent / "nowhere")


@pytest.mark.parametrize("kind", ["folder", "named pipe", "symbolic link", "device", "symbolic link to nothing"])
def test_an_export_writes_over_regular_files_only(run: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.edn"
    export_run(run, edn=out, cluster="A")
    first = out.read_text()
    export_run(run, edn=out, cluster="A")
    assert out.read_text() == first
    out.unlink()
    in_the_way(out, kind)
    before = out.lstat()
    with pytest.raises(StorageError, match=r"out\.edn is a .*, which is not overwritten; name a regular file"):
        export_run(run, edn=out, cluster="A")
    after = out.lstat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]
    if (tmp_path / "victim").exists():
        assert (tmp_path / "victim").read_text() == "dear"


@pytest.mark.parametrize("kind", ["folder", "named pipe", "symbolic link"])
def test_a_report_writes_over_regular_files_only_and_keeps_the_verdict(run: Path, kind: str) -> None:
    in_the_way(run / "report.html", kind)
    said: list[str] = []
    assert report_softly(run, say=said.append) is None
    assert len(said) == 1
    assert "report.html is a" in said[0]
    assert "the verdict stands" in said[0]
    assert load_results(run).exit_code == 0


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_beside(file, "first \ud800\n")
    assert file.read_text() == "first \\ud800\n"
    with pytest.raises(StorageError, match="cannot write to"):
        write_beside(tmp_path / "none" / "f", "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write to"):
        write_beside(tmp_path / "file" / "f", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "file"]


def deep(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (deep(5000), "deep"),
        ('{"format_version": 1, "run_id": "r", "x": ' + deep(300) + "}", "deep"),
        ('{"format_version": 1, "run_id": ' + "9" * 5000 + "}", "run.json"),
        ('{"format_version": ' + "[" * 900 + "]" * 900 + "}", "deep"),
        ('{"format_version": 1, "run_id": "r", "test": []}', "test"),
        ('{"format_version": 1, "run_id": "r", "test": {"brokers": "three"}}', "test.brokers"),
        ('{"format_version": 1, "run_id": "r", "schedule": [[1]]}', "schedule"),
        ('{"format_version": 0, "run_id": "r"}', "format_version"),
        ("\ufeff{}", "run.json"),
        ("", "run.json"),
    ],
)
def test_an_odd_run_json_is_one_sentence_and_no_hindrance_to_the_report(run: Path, text: str, words: str) -> None:
    (run / "run.json").write_text(text)
    with pytest.raises(HistoryError) as caught:
        read_meta(run)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "<h1>valid</h1>" in write_report(run).read_text()


def test_run_json_may_say_any_text(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())
    document["notes"] = ["half a character: \ud800", "<script>"]
    document["test"] = {
        "name": "n",
        "brokers": {"A": 3, "B": 5},
        "nemeses": ["x", "y"],
        "spec": {"a": [1, {"b": None}]},
    }
    (run / "run.json").write_text(json.dumps(document))
    RunFile.open(run).add_note("more")
    assert read_meta(run).notes[-1] == "more"
    page = write_report(run).read_text()
    assert "A: 3, B: 5" in page
    assert "a: 1, b: None" in page


@pytest.mark.parametrize(
    "body",
    [
        deep(5000),
        "[1]",
        '{"valid": []}',
        '{"valid": true, "anomalies": []}',
        '{"valid": true, "anomalies": {"x": 3}}',
        '{"valid": true, "anomalies": {"x": {"count": 1e999}}}',
        '{"valid": true, "anomalies": {"x": {"count": null}}}',
        '{"valid": true, "anomalies": {"x": {"count": 1, "witnesses": [1]}}}',
        '{"valid": true, "anomalies": {"x": {"count": 1, "witnesses": {}}}}',
        '{"valid": true, "figures": 5}',
        '{"valid": true, "looked_at": {"a": 1}}',
        '{"valid": true, "not_looked_at": []}',
        '{"valid": true, "anomalies": {"x": {"count": 1, "witnesses": [' + deep(200) + "]}}}",
    ],
)
def test_odd_results_are_one_sentence(run: Path, body: str) -> None:
    (run / "results.json").write_text(body)
    with pytest.raises(HistoryError, match=r"results\.json.*shatter check"):
        write_report(run)


@pytest.mark.parametrize(("name", "read"), [("run.json", read_meta), ("results.json", load_results)])
def test_a_pipe_in_place_of_a_document_is_not_waited_for(run: Path, name: str, read: Callable[[Path], object]) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(HistoryError, match="not a regular file"):
        read(run)


def test_a_pipe_in_a_table_and_odd_columns_do_not_stop_the_report(run: Path) -> None:
    os.mkfifo(run / "ops" / "x.parquet")
    os.mkfifo(run / "ops" / ".hidden.parquet")
    columns = {"fault_id": pa.array([2], pa.int16()), "name": pa.array(["k"]).dictionary_encode()}
    more = {"action": pa.array(["inject"], pa.large_string()), "time_ns": pa.array([5], pa.int32())}
    (run / "faults").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([FAULT], schema=TABLES["faults"].schema), run / "faults" / "a.parquet")
    pq.write_table(pa.table({**columns, **more}), run / "faults" / "b.parquet")
    assert "broker-kill" in write_report(run).read_text()
    with pytest.raises(HistoryError, match=r"x\.parquet is not a regular file"):
        open_run(run)
    assert len(open_run(run, leave_out_torn=True).problems) == 1


def test_null_fault_ids_are_named(run: Path) -> None:
    (run / "faults").mkdir(exist_ok=True)
    table = pa.table({"fault_id": pa.array([None], pa.int32()), "name": ["k"], "action": ["inject"], "time_ns": [5]})
    pq.write_table(table, run / "faults" / "a.parquet")
    with pytest.raises(HistoryError, match="column fault_id holds null"):
        open_run(run)
    said: list[str] = []
    assert report_softly(run, say=said.append) is None
    assert "column fault_id holds null" in said[0]


def test_the_report_lists_every_fault_of_the_schedule(run: Path) -> None:
    drawn = [
        {
            "fault_id": n,
            "nemesis": name,
            "at_s": 3.0 * n,
            "duration_s": 2.0,
            "cluster": "B",
            "role": "any",
            "params": {},
        }
        for n, name in ((1, "broker-kill"), (2, "mirror-kill"), (3, "link-partition"))
    ]
    RunFile.open(run).update(schedule=drawn)
    steps = [FAULT, {"fault_id": 2, "name": "mirror-kill", "action": "skip", "time_ns": 6, "result": "no room"}]
    (run / "faults").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(steps, schema=TABLES["faults"].schema), run / "faults" / "a.parquet")
    page = write_report(run).read_text()
    for words in ("broker-kill", "mirror-kill", "skipped: no room", "link-partition", "never injected"):
        assert words in page
    assert "9.0 s, 2.0 s" in page


def test_folders_named_column_and_value_are_parts_of_a_table(tmp_path: Path) -> None:
    top = tmp_path / "ops"
    for name in (
        "cluster=A/type=ok",
        "cluster=__HIVE_DEFAULT_PARTITION__",
        "retry=true",
        "old=1",
        "cluster=A/cluster=B",
    ):
        (top / name).mkdir(parents=True, exist_ok=True)
        (top / name / "p.parquet").write_bytes(b"")
    (top / ".crc").mkdir()
    (top / ".part-000000.parquet.crc").write_bytes(b"stale")
    parts = table_parts(top)
    values = [partition_values(file, top) for file in parts.files]
    assert values == [{"cluster": "A", "type": "ok"}, {"cluster": None}, {"retry": True}]
    assert [problem.partition(" is named for")[0] for problem in parts.problems] == [
        str(top / "cluster=A" / "cluster=B"),
        str(top / "old=1"),
    ]
    (top / "time_ns=soon").mkdir()
    with pytest.raises(HistoryError, match="time_ns='soon' does not fit column time_ns"):
        table_parts(top)


def test_temporary_folders_of_the_dead_are_found_and_those_of_the_living_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = new_temporary("check")
    scratch = tmp_path / "runs" / "r" / "results" / "scratch-0a1b2c3d"
    names = [tmp_path / name for name in ("shatter-check-1-aa", "shatter-abcdefgh", "shatter-elsewhere", "other")]
    dead = {"host": os.uname().nodename, "pid": 2**22 + 1, "start": 7}
    for folder in (scratch, *names):
        folder.mkdir(parents=True)
    for folder in (scratch, names[0], names[3]):
        (folder / OWNER_FILE).write_text(json.dumps(dead))
    (names[2] / OWNER_FILE).write_text(json.dumps({**dead, "host": "another"}))
    (tmp_path / "shatter-check-link").symlink_to(names[3])
    assert not abandoned(names[1]), "it names no owner, and is new"
    os.utime(names[1], (1, 1))
    found = remains.remains(tmp_path / "runs")
    assert {Path(one.name) for one in found} == {scratch, names[0], names[1]}
    assert len(remains.remove(found)) == 3
    assert mine.exists()
    assert names[3].exists()
    release(mine)
    assert not mine.exists()


def test_a_folder_that_cannot_be_written_is_reported_before_the_check(run: Path) -> None:
    (run / "results").write_text("in the way")
    with pytest.raises(StorageError, match="results is a file where a folder of results belongs"):
        remains.ready_results(run)
    (run / "results").unlink()
    remains.ready_results(run)
    assert [path.name for path in (run / "results").iterdir()] == []


def test_values_are_shown_with_their_names() -> None:
    value: Any = {"A": 3, "list": [1, {"x": None}], "text": "t"}
    assert shown(value) == "A: 3, list: 1, x: None, text: t"
    assert issubclass(StorageError, ShatterError)


def test_a_relative_name_with_a_colon_is_no_address(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "a:b {1}*"
    run.rename(tmp_path / odd)
    monkeypatch.chdir(tmp_path)
    assert open_run(odd).rows("ops") == 2
    assert open_run(odd).read_table("ops").num_rows == 2
    page = write_report(Path(odd)).read_text()
    assert "<td>send</td><td>ok</td>" in page
    export_run(Path(odd), edn=Path("c:d [1].edn"), cluster="A")
    assert Path("c:d [1].edn").stat().st_size
    imported = import_jsonl(Path("h.jsonl"), Path("e:f"))
    assert open_run(imported).rows("ops") == 2


def test_only_remembered_paths_are_removed(tmp_path: Path) -> None:
    remembered = Remembered()
    scratch, file = tmp_path / "run" / "results" / "scratch-1", tmp_path / "run" / ".shatter-1.tmp"
    scratch.mkdir(parents=True)
    (scratch / "part").write_text("x")
    file.write_text("x")
    (tmp_path / "kept").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "kept")
    for path in (scratch, file, link, tmp_path / "kept", tmp_path / "nowhere"):
        remembered.add(path)
    remembered.drop(tmp_path / "kept")
    remembered.remove_all()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "run"]
