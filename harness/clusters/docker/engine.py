"""The container engine: connecting to it, and on a Debian or Ubuntu machine installing and starting it.

An engine that answers is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import docker
import docker.errors
import requests

from harness.clusters.docker.dockerd import SOCKET, START_S, Daemon, Say, ping, run_quietly, start_daemon
from harness.clusters.docker.image_files import cache_dir
from harness.core.errors import EngineError
from harness.core.locks import file_lock
from harness.core.system import apt_install, cannot_install, find_command, is_root, system_name
from harness.core.wait import wait_until

CONNECT_S = 10.0
ANSWER_S = 60.0
PACKAGES = {"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"}  # command → Debian package
_SYSTEMD = Path("/run/systemd/system")


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
    """The address at which the engine is expected."""
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


def install_and_start(*, say: Say, daemon: Daemon | None = None) -> str:
    """Make a Docker engine answer: leave a running one alone, else install what is missing and start it.

    Returns one sentence about what was done. Needs root, and Debian or Ubuntu to install anything.

    Raises: EngineError with what to do by hand.
    """
    daemon = daemon or Daemon()
    with file_lock(cache_dir() / "engine.lock", what="another process that starts the engine", timeout_s=1200):
        if daemon.folder is not None:
            if ping(f"unix://{daemon.socket}"):
                return f"a Docker engine answers at {daemon.socket}"
        elif answer := _answers():
            return answer
        else:
            _must_be_ours()
        missing = [package for command, package in PACKAGES.items() if find_command(command) is None]
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


def by_hand(why: str) -> str:
    """A sentence that ends with what to do about a missing or stopped engine on this system."""
    system = system_name()
    if find_command("systemctl") and _SYSTEMD.is_dir() and find_command("dockerd"):
        return f"{why}; start it with `sudo systemctl start docker`, then run this again"
    return (
        f"{why}; on Debian or Ubuntu call `sudo shatter doctor --fix`; on {system} install Docker Engine (or Docker "
        "Desktop, or Podman with its Docker socket), start it, set DOCKER_HOST if its socket is elsewhere, and call "
        "this again"
    )


def _answers() -> str:
    """One sentence about the engine that answers; empty when none does."""
    if not ping(engine_address()):
        return ""
    client = connect()
    try:
        version = client.version()
    finally:
        client.close()
    return f"the Docker engine {version['Version']} answers at {engine_address()}"


def _must_be_ours() -> None:
    """Refuse to start a local engine in place of a remote one, or of one that this user may not use."""
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
    """Have systemd start the engine. False where this machine does not run systemd, or systemd could not."""
    if not _SYSTEMD.is_dir() or find_command("systemctl") is None:
        return False
    say("starting the Docker engine (systemctl start docker)")
    if not run_quietly(["systemctl", "start", "docker"], timeout_s=90):
        return False
    try:
        wait_until(lambda: ping(engine_address()), timeout_s=START_S, what="the Docker engine to answer")
    except Exception as error:
        raise EngineError(f"systemd started the Docker engine but it does not answer: {error}") from error
    return True


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
