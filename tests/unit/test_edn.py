"""Jepsen's EDN: the reader, the importer, and the exporter (export, import: the same history)."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import harness.history.edn.reader as edn_reader
from harness.core.errors import HistoryError, StorageError
from harness.history.edn.importer import export_edn, import_edn
from harness.history.edn.reader import EdnError, EdnReader, Keyword, to_edn
from harness.history.ops import F, OpRecord, OpType
from harness.history.recorder import RunRecorder
from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES
from harness.history.store import StoredRun, open_run
from harness.history.writer import PartWriter

pytestmark = pytest.mark.unit


def forms(text: str) -> list[Any]:
    return list(EdnReader(io.StringIO(text)))


def imported(folder: Path, text: str) -> StoredRun:
    source = folder / "history.edn"
    source.write_text(text)
    return open_run(import_edn(source, folder / "run"))


def rows(run: StoredRun, table: str) -> list[dict[str, Any]]:
    return run.read_table(table).to_pylist()


# -- the reader ------------------------------------------------------------------------------------------------------

SAMPLE = r"""; a comment {
#jepsen.history.Op{:index 1, :time 5N :type :ok, :value [[:send 0 [1 "a\"b;{\\"]] #{1 2}] :x #inst "2020"
  :y #object[java.Foo 0x1f "z\u00e9\n\101"] #_ :gone #_ [1 {2 3}] :e nil, :t true :f false ; ]
} #_ {:a 1} ,,,
{:f -1.5e3, "k" (1 2), [1 2] 3 :c \a :n \newline :s foo/bar, :m 2.5M, :r 1/2, :emoji "\ud83d\ude00"}
"""
SAMPLE_FORMS = [
    {
        ":index": 1,
        ":time": 5,
        ":type": ":ok",
        ":value": [[":send", 0, [1, 'a"b;{\\']], [1, 2]],
        ":x": "2020",
        ":y": ["java.Foo", "0x1f", "zé\nA"],
        ":e": None,
        ":t": True,
        ":f": False,
    },
    {
        ":f": -1500.0,
        "k": [1, 2],
        (1, 2): 3,
        ":c": "a",
        ":n": "\n",
        ":s": "foo/bar",
        ":m": 2.5,
        ":r": "1/2",
        ":emoji": "😀",
    },
]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 20, 64, 1 << 18])
def test_forms_are_read_whatever_the_pieces(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(edn_reader, "_CHUNK", chunk)
    assert forms(SAMPLE) == SAMPLE_FORMS
    assert forms(f"[{SAMPLE}]") == SAMPLE_FORMS
    one_line = " ".join(line for line in SAMPLE.splitlines() if ";" not in line.replace(";{", ""))
    assert forms("({:a 1} {:b [2]} 3)") == [{":a": 1}, {":b": [2]}, 3]
    assert len(one_line) > 10


def test_keywords_are_not_strings() -> None:
    (form,) = forms('{:a ":a" b "b"}')
    assert [(type(k).__name__, type(v).__name__) for k, v in form.items()] == [("Keyword", "str"), ("Keyword", "str")]
    assert Keyword(":abc").name == "abc"
    assert forms("1 nil :a") == [1, None, ":a"]
    assert forms("#_1 2 #_ #_ 3 4 5") == [2, 5]
    assert forms("[#_ 1]") == []
    assert forms("") == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("{:a 1}\n{:a}", 2, "key without a value"),
        ("\n[1", 2, r"\[ is never closed"),
        ("{:a {:b 1}", 1, "{ is never closed"),
        ("\n\n}", 3, "} closes nothing"),
        ("{:a\n [1}}", 2, r"\[ is closed by }"),
        ('\n{:a "x', 2, "string has no end"),
        ("{:a 1} ]", 1, "] closes nothing"),
        ("{:a 1}\n#_", 2, "nothing follows #_"),
        ("{:a 1 #_}", 1, "nothing follows #_"),
        ("\n{:a ##NaN}", 2, "expected a number, a string or nil, found ##NaN"),
        ("\n" + "{:a " * 200 + "1" + "}" * 200, 2, "nested at most 100 deep"),
        ("\n" + "9" * 5000, 2, "an integer has 5000 digits"),
    ],
)
@pytest.mark.parametrize("chunk", [3, 1 << 18])
def test_malformed_edn_is_located(
    monkeypatch: pytest.MonkeyPatch, chunk: int, text: str, line: int, words: str
) -> None:
    monkeypatch.setattr(edn_reader, "_CHUNK", chunk)
    with pytest.raises(EdnError, match=words) as caught:
        forms(text)
    assert caught.value.line == line


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.from_regex(r":[a-z][a-z0-9\-?!*/]{0,6}", fullmatch=True).map(Keyword),
)
_FORMS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.integers(), st.text(st.characters(codec="utf-8"), max_size=4)), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(written=st.lists(_FORMS.map(lambda form: {"form": form}), max_size=4), chunk=st.integers(1, 40))
def test_printed_forms_are_read_back(written: list[Any], chunk: int) -> None:
    text = "\n".join(map(to_edn, written))
    before = edn_reader._CHUNK
    edn_reader._CHUNK = chunk  # type: ignore[misc]
    try:
        assert forms(text) == written
    finally:
        edn_reader._CHUNK = before  # type: ignore[misc]


# -- import ----------------------------------------------------------------------------------------------------------

JEPSEN = """
#jepsen.history.Op{:index 0, :time 10, :type :invoke, :process 0, :f :send, :value [[:send 0 1] [:send 3 2]]}
{:index 1, :time 20, :type :ok, :process 0, :f :send, :value [[:send 0 [100 1]] [:send 3 [nil 2]]]}
{:type :invoke, :process 1, :f :poll, :value [[:poll]], :index 2, :time 30, :poll-ms 100}
{:type :ok, :process 1, :f :poll, :value [[:poll {0 [[100 1] [101 4]], 3 [[7 2]]}]], :index 3, :time 40,
 :rebalance-log [{:keys [0 3]}]}
{:index 4 :time 50 :type :invoke :process 2 :f :txn :value [[:send 0 5] [:poll]]}
{:index 5 :time 60 :type :info :process 2 :f :txn :value [[:send 0 5] [:poll]] :error [:timeout "no answer" {:a 1}]}
{:index 6 :time 70 :type :invoke :process 1 :f :assign :value [0 3] :seek-to-beginning? true}
{:index 7 :time 80 :type :ok :process 1 :f :assign :value [0 3] :seek-to-beginning? true}
{:index 8 :time 85 :type :info :process :nemesis :f :start-partition :value :majority}
{:index 9 :time 90 :type :info :process :nemesis :f :start-partition :value {"n1" #{"n2"}}}
{:index 10 :time 95 :type :info :process 1 :f :crash}
{:index 11 :time 96 :type :ok :process 1 :f :debug-topic-partitions :value {0 {:leader 1}}}
{:index 12 :time 97 :type :info :process :nemesis :f :stop-partition}
{:index 13 :time 98 :type :info :process :nemesis :f :stop-partition :value :healed}
{:index 14 :time 99 :type :info :process :nemesis :f :stop-clock}
{:index 15 :time 99 :type :fail :process 3 :f :subscribe :value ["foo-3" :bar ["a-b" 7] -5] :error :rebalance}
"""


def test_a_jepsen_history_is_imported(tmp_path: Path) -> None:
    run = imported(tmp_path, JEPSEN)
    ops = {r["index"]: r for r in rows(run, "ops")}
    assert [(i, o["type"], o["f"], o["process"], o["invoke_index"]) for i, o in ops.items()] == [
        (0, "invoke", "send", "0", None),
        (1, "ok", "send", "0", 0),
        (2, "invoke", "poll", "1", None),
        (3, "ok", "poll", "1", 2),
        (4, "invoke", "txn", "2", None),
        (5, "info", "txn", "2", 4),
        (6, "invoke", "assign", "1", None),
        (7, "ok", "assign", "1", 6),
        (10, "info", "crash", "1", 10),
        (11, "ok", "debug_topic_partitions", "1", 11),
        (15, "fail", "subscribe", "3", 15),
    ]
    assert ops[5]["error"] == "timeout"
    assert ops[5]["error_text"] == '"no answer" {:a 1}'
    assert ops[7]["reset"] == "earliest"
    assert {o["cluster"] for o in ops.values()} == {"A"}
    assert ops[3]["time_ns"] == 40
    told = [
        (r["op_index"], r["position"], r["action"], r["topic"], r["partition"], r["offset"], r["value"])
        for r in rows(run, "op_records")
    ]
    assert told == [
        (0, 0, "send", "jepsen", 0, None, "1"),
        (0, 1, "send", "jepsen", 3, None, "2"),
        (1, 0, "send", "jepsen", 0, 100, "1"),
        (1, 1, "send", "jepsen", 3, None, "2"),
        (3, 0, "poll", "jepsen", 0, 100, "1"),
        (3, 1, "poll", "jepsen", 0, 101, "4"),
        (3, 2, "poll", "jepsen", 3, 7, "2"),
        (3, 3, "rebalance", "jepsen", 0, None, None),
        (3, 4, "rebalance", "jepsen", 3, None, None),
        (4, 0, "send", "jepsen", 0, None, "5"),
        (5, 0, "send", "jepsen", 0, None, "5"),
        (6, 0, "assign", "jepsen", 0, None, None),
        (6, 1, "assign", "jepsen", 3, None, None),
        (7, 0, "assign", "jepsen", 0, None, None),
        (7, 1, "assign", "jepsen", 3, None, None),
        (15, 0, "assign", "foo", 3, None, None),
        (15, 1, "assign", "bar", 0, None, None),
        (15, 2, "assign", "a-b", 7, None, None),
        (15, 3, "assign", "-5", 0, None, None),
    ]
    faults = [(f["name"], f["action"], f["fault_id"]) for f in rows(run, "faults")]
    assert faults == [
        ("start_partition", "inject", 0),
        ("start_partition", "bit", 0),
        ("stop_partition", "heal", 0),
        ("stop_partition", "heal", 0),
        ("stop_clock", "heal", 1),
    ]
    assert run.meta.source == "edn"


def test_the_oldest_partitioner_starts_and_stops(tmp_path: Path) -> None:
    told = [
        ("start", ":a"),
        ("start", ":b"),
        ("stop", "nil"),
        ("stop", ":ok"),
        ("kill", "nil"),
        ("kill", "nil"),
        ("start", "nil"),
    ]
    run = imported(tmp_path, "".join(f"{{:type :info :process :nemesis :f :{f} :value {v}}}" for f, v in told))
    assert [(f["action"], f["fault_id"]) for f in rows(run, "faults")] == [
        *[("inject", 0), ("bit", 0), ("heal", 0), ("heal", 0)],
        *[("inject", 1), ("bit", 1), ("heal", 1)],
    ]


def test_one_vector_is_the_same_as_one_form_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    lines = imported(tmp_path / "a", JEPSEN)
    vector = imported(tmp_path / "b", "[" + " ".join(JEPSEN.split("\n")) + "]")
    for table in ("ops", "op_records", "faults"):
        assert rows(lines, table) == rows(vector, table)


def test_index_and_time_may_be_absent(tmp_path: Path) -> None:
    run = imported(
        tmp_path, "{:type :invoke :process 0 :f :send :value [[:send 0 1]]}\n{:type :ok :process 0 :f :send}"
    )
    assert [(r["index"], r["time_ns"], r["invoke_index"]) for r in rows(run, "ops")] == [(0, 0, None), (1, 0, 0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5", "line 2: expected an operation as a map, found 5"),
        ("{:type :ok", "line 2: not EDN: { is never closed"),
        ("{:process 0 :f :send}", "line 2: expected :type to be a keyword, found nil"),
        ("{:type :okay :process 0 :f :send}", "expected :type to be :invoke, :ok, :fail or :info, found :okay"),
        ("{:type :ok :process 0}", "expected :f to be a keyword"),
        ("{:type :ok :process 0 :f :sned}", "expected :f of a client to be :send, :poll, :txn.*found :sned"),
        ("{:type :ok :process 1.5 :f :send}", "expected :process to be an integer or a keyword, found 1.5"),
        ("{:type :ok :process 0 :f :send :value 5}", "expected a vector of micro-operations, found 5"),
        ("{:type :ok :process 0 :f :send :value [[:push 0 1]]}", r"expected \[:send k v\] or \[:poll …\], found"),
        (
            "{:type :ok :process 0 :f :send :value [[:send 0 [1 2 3]]]}",
            r"expected a pair \[offset value\], found \[1 2 3\]",
        ),
        ("{:type :ok :process 0 :f :poll :value [[:poll [0 1]]]}", "found"),
        ("{:type :ok :process 0 :f :poll :value [[:poll {0 5}]]}", r"vector of \[offset value\] pairs, found 5"),
        ('{:type :ok :process 0 :f :poll :value [[:poll {0 [["1" 2]]}]]}', 'offset to be an integer or nil, found "1"'),
        ("{:type :ok :process 0 :f :poll :index -1}", "expected :index to be greater than 0, found -1"),
        ("{:type :ok :process 0 :f :poll :index :x}", "expected :index to be an integer, found :x"),
        ("{:type :ok :process 0 :f :poll :time :x}", "expected :time to be nanoseconds, found :x"),
        ("{:type :ok :process 0 :f :poll :rebalance-log 5}", "expected :rebalance-log to be a vector of maps, found 5"),
        ("{:type :ok :process 0 :f :poll :rebalance-log [{:keys 5}]}", "expected :keys in :rebalance-log to be a vect"),
        ('{:type :ok :process 0 :f :assign :value [1] :offsets {1 "x"}}', 'offset to be an integer or nil, found "x"'),
        (
            "{:type :ok :process 0 :f :assign :value [1] :offsets [5]}",
            r"expected :offsets to be a map {k offset}, found",
        ),
        ("{:type :ok :process 0 :f :send :value [[:send 0 [##Inf 1]]]}", "line 2: expected a number, .*found ##Inf"),
        (
            "{:type :info :process :n :f :x :value " + "[" * 900 + "]" * 900 + "}",
            "line 2: expected forms nested at most",
        ),
    ],
)
def test_a_malformed_operation_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(HistoryError, match=words) as caught:
        imported(tmp_path, "{:index 0 :type :ok :process 0 :f :poll}\n" + text)
    assert "history.edn, line 2: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "run").glob("**/*"))


@pytest.mark.parametrize(
    "comment",
    [
        "history of our product",
        "5",
        "{",
        "{:keys {0 5}}",
        "{:keys {:a [5 0]}}",
        "{:keys 5}",
        "{:processes {0 1}}",
        "{:about 5}",
        "[" * 900,
    ],
)
def test_foreign_comments_are_ignored(tmp_path: Path, comment: str) -> None:
    run = imported(tmp_path, f";; shatterproof {comment}\n{{:type :ok :process 0 :f :send :value [[:send 0 [1 2]]]}}\n")
    (record,) = rows(run, "op_records")
    assert (record["topic"], record["partition"], record["value"]) == ("jepsen", 0, "2")


def test_files_that_are_no_history(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"nowhere\.edn cannot be read"):
        import_edn(tmp_path / "nowhere.edn", tmp_path / "run")
    with pytest.raises(HistoryError, match="holds no operation"):
        imported(tmp_path, "; nothing\n")
    (tmp_path / "bytes.edn").write_bytes(b'{:type "\xff"}')
    with pytest.raises(HistoryError, match=r"bytes\.edn is not UTF-8: byte 0xff"):
        import_edn(tmp_path / "bytes.edn", tmp_path / "run")


# -- export ----------------------------------------------------------------------------------------------------------


def recorded(folder: Path) -> RunRecorder:
    return RunRecorder(folder / "run")


def lines(path: Path) -> list[str]:
    """The lines that Jepsen's checker reads."""
    return [line for line in path.read_text().splitlines() if ":process :beside" not in line]


def beside(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if ":process :beside" in line]


def test_operations_have_the_shape_that_jepsen_reads(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        sent = [OpRecord("send", "t", 0, None, "1"), OpRecord("send", "u", None, None, "2")]
        index = recorder.invoke("p1", F.SEND, cluster="A", records=sent)
        recorder.complete(
            index, OpType.OK, records=[sent[0]._replace(offset=5), sent[1]._replace(partition=1, offset=6)]
        )
        index = recorder.invoke("c", F.POLL, cluster="A", isolation="read_committed")
        read = [OpRecord("poll", "t", 0, 5, "1"), OpRecord("poll", "u", 1, 6, "2"), OpRecord("poll", "t", 0, 6, "3")]
        recorder.complete(index, OpType.OK, records=read)
        index = recorder.invoke("c", F.POLL, cluster="A")
        recorder.complete(index, OpType.OK)
        recorder.invoke("other", F.POLL, cluster="B")
        index = recorder.invoke("p1", F.SEND, cluster="A", records=sent[:1])
        recorder.complete(index, OpType.INFO, records=sent[:1], error="timed_out")
        recorder.invoke("c", F.COMMIT_OFFSET, cluster="A")
    exported = export_edn(tmp_path / "run", tmp_path / "out.edn")
    head, *told = [line.split(", :phase")[0] for line in lines(tmp_path / "out.edn")]
    # u's partition is null in the invoke alone
    assert head.startswith(';; shatterproof {:keys {0 ["t" 0], 1 ["u" nil], 2 ["u" 1]}, :processes {0 "c", 1 "other"')
    values = [line.split(", :process ")[1] for line in told]
    assert values == [
        "2, :f :send, :value [[:send 0 1] [:send 2 2]]",
        "2, :f :send, :value [[:send 0 [5 1]] [:send 2 [6 2]]]",
        "0, :f :poll, :value [[:poll]]",
        "0, :f :poll, :value [[:poll {0 [[5 1] [6 3]], 2 [[6 2]]}]]",
        "0, :f :poll, :value [[:poll]]",
        "0, :f :poll, :value [[:poll {}]]",
        "2, :f :send, :value [[:send 0 1]]",
        "2, :f :send, :value [[:send 0 1]]",
    ]
    assert ':error "timed_out"' in lines(tmp_path / "out.edn")[-1]
    assert (exported.operations, exported.left_out, exported.tables_left_out) == (8, 1, ("run.json",))
    assert [line.split(":f ")[1].split(", :invoke")[0].rstrip("}") for line in beside(tmp_path / "out.edn")] == [
        ':poll, :was :invoke, :by "other", :cluster "B", :phase "provision"',
        ':commit-offset, :was :invoke, :by "c", :cluster "A", :phase "provision"',
    ]


def test_transactions_in_steps_become_one_operation(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:

        def step(f: str, txn: str, type_: OpType, *values: str, process: str = "p") -> None:
            records = [OpRecord("send", "t", 0, None, v) for v in values]
            index = recorder.invoke(process, f, cluster="A", txn=txn, records=records)
            recorder.complete(index, type_, records=[r._replace(offset=3) for r in records])

        step("txn_begin", "T1", OpType.OK)
        step("send", "T1", OpType.OK, "a")
        step("send", "T1", OpType.FAIL, "never")
        step("txn_commit", "T1", OpType.INFO)
        step("txn_commit", "T1", OpType.OK)  # tried again
        step("txn_begin", "T2", OpType.OK)
        step("send", "T2", OpType.OK, "b")
        step("txn_abort", "T2", OpType.OK)
        step("send", "T3", OpType.OK, "c")  # no begin
        step("txn_commit", "T3", OpType.INFO)
        step("poll", None, OpType.OK, process="q")  # type: ignore[arg-type]
        step("txn_begin", "T4", OpType.OK)
    export_edn(tmp_path / "run", tmp_path / "out.edn")
    told = [line.split(", :phase")[0] for line in lines(tmp_path / "out.edn")[1:]]
    assert [(t.split(",")[0], t.split(":type ")[1].split(",")[0], t.split(":value ")[1]) for t in told] == [
        ("{:index 0", ":invoke", "[]"),
        ("{:index 10", ":ok", '[[:send 0 [3 "a"]]]'),
        ("{:index 12", ":invoke", "[]"),
        ("{:index 18", ":fail", '[[:send 0 [3 "b"]]]'),
        ("{:index 20", ":invoke", "[]"),
        ("{:index 25", ":invoke", "[[:poll]]"),
        ("{:index 26", ":ok", "[[:poll {}]]"),
        ("{:index 27", ":info", '[[:send 0 [3 "c"]]]'),
        ("{:index 28", ":invoke", "[]"),
    ]
    again = open_run(import_edn(tmp_path / "out.edn", tmp_path / "again"))
    steps = [(r["type"], r["f"], r["txn"]) for r in rows(again, "ops")]
    assert steps == [(r["type"], r["f"], r["txn"]) for r in rows(open_run(tmp_path / "run"), "ops")]


def test_reassignments_are_exported_so_that_jepsen_expects_no_continuity(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        for offsets in ({0: None, 1: 4}, {1: 9}, {2: None}):
            records = [OpRecord("assign", "jepsen", p, o) for p, o in offsets.items()]
            index = recorder.invoke("0", F.ASSIGN, cluster="A", records=records)
            recorder.complete(index, OpType.OK, records=records)
    export_edn(tmp_path / "run", tmp_path / "out.edn")
    oks = [line for line in lines(tmp_path / "out.edn") if ":type :ok" in line]
    assert [line.split(":value ")[1].split(", :phase")[0] for line in oks] == ["[0 1]", "[0]", "[0 1 2]"]
    assert ":keys [1], :offsets {1 9}" in oks[1]
    again = open_run(import_edn(tmp_path / "out.edn", tmp_path / "again"))
    assert comparable(again) == comparable(open_run(tmp_path / "run"))


def test_every_completion_has_an_invocation_and_no_process_does_two_things_at_once(tmp_path: Path) -> None:
    """As Jepsen pairs them: events that an imported history lacks are added."""
    source = tmp_path / "history.edn"
    source.write_text(
        "{:index 0 :type :invoke :process 0 :f :send :value [[:send 0 1]]}\n"  # never completed
        "{:index 1 :type :invoke :process 0 :f :send :value [[:send 0 2]]}\n"
        "{:index 2 :type :ok :process 0 :f :send :value [[:send 0 [5 2]]]}\n"
        "{:index 3 :type :ok :process 0 :f :send :value [[:send 0 [5 2]]]}\n"  # completed twice
        "{:index 4 :type :ok :process 1 :f :txn :value [[:send 0 [6 3]] [:poll {0 [[5 2]]}]]}\n"  # never invoked
        "{:index 5 :type :invoke :process 2 :f :poll :value [[:poll]]}\n"
        "{:index 6 :type :ok :process 2 :f :assign :value [0]}\n"  # another operation completes
    )
    import_edn(source, tmp_path / "run")
    export_edn(tmp_path / "run", tmp_path / "out.edn")
    told = [line.split(", ") for line in lines(tmp_path / "out.edn")]
    assert [(t[0], t[2], t[3], t[5].removesuffix("}")) for t in told] == [
        ("{:index 0", ":type :invoke", ":process 0", ":value [[:send 0 1]]"),
        ("{:index 1", ":type :info", ":process 0", ":value [[:send 0 1]]"),
        ("{:index 2", ":type :invoke", ":process 0", ":value [[:send 0 2]]"),
        ("{:index 3", ":type :ok", ":process 0", ":value [[:send 0 [5 2]]]"),
        ("{:index 4", ":type :invoke", ":process 0", ":value [[:send 0 2]]"),
        ("{:index 5", ":type :ok", ":process 0", ":value [[:send 0 [5 2]]]"),
        ("{:index 6", ":type :invoke", ":process 1", ":value [[:send 0 3]]"),
        ("{:index 7", ":type :ok", ":process 1", ":value [[:send 0 [6 3]] [:poll {0 [[5 2]]}]]"),
        ("{:index 8", ":type :invoke", ":process 2", ":value [[:poll]]"),
        ("{:index 9", ":type :info", ":process 2", ":value [[:poll {}]]"),
        ("{:index 10", ":type :invoke", ":process 2", ":value [0]"),
        ("{:index 11", ":type :ok", ":process 2", ":value [0]"),
    ]


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        recorder.invoke("p", F.POLL, cluster="A")
    with pytest.raises(HistoryError, match="holds no operation on cluster C"):
        export_edn(tmp_path / "run", tmp_path / "out.edn", cluster="C")
    with pytest.raises(StorageError, match="cannot write to"):
        export_edn(tmp_path / "run", tmp_path / "nowhere" / "out.edn")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


# -- export, import: the same history --------------------------------------------------------------------------------


def test_a_run_whose_records_are_missing_is_not_exported(tmp_path: Path) -> None:
    run = imported(tmp_path, "{:type :ok :process 0 :f :send :value [[:send 0 [1 2]]]}").path
    shutil.rmtree(run / "op_records")
    with pytest.raises(HistoryError, match=f"table op_records is missing in {run}"):
        export_edn(run, tmp_path / "out.edn")
    assert not (tmp_path / "out.edn").exists()


def test_a_damaged_page_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    run = imported(tmp_path, "{:type :ok :process 0 :f :send :value [[:send 0 [1 2]]]}").path
    (victim,) = (run / "op_records").glob("*.parquet")
    data = bytearray(victim.read_bytes())
    data[4:60] = b"\x55" * 56
    victim.write_bytes(data)
    with pytest.raises(HistoryError, match=f"^{victim} cannot be read .* move it away"):
        export_edn(run, tmp_path / "out.edn")


def test_a_record_without_a_topic_has_no_key(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", None, 0, None, "v")])  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match=r"table op_records: column topic is null .*name its topic"):
        export_edn(tmp_path / "run", tmp_path / "out.edn")


_SAME_OPS = [
    "index",
    "time_ns",
    "process",
    "type",
    "f",
    "phase",
    "client",
    "txn",
    "group",
    "isolation",
    "reset",
    "error",
]
_SAME_RECORDS = ["op_index", "position", "action", "topic", "partition", "offset", "value"]


def comparable(run: StoredRun) -> tuple[list[Any], list[Any]]:
    ops = run.read_table("ops", [*_SAME_OPS, "error_text", "cluster"]).sort_by("index").to_pylist()
    order = [("op_index", "ascending"), ("position", "ascending")]
    return ops, run.read_table("op_records", _SAME_RECORDS).sort_by(order).to_pylist()


_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
_MAYBE = st.one_of(st.none(), _TEXT)
_PLACE = st.tuples(st.sampled_from(["t", "jepsen", "u-1", 'a "b"']), st.integers(0, 3))


@st.composite
def histories(draw: st.DrawFn) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of ops and op_records: invocations and completions in turn; records of one operation are sends, then polls
    grouped by partition."""
    integers = draw(st.booleans())
    values = st.integers(-5, 10**12).map(str) if integers else _MAYBE
    ops: list[tuple[Any, ...]] = []
    records: list[tuple[Any, ...]] = []
    index = 0
    under_way: dict[str, str] = {}
    for _ in range(draw(st.integers(1, 10))):
        index += draw(st.integers(1, 3))
        process = draw(st.sampled_from(["0", "17", "p1", "x y", "007"]))
        f, type_ = under_way.pop(process, ""), draw(st.sampled_from(["ok", "fail", "info"]))
        if not f:
            f = under_way[process] = draw(st.sampled_from(["send", "poll", "txn", "assign", "subscribe", "crash"]))
            type_ = "invoke"
        mine: list[tuple[Any, ...]] = []
        if f in ("send", "txn"):
            for topic, partition in draw(st.lists(_PLACE, max_size=3)):
                offset = None if type_ == "invoke" else draw(st.one_of(st.none(), st.integers(0, 1 << 60)))
                mine.append(("send", topic, partition, offset, draw(values)))
        if f in ("poll", "txn") and type_ != "invoke":
            for topic, partition in draw(st.lists(_PLACE, max_size=3, unique=True)):
                pair = st.tuples(st.one_of(st.none(), st.integers(0, 99)), values)
                mine += [("poll", topic, partition, *p) for p in draw(st.lists(pair, min_size=1, max_size=3))]
        if f in ("assign", "subscribe"):
            for topic, partition in draw(st.lists(_PLACE, max_size=3, unique=True)):
                offset = draw(st.one_of(st.none(), st.integers(0, 99))) if f == "assign" else None
                mine.append(("assign", topic, partition, offset, None))
        extra = [draw(_MAYBE) for _ in range(6)]  # client, txn, group, isolation, reset, error
        ops.append((index, index * 7, process, type_, f, None, draw(_MAYBE), "A", *extra, draw(_MAYBE), None, None))
        for position, (action, topic, partition, offset, value) in enumerate(mine):
            records.append((index, position, action, topic, partition, offset, value, *[None] * 6))
    return {"ops": ops, "op_records": records}


@settings(max_examples=60, deadline=None)
@given(history=histories(), parts=st.integers(1, 3), shuffled=st.booleans())
def test_an_exported_history_comes_back(
    tmp_path_factory: pytest.TempPathFactory, history: dict[str, list[tuple[Any, ...]]], parts: int, shuffled: bool
) -> None:
    assume(history["op_records"] or not any(op[4] in ("send", "txn") for op in history["ops"]))
    folder = tmp_path_factory.mktemp("h")
    RunFile.create(folder / "run", RunMeta(run_id="r"))
    for table, stored in history.items():
        writer = PartWriter(folder / "run", table)
        size = -(-len(stored) // parts) or 1
        pieces = [stored[i : i + size] for i in range(0, len(stored), size)]
        for piece in reversed(pieces) if shuffled else pieces:
            writer.write_rows(piece)
    run = open_run(folder / "run")
    export_edn(folder / "run", folder / "out.edn")
    again = open_run(import_edn(folder / "out.edn", folder / "again"))
    assert comparable(again) == comparable(run)


def test_the_schema_has_what_is_compared() -> None:
    schema: pa.Schema = TABLES["ops"].schema
    assert set(_SAME_OPS) <= set(schema.names)


PER_KEY = """{:type :invoke, :process 0, :f :txn, :value [[:send 0 1] [:send 1 1] [:poll]]}
{:type :ok, :process 0, :f :txn, :value [[:send 0 [0 1]] [:send 1 [0 1]] [:poll {1 [[7 nil]]}]]}
"""


def test_values_that_are_unique_per_key_are_distinguished(tmp_path: Path) -> None:
    """Jepsen's generators count from 1 on every key."""
    file = tmp_path / "keys.edn"
    file.write_text(PER_KEY, encoding="utf-8")
    values = pq.read_table(import_edn(file, tmp_path / "run") / "op_records")["value"].to_pylist()
    assert values == ["jepsen-0:1", "jepsen-1:1", "jepsen-0:1", "jepsen-1:1", None]
    file.write_text(PER_KEY.replace("[:send 1 1]", "[:send 1 2]").replace("[:send 1 [0 1]]", "[:send 1 [0 2]]"))
    values = pq.read_table(import_edn(file, tmp_path / "other") / "op_records")["value"].to_pylist()
    assert values == ["1", "2", "1", "2", None]


def test_the_line_of_a_bad_operation_after_good_ones(tmp_path: Path) -> None:
    file = tmp_path / "bad.edn"
    file.write_text(PER_KEY + "\n{:type :maybe, :process 0, :f :poll}\n" + PER_KEY, encoding="utf-8")
    with pytest.raises(HistoryError, match=r"bad\.edn, line 4: expected :type"):
        import_edn(file, tmp_path / "run")
