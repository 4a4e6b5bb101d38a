"""The recorder: order, completeness, and what survives a kill -9, a full disk and a caller's mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.errors import HistoryError, StorageError
from harness.history.ops import Action, F, OpRecord, OpType, Phase
from harness.history.recorder import RunRecorder
from harness.history.recording import Recorder
from harness.history.runfile import RunMeta, read_meta

pytestmark = pytest.mark.unit


class TickClock:
    """Advances by one nanosecond per reading."""

    def __init__(self) -> None:
        self.now = 0

    def now_ns(self) -> int:
        self.now += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("the recorder must not sleep on the run's clock")


def read(run: Path, table: str) -> list[dict[str, object]]:
    files = sorted((run / table).glob("part-*.parquet"))
    tables = [pq.read_table(f) for f in files]
    return pa.concat_tables(tables).to_pylist() if tables else []


def wait_for(condition, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s"
        time.sleep(0.02)


def test_an_operation_is_stored_with_its_records(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunRecorder(run, clock=TickClock(), meta=RunMeta(run_id="r1")) as recorder:
        typed: Recorder = recorder
        typed.set_phase(Phase.LOAD)
        sent = [OpRecord(Action.SEND, "t", 3, None, "v1", key="k"), OpRecord(Action.SEND, "t", None, None, "v2")]
        index = typed.invoke("p1", F.SEND, cluster="A", client="p1.0", txn="x", group="g", records=sent)
        acked = [sent[0]._replace(offset=7, producer_id=1, producer_epoch=2, sequence=3), sent[1]]
        done = typed.complete(index, OpType.INFO, records=acked, error="timed_out", error_text="no answer")
    assert (index, done) == (0, 1)
    invoke, complete = sorted(read(run, "ops"), key=lambda r: r["index"])  # type: ignore[arg-type, return-value]
    assert invoke["type"] == "invoke"
    assert invoke["invoke_index"] is None
    assert complete == {
        **invoke,
        "index": 1,
        "time_ns": complete["time_ns"],
        "type": "info",
        "invoke_index": 0,
        "error": "timed_out",
        "error_text": "no answer",
    }
    assert (invoke["f"], invoke["process"], invoke["phase"], invoke["cluster"]) == ("send", "p1", "load", "A")
    assert (invoke["client"], invoke["txn"], invoke["group"]) == ("p1.0", "x", "g")
    records = sorted(read(run, "op_records"), key=lambda r: (r["op_index"], r["position"]))
    assert [(r["op_index"], r["position"], r["value"], r["offset"]) for r in records] == [
        (0, 0, "v1", None),
        (0, 1, "v2", None),
        (1, 0, "v1", 7),
        (1, 1, "v2", None),
    ]
    assert records[2]["sequence"] == 3
    assert records[3]["partition"] is None
    assert read_meta(run).run_id == "r1"


def test_phases_are_kept_in_run_json(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "r", clock=TickClock()) as recorder:
        assert recorder.phase is Phase.PROVISION
        recorder.set_phase(Phase.LOAD)
        live = read_meta(tmp_path / "r").phases
        recorder.set_phase(Phase.HEAL)
    phases = read_meta(tmp_path / "r").phases
    assert [p.name for p in live] == ["provision", "load"]
    assert live[1].end_ns is None
    assert [p.name for p in phases] == ["provision", "load", "heal"]
    assert all(p.end_ns is not None for p in phases)
    assert phases[0].end_ns == phases[1].start_ns


def test_index_grows_with_time_over_many_threads(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def client(name: str) -> None:
        for i in range(400):
            index = recorder.invoke(name, F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, f"{name}-{i}")])
            recorder.complete(index, OpType.OK, records=[OpRecord("send", "t", 0, index, f"{name}-{i}")])

    with RunRecorder(run, flush_interval_s=0.01) as recorder:
        threads = [threading.Thread(target=client, args=(f"p{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ops = sorted(read(run, "ops"), key=lambda r: r["index"])  # type: ignore[arg-type, return-value]
    assert [r["index"] for r in ops] == list(range(6400))
    times = [r["time_ns"] for r in ops]
    assert times == sorted(times)  # type: ignore[type-var]
    by_index = {r["index"]: r for r in ops}
    records = read(run, "op_records")
    assert len(records) == 6400
    for record in records:
        assert str(record["value"]).startswith(f"{by_index[record['op_index']]['process']}-")
    for op in ops:
        if op["type"] == "ok":
            assert by_index[op["invoke_index"]]["process"] == op["process"]


def test_rows_of_other_tables_and_faults(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunRecorder(run, clock=TickClock()) as recorder:
        recorder.fault(fault_id=1, name="broker-kill", action="inject", target="A-broker-1", ok=True, params={"n": 1})
        recorder.row("log_ends", cluster="A", broker=1, topic="t", partition=0, log_end=5, isr=[1, 2])
        recorder.row("log_ends", time_ns=99, cluster="A", topic="t", partition=1)
        recorder.row("final_reads", cluster="A", topic="t", partition=0, complete=False)
    (fault,) = read(run, "faults")
    assert json.loads(str(fault["params"])) == {"n": 1}
    assert fault["time_ns"]
    ends = read(run, "log_ends")
    assert ends[0]["isr"] == [1, 2]
    assert ends[0]["time_ns"] not in (None, 99)
    assert ends[1]["time_ns"] == 99
    assert read(run, "final_reads")[0]["complete"] is False
    assert not (run / "acls").exists()


@pytest.mark.parametrize(
    ("table", "columns", "words"),
    [
        ("nope", {}, "no table is named 'nope'"),
        ("acls", {"colour": "red"}, "no column 'colour'"),
        ("faults", {"name": "x", "action": "heal"}, "fault_id must have a value"),
        ("log_ends", {"partition": "0"}, "partition takes int32, not '0'"),
        ("log_ends", {"partition": 1 << 31}, "partition takes int32"),
        ("log_ends", {"isr": ["a"]}, "isr takes list"),
        ("final_reads", {"complete": 1}, "complete takes bool"),
        ("acls", {"binding": 5}, "binding takes string"),
        ("ops", {"index": 1}, "recorded by invoke and complete"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_at_once(
    tmp_path: Path, table: str, columns: dict[str, object], words: str
) -> None:
    with RunRecorder(tmp_path / "run") as recorder:
        with pytest.raises(HistoryError, match=words):
            recorder.row(table, **columns)
        recorder.row("acls", cluster="A", event="look")  # the recorder is still usable
    assert len(read(tmp_path / "run", "acls")) == 1


def test_completing_twice_or_what_never_began_is_an_error(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run") as recorder:
        index = recorder.invoke("p", F.POLL, cluster="A")
        recorder.complete(index, OpType.OK)
        for wrong in (index, 77):
            with pytest.raises(HistoryError, match=f"operation {wrong} is not under way"):
                recorder.complete(wrong, OpType.OK)
    assert len(read(tmp_path / "run", "ops")) == 2


def test_a_record_that_does_not_fit_costs_only_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recorder = RunRecorder(run)
    recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, "good")])
    recorder.invoke("q", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, 5)])  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match="column value takes string, not 5"):
        recorder.flush()
    with pytest.raises(HistoryError, match="column value"):
        recorder.invoke("p", F.SEND, cluster="A")
    with pytest.raises(HistoryError, match="column value"):
        recorder.close()
    assert [r["value"] for r in read(run, "op_records")] == ["good"]
    assert len(read(run, "ops")) == 2


def test_something_that_is_no_record_costs_only_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recorder = RunRecorder(run)
    recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, "good")])
    recorder.invoke("q", F.SEND, cluster="A", records=[("send", "t")])  # type: ignore[list-item]
    with pytest.raises(HistoryError, match="sequence of OpRecord"):
        recorder.close()
    assert [r["value"] for r in read(run, "op_records")] == ["good"]
    assert len(read(run, "ops")) == 2


def test_nothing_can_be_recorded_after_close(tmp_path: Path) -> None:
    recorder = RunRecorder(tmp_path / "run")
    recorder.close()
    recorder.close()
    with pytest.raises(StorageError, match="is closed"):
        recorder.invoke("p", F.POLL, cluster="A")
    with pytest.raises(StorageError, match="is closed"):
        recorder.row("acls", event="look")


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    RunRecorder(tmp_path / "run").close()
    with pytest.raises(HistoryError, match="already holds a run"):
        RunRecorder(tmp_path / "run")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/run.*--out"):
        RunRecorder(tmp_path / "file" / "run")


def test_closing_does_not_hide_a_pending_error(tmp_path: Path) -> None:
    def crash() -> None:
        with RunRecorder(tmp_path / "run") as recorder:
            bad = OpRecord("send", "t", 0, None, 5)  # type: ignore[arg-type]
            recorder.invoke("p", F.SEND, cluster="A", records=[bad])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()


def test_rows_reach_the_disk_by_themselves_and_an_idle_recorder_writes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunRecorder(run, flush_interval_s=0.05) as recorder:
        recorder.invoke("p", F.POLL, cluster="A")
        recorder.row("acls", event="look")
        wait_for(lambda: len(read(run, "ops")) == 1 and len(read(run, "acls")) == 1)
        time.sleep(0.3)
        assert len(list(run.glob("*/part-*"))) == 2


def test_a_calm_table_makes_few_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunRecorder(run, flush_interval_s=0.05) as recorder:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            recorder.row("mirror_states", mirror="m", state="MIRRORING")
            time.sleep(0.01)
    assert 1 <= len(list((run / "mirror_states").glob("part-*"))) <= 3


CHILD = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from harness.history.ops import F, OpRecord, OpType
    from harness.history.recorder import RunRecorder
    recorder = RunRecorder(Path(sys.argv[1]))
    n = 0
    while True:
        for _ in range(50):
            index = recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, f"v{n}")])
            last = recorder.complete(index, OpType.OK, records=[OpRecord("send", "t", 0, n, f"v{n}")])
            n += 1
        sys.stdout.write(f"{last} {time.monotonic()}\\n")
        sys.stdout.flush()
        time.sleep(0.01)
    """
)


