"""Opening stored runs: torn files, foreign schemas, broken run.json, and reading without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import HistoryError, StorageError
from harness.history.ops import F, OpRecord, OpType
from harness.history.recorder import RunRecorder
from harness.history.runfile import RunFile, RunMeta, TestParameters, read_meta
from harness.history.schema import TABLES
from harness.history.store import open_run
from harness.history.writer import PartWriter, clean_leftovers, to_arrow

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run of two files per operation table."""
    with RunRecorder(tmp_path / "run") as recorder:
        for n in range(2):
            index = recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, f"v{n}")])
            recorder.complete(index, OpType.OK, records=[OpRecord("send", "t", 0, n, f"v{n}")])
            recorder.flush()
    return tmp_path / "run"


def test_what_was_recorded_is_read(run: Path) -> None:
    stored = open_run(run)
    assert stored.meta.run_id == "run"
    assert set(stored.files) == {"ops", "op_records"}
    assert len(stored.files["ops"]) == 2
    assert stored.rows("ops") == 4
    assert stored.read_table("ops").column("index").to_pylist() == [0, 1, 2, 3]
    assert stored.read_table("op_records", columns=["value", "offset"]).to_pylist()[1] == {"value": "v0", "offset": 0}
    assert not stored.has("acls")
    assert stored.read_table("acls").num_rows == 0
    assert stored.read_table("acls").column_names == [c.name for c in TABLES["acls"].columns]
    assert stored.sorted_by("ops", "index")
    assert sum(b.num_rows for b in stored.batches("ops", ["index"])) == 4


def test_unknown_tables_and_columns_are_named(run: Path) -> None:
    stored = open_run(run)
    with pytest.raises(HistoryError, match="no table is named 'opps'; there are ops, "):
        stored.read_table("opps")
    with pytest.raises(HistoryError, match="table ops has no column 'colour'"):
        stored.read_table("ops", columns=["colour"])


@pytest.mark.parametrize("cut", [0, 3, 11, 12, 100, -1, -9])
def test_a_torn_file_is_named_with_the_fix(run: Path, cut: int) -> None:
    victim = run / "ops" / "part-000001.parquet"
    data = victim.read_bytes()
    victim.write_bytes(data[:cut])
    with pytest.raises(HistoryError) as caught:
        open_run(run)
    said = str(caught.value)
    assert str(victim) in said
    assert "delete it or move it away, the rest of the run is intact" in said
    assert "\n" not in said
    stored = open_run(run, leave_out_torn=True)
    assert len(stored.problems) == 1
    assert stored.read_table("ops").column("index").to_pylist() == [0, 1]
    victim.unlink()
    assert open_run(run).rows("ops") == 2


def test_a_footer_full_of_rubbish_is_torn_too(run: Path) -> None:
    victim = run / "ops" / "part-000000.parquet"
    data = bytearray(victim.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[footer : footer + 60] = b"\xff" * 60
    victim.write_bytes(bytes(data))
    with pytest.raises(HistoryError, match=r"part-000000\.parquet is torn"):
        open_run(run)


def test_several_torn_files_are_counted(run: Path) -> None:
    for victim in run.glob("*/part-000001.parquet"):
        victim.write_bytes(b"")
    with pytest.raises(HistoryError, match=r"1 more files are torn"):
        open_run(run)


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)


def minimal_ops(**extra: Any) -> dict[str, Any]:
    return {"index": [7], "time_ns": [1], "process": ["x"], "type": ["invoke"], "f": ["send"], **extra}


def test_extra_columns_are_ignored_absent_optional_ones_are_null(run: Path) -> None:
    write(run / "ops" / "theirs.parquet", pa.table(minimal_ops(colour=["red"])))
    row = open_run(run).read_table("ops").to_pylist()[-1]
    assert (row["index"], row["cluster"], row["error"]) == (7, None, None)
    assert "colour" not in row


def test_narrow_integers_large_strings_and_dictionaries_are_read(run: Path) -> None:
    table = pa.table(
        minimal_ops(
            index=pa.array([7], pa.int32()),
            process=pa.array(["x"], pa.large_string()),
            f=pa.array(["send"]).dictionary_encode(),
        )
    )
    write(run / "ops" / "theirs.parquet", table)
    row = open_run(run).read_table("ops").to_pylist()[-1]
    assert (row["index"], row["process"], row["f"]) == (7, "x", "send")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({k: v for k, v in minimal_ops().items() if k != "index"}, "has no column index .*table ops must have"),
        (minimal_ops(index=["7"]), "column index is string, table ops has it as int64"),
        (minimal_ops(index=[7.0]), "column index is double"),
        (minimal_ops(txn=[5]), "column txn is int64, table ops has it as string"),
    ],
)
def test_a_schema_that_does_not_fit_is_named(run: Path, columns: dict[str, Any], words: str) -> None:
    write(run / "ops" / "theirs.parquet", pa.table(columns))
    with pytest.raises(HistoryError, match=f"theirs.parquet.*{words}"):
        open_run(run)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("column", ["index", "type"])
def test_null_in_a_required_column_is_named(run: Path, column: str, statistics: bool) -> None:
    file = run / "ops" / "theirs.parquet"
    rows = {name: pa.array([*values, None if name == column else values[0]]) for name, values in minimal_ops().items()}
    pq.write_table(pa.table(rows), file, write_statistics=statistics)
    with pytest.raises(HistoryError, match=f"^{file}: column {column} holds null, table ops must have a value"):
        open_run(run)
    pq.write_table(pa.table(minimal_ops()), file, write_statistics=statistics)
    assert open_run(run).rows("ops") == 5


