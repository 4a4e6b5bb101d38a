"""`shatter check FILE` on files that are not histories: exit code 254 or 255, one sentence that names the file and the
line, no traceback. Spark is never started."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.cli.app import _main

pytestmark = pytest.mark.unit

HEAD: dict[str, Any] = {"index": 0, "process": "p", "type": "invoke", "f": "send", "time": 1}
SEND: dict[str, Any] = {**HEAD, "cluster": "A", "topic": "t", "partition": 0, "value": "v"}


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(e) + "\n" for e in events)


JSONL: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "holds no event"),
    "only blank lines": ("\n\n", "holds no event"),
    "a truncated last line": (lines(SEND) + '{"index": 1, "process": "p", "ty', "line 2: expected a JSON object"),
    "an index twice": (lines(SEND, SEND), "line 2: expected field .index. .* greater than 0"),
    "an index out of order": (lines({**SEND, "index": 5}, {**SEND, "index": 4}), "line 2: .*greater than 5"),
    "an unknown f": (lines({**SEND, "f": "sned"}), 'line 1: expected a known f, found "sned"; known are'),
    "an unknown type": (lines({**SEND, "type": "okay"}), "line 1: .*invoke, ok, fail or info"),
    "no type": (lines({k: v for k, v in SEND.items() if k != "type"}), "line 1: .*'type' is missing"),
    "a list": ("[1]\n", "line 1: expected a JSON object, found"),
    "not UTF-8": (b'{"index": 0, "process": "\xff"}\n', "line 1: "),
    "half a surrogate pair": (lines({**SEND, "value": "\ud800"}), "line 1: expected"),
    "an offset beyond 64 bits": (lines({**SEND, "offset": 1 << 63}), "line 1: .*64 bits"),
    "a value that is a list": (lines({**SEND, "value": [1]}), "line 1: .*string, a number or null"),
    "polled pairs that are none": (lines({**SEND, "f": "poll", "value": [[0]]}), "line 1: .*pairs"),
    "a row of an unknown table": (lines({**SEND, "f": "row", "table": "opps", "row": {}}), "line 1: .*one of log_ends"),
    "a row with a wrong column": (
        lines({**SEND, "f": "row", "table": "metrics", "row": {"vaule": 1}}),
        "line 1: expected columns of table metrics .* found 'vaule'",
    ),
    "a row with a wrong type": (
        lines({**SEND, "f": "row", "table": "log_ends", "row": {"isr": [1 << 40]}}),
        "line 1: .*column isr takes list",
    ),
}
EDN: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "holds no operation"),
    "a truncated last line": ("{:type :invoke, :process 0, :f :send, :value [[:send 0", "line 1: not EDN: .*closed"),
    "an index twice": ("{:index 0 :type :ok :process 0 :f :poll :value []}\n" * 2, "line 2: .*greater than 0"),
    "an unknown f": ("{:type :ok :process 0 :f :sned :value []}", "line 1: .*:send, :poll, :txn"),
    "an unknown type": ("{:type :okay :process 0 :f :send :value []}", "line 1: .*:invoke, :ok, :fail or :info"),
    "not UTF-8": (b"{:type :ok \xff}", "is not UTF-8"),
    "a number": ("17", "line 1: expected an operation as a map"),
    "an offset that is none": ('{:type :ok :process 0 :f :poll :value [[:poll {0 [["x" 1]]}]]}', "line 1: .*offset"),
}
for _kind, _text in ((JSONL, lines(SEND)), (EDN, "{:type :ok :process 0 :f :poll}")):
    _kind["a byte order mark"] = ("\ufeff" + _text, "begins with a byte order mark; save it as UTF-8 without one")
    _kind["UTF-16"] = (_text.encode("utf-16"), "begins with a byte order mark of UTF-16; save it as UTF-8")
    _kind["gzip"] = (gzip.compress(_text.encode()), "is compressed with gzip; unpack it with gunzip first")
CASES = [("jsonl", n, *c) for n, c in JSONL.items()] + [("edn", n, *c) for n, c in EDN.items()]


@pytest.mark.parametrize(("kind", "name", "text", "words"), CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES])
def test_one_clear_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, name: str, text: str | bytes, words: str
) -> None:
    file = tmp_path / f"history.{kind}"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    code = _main(["check", str(file)])
    said = capsys.readouterr()
    told = [line for line in said.err.splitlines() if line]
    assert code in (254, 255)
    assert len(told) == 1, told
    assert told[0].startswith(f"error: {file}")
    assert not said.out
    assert re.search(words, told[0]), told[0]


@pytest.mark.parametrize("name", ["absent.jsonl", "absent.edn", "absent"])
def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert _main(["check", str(tmp_path / name)]) in (254, 255)
    assert "does not exist" in capsys.readouterr().err


def test_a_file_of_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history.csv").write_text("a,b\n")
    assert _main(["check", str(tmp_path / "history.csv")]) in (254, 255)
    assert "it must end in .jsonl or .edn" in capsys.readouterr().err


@pytest.mark.parametrize("document", [None, "{torn", "[]", '{"run_id": 1}'])
def test_a_folder_that_is_not_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str | None) -> None:
    if document is not None:
        (tmp_path / "run.json").write_text(document)
    assert _main(["check", str(tmp_path)]) in (254, 255)
    told = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(told) == 1
    assert str(tmp_path) in told[0]


def test_of_several_each_one_that_cannot_be_judged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "absent.jsonl", tmp_path / "history.csv"]
    paths[1].write_text("a,b\n")
    assert _main(["check", *map(str, paths)]) == 255
    said = capsys.readouterr().out
    assert "absent.jsonl does not exist" in said
    assert "it must end in .jsonl or .edn" in said
    assert said.count("failed") == 2, "both are in the list at the end"


def test_one_history_is_kept_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert _main(["check", *paths, "--out", str(tmp_path / "kept")]) == 254
    assert "--out keeps the tables of one history" in capsys.readouterr().err
