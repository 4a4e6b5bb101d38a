"""Ctrl-C, SIGTERM, SIGHUP: raised once where work may be interrupted, counted elsewhere; and how a command ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.signals import Interrupts

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def hang_up_ends_as_usual() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, and stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def _send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # a point at which Python runs the handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_raises_where_work_may_be_cut(number: int) -> None:
    said: list[str] = []
    with Interrupts(say=said.append).installed() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.exposed("healing"):
            _send(number)
        assert not interrupts.hurried
    assert said == [f"{signal.Signals(number).name}: healing"]


def test_elsewhere_it_is_counted_and_the_next_work_does_not_begin() -> None:
    said: list[str] = []
    with Interrupts(say=said.append).installed() as interrupts:
        _send(signal.SIGINT)
        assert interrupts.count == 1
        with pytest.raises(KeyboardInterrupt), interrupts.exposed("healing"):
            pytest.fail("it began")
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_if_any()
        _send(signal.SIGTERM)
        assert interrupts.hurried
    assert said == [
        "SIGINT: still cleaning up, then the command ends",
        "SIGTERM: still cleaning up; evidence that is not copied yet is left out",
    ]


def test_a_second_signal_cuts_nothing_that_the_first_began() -> None:
    done = []

    def interrupted(interrupts: Interrupts) -> None:
        with interrupts.exposed("healing"):
            try:
                _send(signal.SIGINT)
            finally:
                _send(signal.SIGINT)
                done.append(True)

    with Interrupts(say=lambda _: None).installed() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupted(interrupts)
        assert done
        assert interrupts.count == 2


def test_what_may_be_left_out_is_cut_by_the_second_signal_only() -> None:
    said: list[str] = []

    def copying(interrupts: Interrupts, numbers: int) -> None:
        with interrupts.exposed("leaving out the copying", spared=1):
            for _ in range(numbers):
                _send(signal.SIGINT)

    with Interrupts(say=said.append).installed() as interrupts:
        copying(interrupts, 1)
        assert interrupts.count == 1
        with pytest.raises(KeyboardInterrupt):
            copying(interrupts, 3)
        assert interrupts.count == 2
        with pytest.raises(KeyboardInterrupt):
            copying(interrupts, 0)
    assert said == ["SIGINT: still cleaning up, then the command ends", "SIGINT: leaving out the copying"]


def test_a_signal_does_not_meet_a_lock_that_is_held() -> None:
    """Hundreds of signals while the main thread prints and polls: the handler neither prints nor locks."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 2)
        sys.stdout = os.fdopen(os.dup(writing), "w")
        with Interrupts().installed() as interrupts:
            os.write(writing, b"ready\n")
            while interrupts.count < 100:
                print("x", flush=True)
        os._exit(7)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.readline() == b"ready\n"
        deadline = time.monotonic() + 20
        for line in pipe:
            if line == b"x\n" and time.monotonic() < deadline:
                os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts().installed():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts().installed():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def _hearing() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_any_command_ends_with_one_line_and_the_code_of_unknown(number: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as engine:  # it accepts connections and never answers
        engine.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.cli.app", "down"],
            env={**os.environ, "DOCKER_HOST": f"tcp://127.0.0.1:{engine.getsockname()[1]}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_hearing,
        )
        call, _ = engine.accept()
        with call:
            process.send_signal(number)
            out, said = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    assert said.splitlines() == [f"{signal.Signals(number).name}: ending", "error: interrupted"]


_JUDGING = """
import sys, time
from pathlib import Path
from harness.cli.campaigns import gate_exit_code
from harness.cli.interrupted_checks import cut_short
from harness.cli.gate_files import GateFiles
from harness.report.summary import TestOutcome

def outcome(name, verdict):
    return TestOutcome(name=name, verdict=verdict, why="", seconds=0.0)

files = GateFiles(name="g", tests=["a", "b", "c"], summary=Path(sys.argv[1]))
known = [outcome("a", sys.argv[2]), outcome("b", "unknown"), outcome("c", "not run")]
with cut_short("the check of r", last=lambda: gate_exit_code(known, files.write(known))):
    print("judging", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("first", "code"), [("valid", 2), ("invalid", 1), ("failed", 255)])
def test_required_files_are_written_before_a_check_is_cut(first: str, code: int, tmp_path: Path) -> None:
    summary = tmp_path / "s.md"
    process = subprocess.Popen(
        [sys.executable, "-c", _JUDGING, str(summary), first],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hearing,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "judging\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert said == "SIGTERM: the check of r was cut short, nothing of it is kept\n"
    head, *_ = summary.read_text(encoding="utf-8").splitlines()
    assert sorted(head.removeprefix("# g: ").split(", ")) == sorted([f"1 {first}", "1 unknown", "1 not run"])