def test_kill_9_loses_about_a_second_and_leaves_only_complete_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(run)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines: list[str] = []
    started: float | None = None
    try:
        for line in child.stdout:
            lines.append(line)
            started = started or time.monotonic()
            if time.monotonic() - started > 4:
                break
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=10)
        child.stdout.close()
    printed = [(int(a), float(b)) for a, b in (line.split() for line in lines)]
    ops = read(run, "ops")  # raises if any file is torn
    stored = {int(str(r["index"])) for r in ops}
    top = max(stored)
    assert stored == set(range(top + 1))
    last_seen_at = printed[-1][1]
    lost = [at for index, at in printed if index > top]
    assert not lost or last_seen_at - min(lost) < 1.5
    records = {r["op_index"] for r in read(run, "op_records")}
    assert stored <= records
    assert read_meta(run).status == "running"
    assert not any(p.name.startswith(".") for p in run.glob("*/*.parquet"))


FULL = textwrap.dedent(
    """
    import resource, signal, sys
    from pathlib import Path
    from harness.core.errors import StorageError
    from harness.history.ops import F, OpRecord, OpType
    from harness.history.recorder import RunRecorder
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    run = Path(sys.argv[1])
    recorder = RunRecorder(run, flush_interval_s=60)  # the test decides when it writes
    recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, "kept")])
    recorder.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    for n in range(20000):
        recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, f"value-{n}")])
    said = []
    for call in (
        recorder.flush,
        lambda: recorder.invoke("p", F.SEND, cluster="A"),
        lambda: recorder.complete(0, OpType.OK),
        lambda: recorder.row("acls", event="look"),
        lambda: recorder.fault(fault_id=1, name="n", action="heal"),
    ):
        try:
            call()
            said.append("nothing")
        except StorageError as error:
            said.append(str(error))
    assert len(set(said)) == 1, said
    if sys.argv[2] == "mend":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        recorder.close()
    else:
        try:
            recorder.close()
        except StorageError as error:
            assert str(error) == said[0], error
        else:
            raise SystemExit("close said nothing")
    print(said[0])
    """
)


