"""From any file an importer makes a run or one clear error message: it never crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.errors import HistoryError
from harness.history.edn.importer import import_edn
from harness.history.jsonl.importer import import_jsonl
from harness.history.store import open_run

pytestmark = pytest.mark.unit

_JSONL = [
    {
        "process": "p",
        "type": "invoke",
        "f": "send",
        "cluster": "A",
        "topic": "t",
        "partition": 0,
        "value": "v",
        "pid": 3,
    },
    {"process": "c", "type": "ok", "f": "poll", "cluster": "A", "topic": "t", "partition": 0, "value": [[0, "v"]]},
    {
        "process": "o",
        "type": "ok",
        "f": "log_dump",
        "cluster": "B",
        "topic": "t",
        "partition": 0,
        "replica": 1,
        "leo": 2,
    }
    | {"value": [{"offset": 0, "value": "v", "pid": 1, "ctl": "ABORT"}], "isr": [1]},
    {"process": "nemesis", "type": "info", "f": "failover", "to": "B"},
    {
        "process": "m",
        "type": "ok",
        "f": "checkpoint",
        "cluster": "B",
        "group": "g",
        "topic": "t",
        "partition": 0,
        "offset": 1,
    },
    {"process": "a", "type": "ok", "f": "acl_list", "cluster": "B", "value": ["x"]},
    {"process": "a", "type": "ok", "f": "create_topic", "cluster": "B", "topic": "t", "config": {"a": 1}},
    {"process": "a", "type": "ok", "f": "config_list", "cluster": "B", "topic": "t", "config": {"a": 1}},
    {"process": "a", "type": "ok", "f": "row", "table": "log_ends", "row": {"cluster": "B", "isr": [1], "leader": 1}},
]
_EDN = (
    "{:index 0 :time 1 :type :invoke :process 0 :f :send :value [[:send 0 1]]}\n"
    "#jepsen.history.Op{:index 1, :time 2, :type :ok, :process 0, :f :txn, "
    ':value [[:send 0 [3 "a\\"b"]] [:poll {0 [[1 2]]}]]}\n'
    "{:index 2 :time 3 :type :info :process :nemesis :f :start :value #{:n1}} ; said\n"
    "{:index 3 :time 4 :type :ok :process 1 :f :assign :value [0 1] :seek-to-beginning? true}\n"
)
_ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def outcome(read: Callable[[Path, Path], Path], source: Path) -> None:
    """Import; the only exception may be a HistoryError of one line that names the file."""
    target = source.with_name("run")
    said = ""
    try:
        open_run(read(source, target))
    except HistoryError as error:
        said = str(error)
    assert not said or (said.startswith(str(source)) and "\n" not in said)
    assert not said or not list(target.glob("*/*.parquet"))


def lines(events: list[dict[str, Any]]) -> bytes:
    told = [json.dumps({"index": i, "time": i, **e}) for i, e in enumerate(events)]
    return ("\n".join(told) + "\n").encode()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_in_any_field(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    events = [dict(e) for e in _JSONL]
    for _ in range(data.draw(st.integers(1, 3))):
        victim = data.draw(st.sampled_from(events))
        name = data.draw(
            st.sampled_from([*victim, "offset", "state", "epoch", "txn", "error", "time", "index", "retry"])
        )
        victim[name] = data.draw(_ANYTHING)
    source = tmp_path_factory.mktemp("f") / "h.jsonl"
    source.write_bytes(lines(events))
    outcome(import_jsonl, source)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), edn=st.booleans())
def test_any_damage_to_the_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, edn: bool) -> None:
    text = bytearray(_EDN.encode() if edn else lines(_JSONL))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(0, 6))
        text[at : at + length] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"{", b"]", b'"', b"\\", b"#_"]))
        )
    source = tmp_path_factory.mktemp("f") / ("h.edn" if edn else "h.jsonl")
    source.write_bytes(bytes(text))
    outcome(import_edn if edn else import_jsonl, source)
