"""A Spark session leaves the process's SIGINT handler as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, sys
from checkers.spark.session import spark_session

heard = []
signal.signal(signal.SIGINT, {handler})
session = spark_session(master="local[1]", memory="512m")
assert session.range(3).count() == 3
os.kill(os.getpid(), signal.SIGINT)
assert session.range(4).count() == 4, "the session does not live on"
session.stop()
print("heard", len(heard))
"""


@pytest.mark.parametrize(
    ("handler", "heard"), [("lambda *_: heard.append(1)", 1), ("signal.SIG_IGN", 0)], ids=["handled", "ignored"]
)
def test_a_session_keeps_the_sigint_handler(handler: str, heard: int) -> None:
    # A separate process: the SIGINT handler here depends on how pytest was started (a shell's background job
    # ignores it), and the signal would end the other tests.
    program = [sys.executable, "-c", _PROGRAM.format(handler=handler)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout) == (0, f"heard {heard}\n"), run.stderr
