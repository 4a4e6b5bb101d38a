"""Compaction: the same rows in fewer files, whatever interrupts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import StorageError
from harness.history import merging
from harness.history.merging import merge_files
from harness.history.ops import F, OpRecord, OpType
from harness.history.recorder import RunRecorder
from harness.history.runfile import RunFile, RunMeta
from harness.history.store import open_run
from harness.history.writer import PartWriter

pytestmark = pytest.mark.unit


def row(n: int) -> tuple[Any, ...]:
    return ("A", n, n, "look", None, f"binding {n}")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with 40 files of 3 rows in table acls."""
    RunFile.create(tmp_path / "run", RunMeta(run_id="r"))
    writer = PartWriter(tmp_path / "run", "acls")
    for n in range(0, 120, 3):
        writer.write_rows([row(n), row(n + 1), row(n + 2)])
    return tmp_path / "run"


def read(run: Path) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in open_run(run).read_table("acls").to_pylist()]


ALL = [row(n) for n in range(120)]


def names(run: Path) -> list[str]:
    return sorted(p.name for p in run.iterdir())


def test_many_files_become_one(run: Path) -> None:
    merge_files(run, ["acls", "ops"])
    assert [p.name for p in (run / "acls").iterdir()] == ["part-000000.parquet"]
    assert read(run) == ALL
    assert names(run) == ["acls", "run.json"]
    added = PartWriter(run, "acls").write_rows([row(120)])
    assert added is not None
    assert added.name == "part-000001.parquet"
    assert read(run) == [*ALL, row(120)]


def test_large_tables_become_several_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_ROWS_PER_FILE", 50)
    merge_files(run, ["acls"])
    assert len(list((run / "acls").iterdir())) == 3
    assert read(run) == ALL


def test_few_or_large_files_are_left_alone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_LARGE_ROWS", 3)
    merge_files(run, ["acls"])
    assert len(list((run / "acls").iterdir())) == 40
    monkeypatch.undo()
    monkeypatch.setattr(merging, "_MIN_FILES", 41)
    merge_files(run, ["acls"])
    assert len(list((run / "acls").iterdir())) == 40


def test_a_table_with_other_files_is_left_alone(run: Path) -> None:
    (run / "acls" / "theirs.txt").write_text("")
    merge_files(run, ["acls"])
    assert len(list((run / "acls").iterdir())) == 41
    assert names(run) == ["acls", "run.json"]


def test_a_full_disk_leaves_the_small_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: PartWriter, rows: Any) -> None:
        raise StorageError("no space")

    monkeypatch.setattr(PartWriter, "write", full)
    merge_files(run, ["acls"])
    assert read(run) == ALL
    assert names(run) == ["acls", "run.json"]


class Killed(BaseException):
    """Replaces kill -9: our code must not catch it."""


@pytest.mark.parametrize("at", range(5))
def test_a_kill_at_any_rename_loses_nothing(run: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    calls = 0
    rename = os.rename

    def dying(self: Path, target: Path) -> Path:
        nonlocal calls
        if calls == at:
            raise Killed
        calls += 1
        rename(self, target)
        return Path(target)

    monkeypatch.setattr(Path, "rename", dying)
    monkeypatch.setattr(merging, "_ROWS_PER_FILE", 100)  # two files: renames are 2 files, old, new
    try:
        merge_files(run, ["acls"])
    except Killed:
        assert at < 4
    monkeypatch.undo()
    assert read(run) == ALL
    merge_files(run, ["acls"])
    assert read(run) == ALL
    assert names(run) == ["acls", "run.json"]


def test_a_recording_is_compacted_when_it_ends(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run", flush_interval_s=60) as recorder:
        for n in range(20):
            index = recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, f"v{n}")])
            recorder.complete(index, OpType.OK)
            recorder.flush()
        assert len(list((tmp_path / "run" / "ops").iterdir())) == 20
    run = open_run(tmp_path / "run")
    assert {table: len(files) for table, files in run.files.items()} == {"ops": 1, "op_records": 1}
    assert run.read_table("ops").column("index").to_pylist() == list(range(40))
    assert run.read_table("op_records").column("value").to_pylist() == [f"v{n}" for n in range(20)]
