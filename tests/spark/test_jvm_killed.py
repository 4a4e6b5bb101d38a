"""A killed JVM, busy or idle, fails at most the check that it was running: the next check gets a new one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness.history.jsonl.importer import import_jsonl

_PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from harness.cli.judging import Spark
from harness.cli.judging import check_run
from harness.cli.interrupted_checks import children
from harness.core.errors import ShatterError

def jvms():
    return [pid for pid in children(os.getpid()) if "java" in Path(f"/proc/{pid}/cmdline").read_text()]

def kill_at_work(run):
    while not list((run / "results").glob("_anomalies")):
        time.sleep(0.01)
    for pid in jvms():
        os.kill(pid, signal.SIGKILL)

first, second = (Path(text) for text in sys.argv[1:])
spark = Spark("local[1]")
threading.Thread(target=kill_at_work, args=(first,), daemon=True).start()
try:
    print(check_run(first, contract=None, spark=spark()).verdict)
except ShatterError as error:
    print(error)
print((first / "results.json").exists())
print(check_run(second, contract=None, spark=spark()).verdict)
(jvm,) = jvms()
os.kill(jvm, signal.SIGKILL)
time.sleep(1)
print(check_run(first, contract=None, spark=spark()).verdict)
spark.close()
"""


def test_a_killed_jvm_fails_one_check_only(tmp_path: Path) -> None:
    place = {"f": "send", "cluster": "A", "topic": "t", "partition": 0, "value": "v", "offset": 0}
    events = [
        {"index": 0, "time": 0, "process": "p", "type": "invoke", **place},
        {"index": 1, "time": 1, "process": "p", "type": "ok", **place},
        {"index": 2, "time": 2, "process": "c", "type": "invoke", "f": "poll", "cluster": "A"},
        {"index": 3, "time": 3, "process": "c", "type": "ok", **place, "f": "poll", "value": [[0, "v"]]},
    ]
    history = tmp_path / "h.jsonl"
    history.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    runs = [str(import_jsonl(history, tmp_path / name)) for name in ("first", "second")]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *runs], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    told, stored, *rest = done.stdout.split("\n")[:-1]
    assert told.startswith(f"Spark's JVM ended during the check of {runs[0]}")
    assert stored == "False", "no verdict may be stored"
    assert rest == ["valid", "valid"], done.stderr