def test_a_damaged_page_is_named_by_every_reader(run: Path) -> None:
    victim = run / "ops" / "part-000001.parquet"
    data = bytearray(victim.read_bytes())
    data[4:60] = b"\x55" * 56
    victim.write_bytes(data)
    stored = open_run(run)
    for read in (lambda: stored.read_table("ops"), lambda: list(stored.batches("ops"))):
        with pytest.raises(HistoryError, match=f"^{victim} cannot be read .* move it away") as caught:
            read()
        assert "\n" not in str(caught.value)
    (said,) = stored.damaged()
    assert said == str(caught.value)


def test_temporary_files_are_not_read_and_are_cleaned(run: Path) -> None:
    (run / "ops" / ".part-000009.parquet.1.tmp").write_bytes(b"half")
    (run / "ops" / "_SUCCESS").write_bytes(b"")
    assert open_run(run).rows("ops") == 4
    assert [p.name for p in clean_leftovers(run)] == [".part-000009.parquet.1.tmp"]
    assert not list((run / "ops").glob(".*"))


def test_evidence_can_be_added_to_a_finished_run(run: Path) -> None:
    writer = PartWriter(run, "ops")
    rows = pq.read_table(run / "ops" / "part-000000.parquet")
    added = writer.write(rows)
    assert added is not None
    assert added.name == "part-000002.parquet"
    assert writer.write(rows.slice(0, 0)) is None
    with pytest.raises(HistoryError, match="no table is named"):
        PartWriter(run, "nope")


def test_a_writer_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "ops").write_text("in the way")
    with pytest.raises(StorageError, match=f"cannot write to {tmp_path}/ops.*--out"):
        PartWriter(tmp_path, "ops").write_rows([(0, 0, "p", "ok", "poll", *[None] * (len(TABLES["ops"].columns) - 5))])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not a run: it holds no run.json"),
        ("", "torn or not JSON"),
        ('{"format_version": 1, "run_id"', "torn or not JSON"),
        ("[1]", "must hold a JSON object, not list"),
        ('{"run_id": "x"}', "format_version must be a positive integer, not None"),
        ('{"run_id": "x", "format_version": "1"}', "format_version must be a positive integer, not '1'"),
        ('{"run_id": "x", "format_version": 99}', "format version 99, this shatter reads up to 1; upgrade"),
        ('{"format_version": 1}', "run_id: field required"),
        ('{"format_version": 1, "run_id": "x", "status": "gone"}', "status: input should be"),
        ('{"format_version": 1, "run_id": "x", "phases": [{"name": 5}]}', "phases.0.name"),
    ],
)
def test_a_broken_run_json_is_one_clear_sentence(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(HistoryError, match=words) as caught:
        open_run(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_folder(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="does not exist"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="is not a folder"):
        open_run(tmp_path / "file")


def test_run_json_keeps_unknown_keys_and_validates_changes(tmp_path: Path) -> None:
    file = RunFile.create(tmp_path / "r", RunMeta(run_id="r", test=TestParameters(mirror="mm2", seed=5)))
    path = tmp_path / "r" / "run.json"
    data = json.loads(path.read_text())
    data["theirs"] = {"a": [1]}
    data["test"]["flavour"] = "mint"
    path.write_text(json.dumps(data))
    again = RunFile.open(tmp_path / "r")
    again.update(status="finished", topic_map={"t": "A.t"}, clusters={"A": {"cluster_id": "abc", "brokers": [1, 2]}})
    again.add_note("slow disk")
    again.add_note("slow disk")
    meta = read_meta(tmp_path / "r")
    assert json.loads(path.read_text())["theirs"] == {"a": [1]}
    assert json.loads(path.read_text())["test"]["flavour"] == "mint"
    assert (meta.status, meta.clusters["A"].brokers, meta.notes) == ("finished", [1, 2], ["slow disk"])
    assert (meta.topic_on("B", "t"), meta.topic_on("A", "t"), meta.topic_on("B", "u")) == ("A.t", "t", "u")
    assert meta.test.seed == 5
    with pytest.raises(HistoryError, match="status"):
        again.update(status="lost")
    assert read_meta(tmp_path / "r").status == "finished"
    assert file.meta.status == "running"
    assert [p.name for p in (tmp_path / "r").iterdir()] == ["run.json"]


_TEXT = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=8))
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "int64": _LONG,
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "string": st.text(st.characters(codec="utf-8"), max_size=8),
    "bool": st.booleans(),
}


def rows_of(table: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    def values(column: Any) -> st.SearchStrategy[Any]:
        kind = st.lists(_BY_TYPE["int32"], max_size=3) if pa.types.is_list(column.type) else _BY_TYPE[str(column.type)]
        return st.one_of(st.none(), kind) if column.nullable else kind

    return st.lists(st.tuples(*(values(c) for c in TABLES[table].columns)), max_size=5)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_rows_of_any_table_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(TABLES)))
    parts = data.draw(st.lists(rows_of(table), min_size=1, max_size=3))
    folder = tmp_path_factory.mktemp("run")
    RunFile.create(folder, RunMeta(run_id="r"))
    writer = PartWriter(folder, table)
    for rows in parts:
        writer.write_rows(rows)
    read = open_run(folder).read_table(table)
    expected = [row for rows in parts for row in rows]
    assert [tuple(r.values()) for r in read.to_pylist()] == expected
    assert to_arrow(TABLES[table], []).num_rows == 0
