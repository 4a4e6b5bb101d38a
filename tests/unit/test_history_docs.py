"""docs/history-format.md agrees with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.history import format_page as docs
from harness.history.importing import RunBuilder
from harness.history.jsonl.events import EventMapper
from harness.history.jsonl.forms import EVENTS
from harness.history.schema import TABLES

pytestmark = pytest.mark.unit


def test_the_file_is_up_to_date() -> None:
    assert docs.PATH.read_text(encoding="utf-8") == docs.document(), "run python -m harness.history.format_page"
    assert docs.main(["--check"]) == 0


def test_a_stale_file_is_reported_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "PATH", tmp_path / "docs" / "history-format.md")
    assert docs.main(["--check"]) == 1
    assert "run python -m harness.history.format_page" in capsys.readouterr().err
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_every_table_column_and_event_is_documented(tmp_path: Path) -> None:
    text = docs.document()
    for table in TABLES.values():
        assert f"## Table `{table.name}`" in text
        for column in table.columns:
            assert f"| `{column.name}` | " in text
    documented = {f for form in EVENTS for f in form.fs.split(", ")}
    handled = set(EventMapper(RunBuilder(tmp_path / "r", source="jsonl")).known)
    assert handled == documented - {"any f of process nemesis…"}
