"""Commands started as a user starts them, and what they leave on the engine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.clusters.docker.cleanup import labelled_objects
from harness.clusters.docker.clients import DockerClients
from harness.history.runfile import read_meta

SMALL = {"brokers": 1, "topics": 1, "partitions": 2, "rate": 100, "time-limit": 8, "producers": 1, "consumers": 1}
SMALL_ARGS = [part for key, value in SMALL.items() for part in (f"--{key}", str(value))]
START_S = 120.0


def hearing() -> None:
    """Reset SIGINT: a shell's background jobs, and their children, ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def shatter(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """The command, with both outputs in one pipe."""
    command = [sys.executable, "-m", "harness.cli.app", *arguments]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=hearing
    )


def finish(process: subprocess.Popen[str], *, timeout_s: float = 420) -> tuple[int, str]:
    """Its exit code and output."""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output


def wait_for_phase(out: Path, process: subprocess.Popen[str] | None, phase: str) -> Path:
    """The folder of a run (of this process, if given) once this phase has begun."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for folder in out.glob("*"):
            if (folder / "run.json").exists() and any(p.name == phase for p in read_meta(folder).phases):
                return folder
        if process is not None and process.poll() is not None:
            pytest.fail(f"the run ended before {phase}: {process.communicate()[0]}")
        time.sleep(0.1)
    pytest.fail(f"no {phase} within {START_S:g} s")


def left_of(clients: DockerClients, folder: Path) -> list[str]:
    """The objects that a run has on the engine."""
    return [str(found) for found in labelled_objects(clients, run=folder.name)]
