"""The container engine: reaching it, and on a Debian or Ubuntu machine installing and starting it.

An engine that answers is never touched. One that is started here gets an address pool of its own that overlaps no
route of the host, and an "unreachable" route over the whole pool: traffic to a network that is gone must fail at
once instead of leaving by the default route.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from urllib.parse import urlsplit

import docker
import docker.errors
import requests

from harness.clusters.image_files import cache_dir
from harness.clusters.subnets import host_routes
from harness.errors import EngineError
from harness.locks import file_lock
from harness.system import apt_install, cannot_install, is_root, system_name
from harness.wait import wait_until

CONNECT_S = 10.0
ANSWER_S = 60.0
START_S = 60.0
SOCKET = "/var/run/docker.sock"
POOLS = tuple(
    IPv4Network(pool) for pool in ("172.30.0.0/16", "172.29.0.0/16", "172.28.0.0/16", "10.213.0.0/16", "10.214.0.0/16")
)
PACKAGES = {"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"}  # command → Debian package
_DAEMON_JSON = "/etc/docker/daemon.json"
_SYSTEMD = Path("/run/systemd/system")

Say = Callable[[str], None]


def connect(*, timeout_s: float = CONNECT_S, answer_s: float = ANSWER_S) -> docker.DockerClient:
    """A client of the engine that DOCKER_HOST names, or of the local one.

    `timeout_s` limits the first contact, `answer_s` each answer after it.

    Raises: EngineError, one sentence, when the engine does not answer in time.
    """
    try:
        client = docker.from_env(timeout=max(1, round(timeout_s)))
        client.ping()
        client.api.timeout = max(1, round(answer_s))
    except (docker.errors.DockerException, requests.RequestException, OSError, ValueError) as error:
        raise EngineError(unreachable(error, timeout_s=timeout_s)) from error
    return client


def engine_address() -> str:
    """Where the engine is looked for."""
    return os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"


def unreachable(error: Exception, *, timeout_s: float = CONNECT_S) -> str:
    """Why the engine does not answer and what to do, as one sentence."""
    address = engine_address()
    causes = set(map(type, _chain(error)))
    text = " ".join(str(error).split())
    if PermissionError in causes or "Permission denied" in text:
        return (
            f"this user may not use the Docker engine at {address}: join the group docker (`sudo usermod -aG docker "
            "$USER`, then log in again) or call this as root"
        )
    if FileNotFoundError in causes or "FileNotFoundError" in text or "No such file" in text:
        why = f"no Docker engine is running at {address}"
    elif ConnectionRefusedError in causes or "Connection refused" in text:
        why = f"nothing listens at {address}"
    elif "timed out" in text.lower() or any(issubclass(cause, (TimeoutError, requests.Timeout)) for cause in causes):
        why = f"the Docker engine at {address} did not answer within {timeout_s:g} s"
    else:
        why = f"the Docker engine at {address} cannot be reached ({text[:300]})"
    return f"{why}: start it, or point DOCKER_HOST at a running one; `shatter doctor --fix` starts it where it can"


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """How a `dockerd` of ours is started. Every None means: as the engine does by itself.

    socket: path of its socket. folder: where its data, state and pid file go; given together with socket, it lives
    beside another engine.
    """

    socket: str = SOCKET
    folder: Path | None = None
    log: Path = field(default_factory=lambda: cache_dir() / "dockerd.log")
    daemon_json: str = _DAEMON_JSON
    more: tuple[str, ...] = ()

    def command(self, pool: IPv4Network | None) -> list[str]:
        """The command line. pool: addresses for networks; None where the configuration file names its own."""
        command = ["dockerd"]
        if self.folder is not None:
            command += [f"--data-root={self.folder / 'data'}", f"--exec-root={self.folder / 'exec'}"]
            command += [f"--pidfile={self.folder / 'dockerd.pid'}", f"--host=unix://{self.socket}"]
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
        raise EngineError(f"{path} is not JSON ({error}): mend it or move it away, the engine needs it") from error
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


def install_and_start(*, say: Say, daemon: Daemon | None = None) -> str:
    """Make a Docker engine answer: leave a running one alone, else install what is missing and start it.

    Returns one sentence about what was done. Needs root, and Debian or Ubuntu to install anything.

    Raises: EngineError with what to do by hand.
    """
    daemon = daemon or Daemon()
    with file_lock(cache_dir() / "engine.lock", what="another process that starts the engine", timeout_s=1200):
        if daemon.folder is None:
            if answer := _answers():
                return answer
            _must_be_ours()
        missing = [package for command, package in PACKAGES.items() if shutil.which(command) is None]
        if missing:
            if why := cannot_install():
                raise EngineError(by_hand(f"the Docker engine is not installed and cannot be installed here: {why}"))
            apt_install(missing, say=say)
            if daemon.folder is None and (answer := _answers()):  # the package may have started its service
                return f"installed {', '.join(missing)}; {answer}"
        if not is_root():
            raise EngineError(by_hand("the Docker engine is not running, and only root can start it"))
        if daemon.folder is None and _start_service(say):
            return f"the Docker engine was started by the service manager: {_answers()}"
        return start_daemon(daemon, say=say)


def start_daemon(daemon: Daemon, *, say: Say) -> str:
    """Start `dockerd` as a process of its own that outlives this one, and wait until it answers.

    Raises: EngineError with the daemon's last words.
    """
    given = configured_keys(daemon.daemon_json)
    pool = None
    if not given & {"bip", "default-address-pools"} and not any(f.startswith("--bridge") for f in daemon.more):
        pool = choose_pool(host_routes())
        _run(["ip", "route", "replace", "unreachable", str(pool), "metric", "9999"])
    command = daemon.command(pool)
    say(f"starting the Docker engine ({' '.join(command)})")
    daemon.log.parent.mkdir(parents=True, exist_ok=True)
    with daemon.log.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def answers() -> bool:
        if process.poll() is not None:
            raise EngineError(
                f"the Docker engine ended at once with code {process.returncode}: {_last_line(daemon.log)}; "
                f"its log is {daemon.log}"
            )
        return _ping(f"unix://{daemon.socket}")

    try:
        wait_until(
            answers,
            timeout_s=START_S,
            what="the Docker engine to answer after its start",
            instead=lambda: f"it said: {_last_line(daemon.log)} (log: {daemon.log})",
        )
    except BaseException:
        process.terminate()
        raise
    addresses = f"addresses from {pool}" if pool else "addresses as configured"
    return f"the Docker engine was started (process {process.pid}, {addresses}, log {daemon.log})"


def by_hand(why: str) -> str:
    """A sentence that ends with what to do about a missing or stopped engine on this system."""
    system = system_name()
    if shutil.which("systemctl") and _SYSTEMD.is_dir() and shutil.which("dockerd"):
        return f"{why}; start it with `sudo systemctl start docker`, then call this again"
    return (
        f"{why}; on Debian or Ubuntu call `sudo shatter doctor --fix`; on {system} install Docker Engine (or Docker "
        "Desktop, or Podman with its Docker socket), start it, set DOCKER_HOST if its socket is elsewhere, and call "
        "this again"
    )


def _answers() -> str:
    """One sentence about the engine that answers; empty when none does."""
    if not _ping(engine_address()):
        return ""
    client = connect()
    try:
        version = client.version()
    finally:
        client.close()
    return f"the Docker engine {version['Version']} answers at {engine_address()}"


def _ping(address: str) -> bool:
    try:
        client = docker.DockerClient(base_url=address, timeout=5)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, requests.RequestException, OSError, ValueError):
        return False


def _must_be_ours() -> None:
    """Refuse to start a local engine in place of one that is elsewhere, or that this user may not use."""
    address = engine_address()
    parts = urlsplit(address)
    if parts.scheme != "unix" or Path(parts.path).resolve() != Path(SOCKET).resolve():
        raise EngineError(
            f"DOCKER_HOST names {address}, which does not answer: start that engine, or unset DOCKER_HOST to have a "
            "local one started"
        )
    try:
        connect(timeout_s=5)
    except EngineError as error:
        if isinstance(error.__cause__, Exception) and "may not use" in str(error):
            raise


def _start_service(say: Say) -> bool:
    """Have systemd start the engine where systemd is what runs this machine. False where it is not, or could not."""
    if not _SYSTEMD.is_dir() or shutil.which("systemctl") is None:
        return False
    say("starting the Docker engine (systemctl start docker)")
    if not _run(["systemctl", "start", "docker"], timeout_s=90):
        return False
    try:
        wait_until(lambda: _ping(engine_address()), timeout_s=START_S, what="the Docker engine to answer")
    except Exception as error:
        raise EngineError(f"systemd started the Docker engine but it does not answer: {error}") from error
    return True


def _run(command: Sequence[str], *, timeout_s: float = 30) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _chain(error: BaseException) -> Iterable[BaseException]:
    """An error, its causes, and the errors among their arguments (requests hides the socket's error there)."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        item = waiting.pop()
        if isinstance(item, BaseException) and item not in seen:
            seen.append(item)
            waiting += [item.__cause__, item.__context__, *item.args, getattr(item, "reason", None)]
    return seen


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if "level=fatal" in line or "failed to start" in line or "level=error" in line]
    return (told or lines or ["it printed nothing"])[-1][:300]
