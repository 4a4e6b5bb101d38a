"""Output errors never change a command's exit code: closed pipes, full disks, narrow encodings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

SHATTER = [sys.executable, "-c", "from harness.cli.app import main; main()"]
LIST = [*SHATTER, "list", "checkers"]


def test_a_closed_pipe_changes_no_exit_code() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(LIST, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_reported_and_changes_no_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(LIST, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.startswith("standard output cannot be written")
    assert len(done.stderr.splitlines()) == 1


def test_a_standard_output_that_was_closed_before_changes_no_exit_code() -> None:
    words = " ".join(f"'{word}'" for word in LIST)
    done = subprocess.run(["sh", "-c", f"{words} >&-"], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_both_streams_closed_leave_the_code_of_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*SHATTER, "run", "--seed", "x"], stdout=full, stderr=full, check=False)
    assert done.returncode == 254


def test_a_narrow_encoding_shows_escapes() -> None:
    narrow = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    command = [*SHATTER, "check", "no-such-file-\u2713.jsonl"]
    done = subprocess.run(command, capture_output=True, env=narrow, check=False)
    assert done.returncode == 255
    assert b"\\u2713" in done.stderr
    assert b"Traceback" not in done.stderr