@pytest.mark.parametrize("then", ["mend", "stay"])
def test_a_full_disk_is_reported_by_every_call_and_loses_nothing_stored(tmp_path: Path, then: str) -> None:
    run = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", FULL, str(run), then], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert str(run) in done.stdout
    assert "free space" in done.stdout
    values = [r["value"] for r in read(run, "op_records")]
    assert values == (["kept"] + [f"value-{n}" for n in range(20000)] if then == "mend" else ["kept"])
    assert not list(run.glob("*/.part-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
def test_a_really_full_file_system(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode()}")
    try:
        recorder = RunRecorder(disk / "run")
        recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, "kept")])
        recorder.flush()

        def fill() -> None:
            for n in range(200_000):
                recorder.invoke("p", F.SEND, cluster="A", records=[OpRecord("send", "t", 0, None, f"{n:0200d}")])
                if n % 5000 == 4999:
                    recorder.flush()

        with pytest.raises(StorageError, match=r"No space left on device; free space"):
            fill()
        with pytest.raises(StorageError, match="No space left"):
            recorder.close()
        assert read(disk / "run", "op_records")[0]["value"] == "kept"
        assert read_meta(disk / "run").status == "running"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_place_that_can_neither_be_written_nor_cleaned_is_one_sentence(tmp_path: Path) -> None:
    """A file replaces the run's folder: not even the temporary file can be removed, as on a read-only disk."""
    run = tmp_path / "run"
    recorder = RunRecorder(run, meta=RunMeta(run_id="r"))
    recorder.close()
    shutil.rmtree(run)
    run.write_text("")
    with pytest.raises(StorageError, match="cannot write to"):
        recorder.run_file.add_note("x")
