"""Short-lived helper containers: shell scripts in a node's network namespace, and snapshots of its files.

Both use our own tools image, so that a node's image needs no tools.
"""

from __future__ import annotations

import contextlib
import shlex
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import docker.errors
import requests
from docker.models.containers import Container

from harness.clusters.docker.clients import DockerClients, explain
from harness.core.errors import ClusterError, ImageError
from harness.topology.clusters import ExecResult

_SNAPSHOT = "/snapshot.tar"
_NO_MATCH = 9
FETCH_S = 120.0


@contextlib.contextmanager
def _tool(
    clients: DockerClients,
    image: str,
    script: str,
    *,
    labels: Mapping[str, str],
    node: str,
    timeout_s: float,
    options: Mapping[str, Any],
) -> Iterator[tuple[Container, ExecResult]]:
    """Run a script in a fresh container and wait for its end; the container is removed on leaving."""
    deadline = time.monotonic() + timeout_s
    client = clients.get()
    container = None
    try:
        try:
            container = client.containers.create(
                image, command=["-c", script], entrypoint=["sh"], user="0", labels=dict(labels), **options
            )
            container.start()
            code = int(container.wait(timeout=max(1.0, deadline - time.monotonic()))["StatusCode"])
            output = container.logs(stdout=True, stderr=True).decode(errors="replace")
        except docker.errors.ImageNotFound as error:
            raise ImageError(f"the tools image {image} is not on this machine: `shatter images` builds it") from error
        except requests.exceptions.ConnectionError as error:  # docker-py's read time-out of `wait`
            raise ClusterError(f"{node}: a script did not end within {timeout_s:g} s: {script[:200]!r}") from error
        except (docker.errors.APIError, requests.RequestException) as error:
            raise ClusterError(f"{node}: a script cannot be run: {explain(error)}: {script[:200]!r}") from error
        yield container, ExecResult(code, output)
    finally:
        if container is not None:
            with contextlib.suppress(docker.errors.APIError, requests.RequestException):
                container.remove(force=True, v=True)


def run_tool(
    clients: DockerClients,
    image: str,
    script: str,
    *,
    labels: Mapping[str, str],
    node: str,
    timeout_s: float,
    options: Mapping[str, Any],
) -> ExecResult:
    """Run a shell script in a container of its own and return how it ended. Raises ClusterError, ImageError."""
    with _tool(clients, image, script, labels=labels, node=node, timeout_s=timeout_s, options=options) as (_, result):
        return result


def fetch(
    clients: DockerClients,
    container: str,
    path: str,
    into: Path,
    *,
    only: Sequence[str],
    tools_image: str,
    labels: Mapping[str, str],
    node: str,
) -> Path:
    """Copy a file or folder out of a container into a local folder; returns into / its last name.

    Files in a volume are packed by GNU tar in a container that shares the volume: the engine's own copy fails on
    files that grow, and sends the zeros of preallocated index files. Everything else is the engine's own copy.
    Raises ClusterError.
    """
    into.mkdir(parents=True, exist_ok=True)
    source = PurePosixPath(path)
    try:
        mounts = clients.api.inspect_container(container)["Mounts"]
        if not any(source.is_relative_to(mount["Destination"]) for mount in mounts):
            _extract(clients.api.get_archive(container, path)[0], into, only=only)
            return into / source.name
        with _tool(
            clients,
            tools_image,
            _pack_script(source, only),
            labels=labels,
            node=node,
            timeout_s=FETCH_S,
            options={"network_mode": "none", "volumes_from": [f"{container}:ro"]},
        ) as (helper, result):
            if result.exit_code == _NO_MATCH:
                raise ClusterError(f"{node}: there is no {path} in it")
            if result.exit_code != 0:
                raise ClusterError(f"{node}: {path} cannot be packed: {result.output.strip()[-500:]}")
            _unpack(helper, into)
    except docker.errors.NotFound as error:
        raise ClusterError(f"{node}: there is no {path} to fetch: {explain(error)}") from error
    except (docker.errors.APIError, requests.RequestException) as error:
        raise ClusterError(f"{node}: {path} cannot be fetched: {explain(error)}") from error
    except tarfile.TarError as error:
        raise ClusterError(f"{node}: {path} came out torn: {error}") from error
    if not (into / source.name).exists():
        (into / source.name).mkdir(exist_ok=True)
    return into / source.name


def _unpack(helper: Container, into: Path) -> None:
    """Unpack what a helper container packed."""
    with tempfile.TemporaryDirectory(dir=into) as folder:
        _extract(helper.get_archive(_SNAPSHOT)[0], Path(folder), only=())
        with tarfile.open(Path(folder) / PurePosixPath(_SNAPSHOT).name) as tar:
            tar.extractall(into, filter="data")


def _pack_script(source: PurePosixPath, only: Sequence[str]) -> str:
    names = " -o ".join(f"-name {shlex.quote(pattern)}" for pattern in only)
    match = f"\\( {names} \\)" if names else ""
    return (
        f"cd {shlex.quote(str(source.parent))} && [ -e {shlex.quote(source.name)} ] || exit {_NO_MATCH}; "
        f"find {shlex.quote(source.name)} ! -type d {match} -print0 | "
        f"tar --null --no-recursion --sparse --warning=no-file-changed --ignore-failed-read -T - -cf {_SNAPSHOT}; "
        "code=$?; [ $code -le 1 ]"  # 1: a file changed while it was read, or vanished (a deleted segment)
    )


def _extract(chunks: Iterable[bytes], into: Path, *, only: Sequence[str]) -> None:
    with tempfile.TemporaryFile() as spool:
        for chunk in chunks:
            spool.write(chunk)
        spool.seek(0)
        with tarfile.open(fileobj=spool) as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if not only or member.isdir() or any(name.match(pattern) for pattern in only):
                    tar.extract(member, into, filter="data")
