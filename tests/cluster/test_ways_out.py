"""Every early end of a run and a gate, on real containers: signals, a closed pipe, a dead JVM, interrupted builds.

Each ends in time with a clear sentence; recorded data is kept and judged `unknown`; nothing is left running.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pyspark.sql import SparkSession

from harness.cli.interrupted_checks import children
from harness.cli.judging import check_run
from harness.clusters.docker.clients import DockerClients
from harness.core.errors import EXIT_FAILED, EXIT_UNKNOWN
from harness.history.runfile import read_meta
from tests.cluster.as_user import SMALL, SMALL_ARGS, finish, hearing, left_of, shatter, wait_for_phase

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("number", "phase"),
    [
        (signal.SIGTERM, "provision"),
        pytest.param(signal.SIGHUP, "load", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, "final", marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_a_run_in_order(
    number: signal.Signals, phase: str, tmp_path: Path, clients: DockerClients, spark: SparkSession
) -> None:
    process = shatter("run", *SMALL_ARGS, "--out", str(tmp_path), cwd=tmp_path)
    folder = wait_for_phase(tmp_path, process, phase)
    time.sleep(0.0 if phase == "final" else 3.0)
    began = time.monotonic()
    process.send_signal(number)
    code, output = finish(process, timeout_s=120)
    assert time.monotonic() - began < 60
    assert code == EXIT_UNKNOWN, output
    assert f"{number.name}: ending the run: healing" in output
    found = re.search(rf"unknown: (the run was interrupted: {number.name} came during (\w+)); (.*)", output)
    assert found, output
    assert found[2] in (phase, "evidence" if phase == "final" else phase)  # final reads may end in the meantime
    assert found[3] == f"`shatter check {folder}` judges what was recorded"
    assert "Traceback" not in output
    assert left_of(clients, folder) == []
    assert read_meta(folder).status == "interrupted"
    assert (phase == "provision") or any((folder / "evidence").rglob("*.log"))
    results = check_run(folder, contract=None, spark=spark)
    assert results.verdict == "unknown"
    assert found[1] in results.why


def within(seconds: float, condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail(f"waited {seconds:g} s for {what}")


@pytest.mark.long
def test_a_gate_survives_a_closed_pipe_a_dead_jvm_and_a_signal_while_it_ends(
    tmp_path: Path, clients: DockerClients
) -> None:
    keys = "\n".join(f"{key} = {value}" for key, value in {**SMALL, "time-limit": 5, "rate": 60}.items())
    names = ("jvm-dies", "judged", "wound-up", "never-begun")
    tests = "".join(f'[[test]]\nname = "{name}"\n' for name in names)
    (tmp_path / "gate.toml").write_text(f'name = "ways out"\n[defaults]\n{keys}\n{tests}')
    process = shatter("gate", "gate.toml", "--junit", "j.xml", "--summary", "s.md", cwd=tmp_path)
    assert process.stdout is not None
    try:
        for _ in range(3):
            assert process.stdout.readline()
        process.stdout.close()  # `| head -3`

        def run(number: int) -> Path | None:
            runs = sorted((tmp_path / "runs").glob("*"))
            return runs[number] if len(runs) > number else None

        first = within(120, lambda: run(0), "the first run")
        within(300, lambda: list((first / "results").glob("_anomalies")), "its check to be at work")
        for pid in children(process.pid):
            if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        third = within(480, lambda: run(2), "the third run")
        within(300, lambda: (third / "evidence" / "capture.json").exists(), "its evidence")
        there = len(left_of(clients, third))
        within(60, lambda: len(left_of(clients, third)) < there, "its winding up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == EXIT_FAILED
    finally:
        process.terminate()
        process.wait(timeout=120)
    suite = ET.parse(tmp_path / "j.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
        "skipped": "0",
    }
    ends = [next((child for child in case if child.tag != "system-out"), None) for case in suite.iter("testcase")]
    assert [None if end is None else (end.tag, end.get("type")) for end in ends] == [
        ("error", "failed"),
        None,
        ("failure", "unknown"),
        ("error", "not run"),
    ]
    assert "# ways out: 1 valid, 1 unknown, 1 failed, 1 not run" in (tmp_path / "s.md").read_text()
    runs = list((tmp_path / "runs").iterdir())
    assert len(runs) == 3
    assert [left_of(clients, folder) for folder in runs] == [[], [], []]
    assert read_meta(third).status == "finished"


def test_ctrl_c_while_an_image_is_built(tmp_path: Path, clients: DockerClients) -> None:
    """A copy of the program whose toxiproxy image is not built yet, and takes long."""
    for part in ("harness", "checkers", "nemeses", "workloads", "compose"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    mark = f"sleep 300.{secrets.randbelow(10**9)}"
    dockerfile = tmp_path / "compose" / "toxiproxy" / "Dockerfile"
    text = dockerfile.read_text()
    head, line, rest = text.partition("FROM ")
    base, _, rest = rest.partition("\n")
    dockerfile.write_text(f"{head}{line}{base}\nRUN {mark}\n{rest}")
    (tmp_path / "gate.toml").write_text('name = "g"\n[[test]]\nname = "one"\n[[test]]\nname = "two"\n')

    def building() -> list[str]:
        return [c["Id"] for c in clients.api.containers() if mark in c["Command"]]

    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli.app", "gate", "gate.toml", "--junit", "j.xml"],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hearing,
    )
    within(90, building, "the build")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, output = finish(process, timeout_s=60)
    assert time.monotonic() - began < 15
    assert code == EXIT_UNKNOWN, output
    assert "SIGINT: ending before the test begins" in output
    assert "Traceback" not in output
    suite = ET.parse(tmp_path / "j.xml").getroot()
    cases = [case.find("*") for case in suite.iter("testcase")]
    assert [(c.tag, c.get("type"), c.get("message")) for c in cases if c is not None] == [
        ("failure", "unknown", "the test was interrupted before it began"),
        ("error", "not run", "the campaign was interrupted"),
    ]
    within(30, lambda: not building(), "the engine to give the build up")
    assert not (tmp_path / "runs").exists()
