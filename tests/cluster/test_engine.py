"""Installing and starting the engine: a second `dockerd` in its own network and mount namespaces.

The running engine is never touched: nothing of the second one is in the host's network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.docker import engine
from harness.core.system import find_command

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or find_command("dockerd") is None,
    reason="needs root, unshare and an installed dockerd on this machine",
)

# Runs inside the namespaces: start, start again, create a network, and end what was started.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
import docker
from harness.clusters.docker.dockerd import Daemon
from harness.clusters.docker.engine import install_and_start
from harness.core.errors import EngineError
from harness.core.wait import wait_until

folder = Path(sys.argv[1])
(folder / "daemon.json").write_text(sys.argv[2])
daemon = Daemon(
    socket=str(folder / "docker.sock"), folder=folder, log=folder / "log", daemon_json=str(folder / "daemon.json"),
    more=tuple(sys.argv[3:]),
)
found = {"said": []}
pidfile = folder / "dockerd.pid"
try:
    try:
        found["first"] = install_and_start(say=found["said"].append, daemon=daemon)
    except EngineError as error:
        found["error"] = str(error)
    else:
        found["pid"] = int(pidfile.read_text())
        found["second"] = install_and_start(say=found["said"].append, daemon=daemon)
        client = docker.DockerClient(base_url=f"unix://{daemon.socket}", timeout=20)
        found["root"] = client.info()["DockerRootDir"]
        network = client.networks.create("n")
        network.reload()
        found["subnet"] = network.attrs["IPAM"]["Config"][0]["Subnet"]
        found["routes"] = os.popen("ip route").read()
        found["pid_after"] = int(pidfile.read_text())
finally:
    if pidfile.exists():
        pid = int(pidfile.read_text())
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not pidfile.exists(), timeout_s=30, what="the second engine to end")
print(json.dumps(found))
"""


def run(folder: Path, config: str, *arguments: str) -> Any:
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    inner = 'ip link set lo up; exec "$@"'
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", inner, "sh", sys.executable,
         str(program), str(folder), config, *arguments],
        capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_start_twice_starts_once_with_its_own_addresses(tmp_path: Path) -> None:
    found = run(tmp_path, "{}")
    assert "was started" in found["first"]
    assert "answers" in found["second"]
    assert found["pid_after"] == found["pid"]
    assert found["root"] == str(tmp_path / "data")
    assert found["subnet"].startswith("172.30.")
    assert "unreachable 172.30.0.0/16" in found["routes"]
    assert len(found["said"]) == 1


def test_a_configured_address_pool_is_left_alone(tmp_path: Path) -> None:
    found = run(tmp_path, '{"default-address-pools": [{"base": "10.99.0.0/16", "size": 24}], "bip": "10.99.255.1/24"}')
    assert "as configured" in found["first"]
    assert found["subnet"].startswith("10.99.")
    assert "unreachable" not in found["routes"]


def test_an_engine_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    found = run(tmp_path, "{}", "--storage-driver=nonsense")
    assert "ended at once" in found["error"]
    assert "driver not supported" in found["error"]
    assert str(tmp_path / "log") in found["error"]


def test_a_broken_configuration_file_is_named(tmp_path: Path) -> None:
    found = run(tmp_path, "{")
    assert str(tmp_path / "daemon.json") in found["error"]
    assert "not JSON" in found["error"]
    assert found["said"] == []


def test_a_running_engine_is_left_alone() -> None:
    before = subprocess.run(["pgrep", "-x", "dockerd"], capture_output=True, text=True, check=False).stdout
    said: list[str] = []
    assert "answers at" in engine.install_and_start(say=said.append)
    assert said == []
    assert subprocess.run(["pgrep", "-x", "dockerd"], capture_output=True, text=True, check=False).stdout == before
