"""A check that is interrupted or killed prints one line, exits with the documented code and leaves nothing behind
(after a kill: once `clean` has run)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import weird

from harness.cli.interrupted_checks import children
from harness.core.remains import remains, remove
from harness.history.jsonl.importer import import_jsonl

UNKNOWN = 2


def started(path: Path, temporary: Path) -> subprocess.Popen[str]:
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli.app", "check", str(path)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hearing,
    )


def _hearing() -> None:
    """Reset SIGINT: a shell's background jobs, and their children, ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def until_judging(process: subprocess.Popen[str], temporary: Path) -> list[int]:
    """Wait until Spark judges; the processes that the check started."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if list(temporary.glob("shatter-spark-*/spark-*")):
            return children(process.pid)
        time.sleep(0.05)
    raise AssertionError(f"it did not come to judging: {process.communicate(timeout=60)}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_check_at_once_and_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    history = tmp_path / "h.jsonl"
    history.write_text("".join(json.dumps(event) + "\n" for event in weird.history()), encoding="utf-8")
    process = started(history, tmp_path / "temporary")
    below = until_judging(process, tmp_path / "temporary")
    assert below
    time.sleep({signal.SIGINT: 0.0, signal.SIGTERM: 2.0, signal.SIGHUP: 4.0}[number])  # Spark starts; it judges
    began = time.monotonic()
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert process.returncode == UNKNOWN, said
    (line,) = said.splitlines()
    assert line == f"{number.name}: the check of {history} was cut short, nothing of it is kept"
    assert "Traceback" not in out
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not [pid for pid in below if Path(f"/proc/{pid}/exe").exists()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.jsonl", "temporary"]


def test_what_a_killed_check_leaves_is_found_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = tmp_path / "h.jsonl"
    history.write_text("".join(json.dumps(event) + "\n" for event in weird.history()), encoding="utf-8")
    run = import_jsonl(history, tmp_path / "runs" / "r")
    process = started(run, tmp_path / "temporary")
    until_judging(process, tmp_path / "temporary")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert remains(tmp_path / "runs") == [], "its owner lives"
    process.kill()
    process.communicate(timeout=60)
    found = remains(tmp_path / "runs")
    assert [one.kind for one in found][:1] == ["temporary folder"]
    assert remove(found) == found
    time.sleep(1)
    assert [path for path in (tmp_path / "temporary").iterdir() if path.name.startswith("shatter-")] == []
