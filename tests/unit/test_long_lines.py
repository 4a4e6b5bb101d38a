"""Lines and forms that are too long, too deep or compressed: one sentence with file and line, in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import HistoryError
from harness.history.edn.importer import import_edn
from harness.history.jsonl.importer import import_jsonl

pytestmark = pytest.mark.unit
FIRST = '{"index": 0, "time": 0, "process": "p", "type": "ok", "f": "poll", "cluster": "A", "value": []}\n'
OP = "{:type :ok, :process 0, :f :poll, :value [[:poll {}]]}\n"
LONG = 100_000_000


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (import_jsonl, FIRST + "x" * LONG, "line 2: expected at most 67,108,864 bytes in a line"),
        (import_jsonl, FIRST + "[" * LONG, "line 2: expected at most 67,108,864 bytes in a line"),
        (import_jsonl, FIRST + '{"index": 1, "value": ' + "[" * 5000 + "]" * 5000 + "}\n", "line 2"),
        (import_jsonl, FIRST + '{"value": ' * 5000 + "1" + "}" * 5000 + "\n", "line 2"),
        (import_edn, OP + '"' + "x" * LONG, "line 2: one form has more than 67,108,864 characters"),
        (import_edn, OP + "x" * LONG, "line 2: one form has more than 67,108,864 characters"),
        (import_edn, OP + "{:value " + "[" * 5000, "line 2: expected forms nested at most 100 deep"),
    ],
)
def test_what_is_too_long_or_too_deep_is_named(
    tmp_path: Path, read: Callable[[Path, Path], Path], text: str, words: str
) -> None:
    file = tmp_path / "h.txt"
    file.write_text(text)
    began = time.monotonic()
    with pytest.raises(HistoryError) as caught:
        read(file, tmp_path / "run")
    assert time.monotonic() - began < 60
    assert words in str(caught.value)
    assert "h.txt" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not (tmp_path / "run" / "run.json").exists()


def test_an_operation_that_never_ends_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.history.edn.reader.MOST_CHARACTERS", 1 << 20)
    file = tmp_path / "h.edn"
    file.write_text(OP + "{:value [" + "\n1 2" * (1 << 20))
    with pytest.raises(HistoryError, match="one form has more than 1,048,576 characters"):
        import_edn(file, tmp_path / "run")


def test_a_long_history_of_short_forms_in_one_vector_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.history.edn.reader.MOST_CHARACTERS", 1 << 20)
    file = tmp_path / "h.edn"
    file.write_text("[" + OP.replace("\n", " ") * 30_000 + "]")
    import_edn(file, tmp_path / "run")
