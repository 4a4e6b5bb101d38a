"""Starting a `dockerd` as a process of its own, for machines without a service manager.

It gets an address pool that overlaps no route of the host, and an "unreachable" route over the whole pool: traffic to
a network that is gone must fail at once instead of leaving by the default route.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

import docker
import docker.errors
import requests

from harness.clusters.docker.image_files import cache_dir
from harness.clusters.docker.subnets import host_routes
from harness.core.errors import EngineError
from harness.core.system import find_command
from harness.core.wait import wait_until

SOCKET = "/var/run/docker.sock"
START_S = 60.0
POOLS = tuple(
    IPv4Network(pool) for pool in ("172.30.0.0/16", "172.29.0.0/16", "172.28.0.0/16", "10.213.0.0/16", "10.214.0.0/16")
)
_DAEMON_JSON = "/etc/docker/daemon.json"

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """Options of a `dockerd` that we start. None means the engine's default.

    socket: path of its socket. folder: where its data, state and pid file go; given together with socket, it runs
    next to another engine.
    """

    socket: str = SOCKET
    folder: Path | None = None
    log: Path = field(default_factory=lambda: cache_dir() / "dockerd.log")
    daemon_json: str = _DAEMON_JSON
    more: tuple[str, ...] = ()

    def command(self, pool: IPv4Network | None) -> list[str]:
        """The command line. pool: addresses for networks; None where the configuration file names its own."""
        command = [find_command("dockerd") or "dockerd"]
        if self.folder is not None:
            command += [f"--data-root={self.folder / 'data'}", f"--exec-root={self.folder / 'exec'}"]
            command += [f"--pidfile={self.folder / 'dockerd.pid'}", f"--host=unix://{self.socket}"]
        if self.daemon_json != _DAEMON_JSON:
            command += [f"--config-file={self.daemon_json}"]
        if pool is not None:
            command += [f"--bip={bridge_address(pool)}", f"--default-address-pool=base={pool},size=24"]
        return [*command, *self.more]


def configured_keys(path: str) -> frozenset[str]:
    """Keys of the engine's configuration file. It refuses to start with the same key on its command line.

    Raises: EngineError when the file is not JSON: the engine would not start with it either.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise EngineError(f"{path} is not JSON ({error}): fix it or move it away, the engine needs it") from error
    return frozenset(found) if isinstance(found, dict) else frozenset()


def bridge_address(pool: IPv4Network) -> str:
    """Address of the default bridge: the first host of the pool's last /24, out of the way of our networks."""
    last = list(pool.subnets(new_prefix=24))[-1]
    return f"{last.network_address + 1}/24"


def choose_pool(routes: Iterable[IPv4Network], pools: Sequence[IPv4Network] = POOLS) -> IPv4Network:
    """The first pool that overlaps no route. Raises EngineError when every one does."""
    taken = list(routes)
    for pool in pools:
        if not any(pool.overlaps(route) for route in taken):
            return pool
    raise EngineError(
        f"every address pool of ours ({', '.join(map(str, pools))}) overlaps a route of this host: start the engine "
        'by hand with "default-address-pools" in /etc/docker/daemon.json'
    )


def start_daemon(daemon: Daemon, *, say: Say) -> str:
    """Start `dockerd` as a process of its own that outlives this one, and wait until it answers.

    Raises: EngineError with the daemon's last error.
    """
    given = configured_keys(daemon.daemon_json)
    pool = None
    if not given & {"bip", "default-address-pools"} and not any(f.startswith("--bridge") for f in daemon.more):
        pool = choose_pool(host_routes())
        run_quietly([find_command("ip") or "ip", "route", "replace", "unreachable", str(pool), "metric", "9999"])
    command = daemon.command(pool)
    say(f"starting the Docker engine ({' '.join(command)})")
    daemon.log.parent.mkdir(parents=True, exist_ok=True)
    with daemon.log.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def answers() -> bool:
        if process.poll() is not None and not ping(f"unix://{daemon.socket}"):
            raise EngineError(
                f"the Docker engine ended at once with code {process.returncode}: {_last_line(daemon.log)}; "
                f"its log is {daemon.log}"
            )
        return ping(f"unix://{daemon.socket}")

    try:
        wait_until(
            answers,
            timeout_s=START_S,
            what="the Docker engine to answer after its start",
            instead=lambda: f"its last error: {_last_line(daemon.log)} (log: {daemon.log})",
        )
    except BaseException:
        process.terminate()
        raise
    if process.poll() is not None:
        return f"a Docker engine that something else started meanwhile answers at {daemon.socket}"
    addresses = f"addresses from {pool}" if pool else "addresses as configured"
    return f"the Docker engine was started (process {process.pid}, {addresses}, log {daemon.log})"


def ping(address: str) -> bool:
    """Whether an engine answers at an address within 5 s."""
    try:
        client = docker.DockerClient(base_url=address, timeout=5)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, requests.RequestException, OSError, ValueError):
        return False


def run_quietly(command: Sequence[str], *, timeout_s: float = 30) -> bool:
    """Run a command; returns whether it succeeded in time."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    relevant = [line for line in lines if "level=fatal" in line or "failed to start" in line or "level=error" in line]
    return (relevant or lines or ["it printed nothing"])[-1][:300]
