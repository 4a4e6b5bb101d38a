"""One image at a time: build it, pull it, or make the base from Debian's packages. Each step is one progress line."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import IO, Any, Protocol

import docker
import docker.errors
import requests

from harness.clusters.docker.clients import connect
from harness.clusters.docker.image_files import Recipe, cache_dir, host_certificates, proxy_arguments
from harness.core.errors import ImageError

LABEL = "shatterproof.image"  # not the run's label: images outlive runs
PUBLIC_BASE = "debian:bookworm-slim"
SUITE = "bookworm"
_BUILD_SILENCE_S = 900  # a build step that prints nothing for this long counts as stuck
_PULL_SILENCE_S = 90
BUILD_LIMIT_S = 1800
_MAKE_BASE_S = 900
_STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Progress(Protocol):
    """Receives one line of progress of one image."""

    def __call__(self, image: str, line: str) -> None:
        """`image` is base, kafka, toxiproxy, reference or a user's image name."""
        ...


class Buildable(Protocol):
    """What an image is built from: a Recipe or a ReleaseArchive."""

    @property
    def name(self) -> str:
        """Its name in progress lines and of its log."""
        ...

    def context(self, certificates: Mapping[str, bytes]) -> bytes:
        """The build context as a tar. certificates: file name → PEM of the machine's own."""
        ...


@dataclass
class BuildLog:
    """Everything a build printed, on disk, and the step it is in."""

    path: Path
    step: str = ""
    tail: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        """Append output; keeps the last lines at hand for the error sentence."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
        lines = [line.strip() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
        self.tail = (self.tail + lines)[-40:]


def log_path(name: str) -> Path:
    """Where the log of an image's last build is."""
    return cache_dir() / "build-logs" / f"{name}.log"


def open_log(name: str) -> BuildLog:
    """A fresh log for one image's build."""
    path = log_path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    return BuildLog(path)


def build(
    client: docker.DockerClient,
    recipe: Buildable,
    tag: str,
    *,
    base: str,
    on_progress: Progress,
    cancelled: Event | None = None,
) -> None:
    """Build an image from its recipe on `base` and tag it; the log stays in the cache folder.

    Raises: ImageError that names the failing step, its last error and the log.
    """
    log = open_log(recipe.name)
    context = recipe.context(host_certificates())
    try:
        stream = client.api.build(
            fileobj=_file(context),
            custom_context=True,
            tag=tag,
            buildargs={"BASE": base, **proxy_arguments(os.environ)},
            rm=True,
            forcerm=True,
            decode=True,
            timeout=_BUILD_SILENCE_S,
        )
        follow(stream, recipe.name, log, on_progress, cancelled or Event())
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageError(
            f"the engine stopped building image {recipe.name} in {log.step or 'its first step'}: {error}; "
            f"the log is {log.path}"
        ) from error
    on_progress(recipe.name, f"built as {tag}")


def build_all(wanted: Sequence[tuple[Recipe, str]], *, base: str, on_progress: Progress) -> None:
    """Build several images at once, (recipe, tag) each, on clients of their own. The first failure ends them all.

    The threads are daemons: an interrupt leaves at once, and the engine stops a build whose client is gone.

    Raises: ImageError.
    """
    cancelled = Event()
    ends: Queue[Exception | None] = Queue()

    def one(recipe: Recipe, tag: str) -> None:
        try:
            client = connect()
            try:
                build(client, recipe, tag, base=base, on_progress=on_progress, cancelled=cancelled)
            finally:
                client.close()
        except Exception as error:
            ends.put(error)
        else:
            ends.put(None)

    for recipe, tag in wanted:
        Thread(target=one, args=(recipe, tag), name=f"image-{recipe.name}", daemon=True).start()
    deadline = time.monotonic() + BUILD_LIMIT_S
    try:
        for _ in wanted:
            failure = ends.get(timeout=max(0.0, deadline - time.monotonic()))
            if failure is not None:
                raise failure
    except Empty:
        raise ImageError(
            f"building the images took longer than {BUILD_LIMIT_S // 60} minutes and was called off; the logs are in "
            f"{log_path('x').parent}"
        ) from None
    finally:
        cancelled.set()


def pull(client: docker.DockerClient, name: str, *, on_progress: Progress, shown: str | None = None) -> None:
    """Pull an image by its name (with tag or digest; `latest` when it has neither).

    Raises: docker.errors.DockerException or requests.RequestException from the engine.
    """
    shown = shown or name
    repository, tag = split_name(name)
    on_progress(shown, f"pulling {name}")
    kept, client.api.timeout = client.api.timeout, _PULL_SILENCE_S
    try:
        for chunk in client.api.pull(repository, tag=tag, stream=True, decode=True):
            if "error" in chunk:
                raise docker.errors.APIError(str(chunk["error"]), explanation=str(chunk["error"]))
            if chunk.get("status") in ("Pull complete", "Already exists"):
                on_progress(shown, f"layer {chunk.get('id', '')}: {chunk['status'].lower()}")
    finally:
        client.api.timeout = kept


def split_name(name: str) -> tuple[str, str]:
    """(repository, tag or digest) of an image name; a colon before the last slash belongs to a port."""
    if "@" in name:
        repository, _, digest = name.partition("@")
        return repository, digest
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return head + slash + last, tag or "latest"


def make_base(client: docker.DockerClient, recipe: Recipe, tag: str, *, on_progress: Progress) -> None:
    """Make the base's file system from Debian's packages on this machine and import it as `tag`.

    Raises: ImageError where this machine cannot do it, with what would help, or when it failed.
    """
    if reason := _cannot_make_base():
        raise ImageError(
            f"{PUBLIC_BASE} cannot be pulled, and the base cannot be made here: {reason}. Load it by hand "
            f"(`docker load` of a `docker save {PUBLIC_BASE}` from another machine) and run `shatter images` again"
        )
    log = open_log(recipe.name)
    with tempfile.TemporaryDirectory(prefix="shatterproof-base-") as folder:
        tar = Path(folder) / "base.tar"
        with subprocess.Popen(
            ["sh", str(recipe.folder / "make-base.sh"), str(tar), SUITE],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    log.write(line)
                    if line.startswith("I: ") and line.rstrip().endswith("..."):
                        on_progress(recipe.name, line[3:].strip(". \n"))
                code = process.wait(timeout=_MAKE_BASE_S)
            except BaseException:
                process.terminate()
                raise
        if code != 0:
            raise ImageError(
                f"making the base from Debian's packages failed ({_last_words(log.tail)}); the log is {log.path}"
            )
        on_progress(recipe.name, "importing into the engine")
        repository, version = split_name(tag)
        changes = [f"LABEL {LABEL}=1", 'CMD ["/bin/sh"]']
        try:
            with tar.open("rb") as file:
                client.api.import_image(src=file, repository=repository, tag=version, changes=changes)
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise ImageError(f"the engine did not import the base made here: {error}") from error
    on_progress(recipe.name, f"made as {tag}")


def _cannot_make_base() -> str:
    """Why this machine cannot make the base; empty when it can."""
    if platform.system() != "Linux" or not hasattr(os, "geteuid"):
        return "that needs Linux"
    if os.geteuid() != 0:
        return "that needs root"
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return "that needs Debian or Ubuntu (apt-get and dpkg)"
    return ""


def follow(
    stream: Iterator[Mapping[str, Any]], name: str, log: BuildLog, on_progress: Progress, cancelled: Event
) -> None:
    """Read a build's output to its end, reporting each step.

    `stream`: the engine's chunks, with `stream` (text) or `error`. Raises: ImageError at an error, or when called off.
    """
    try:
        for chunk in stream:
            if cancelled.is_set():
                raise ImageError(f"building image {name} was called off in {log.step or 'its first step'}")
            text = str(chunk.get("stream", ""))
            log.write(text)
            if step := _STEP.match(text.strip()):
                number, total, command = step.groups()
                log.step = f"step {number} of {total} ({_shorten(command)})"
                on_progress(name, f"step {number}/{total} {_shorten(command)}")
            if "error" in chunk:
                log.write(f"{chunk['error']}\n")
                raise ImageError(
                    f"building image {name} failed in {log.step or 'its first step'}: {_last_words(log.tail)}; "
                    f"the whole log is {log.path}; finished steps are kept, so fix it and run `shatter images` again"
                )
    finally:
        with suppress(Exception):  # closing the connection makes the engine stop the build
            stream.close()  # type: ignore[attr-defined]


def _shorten(command: str, limit: int = 90) -> str:
    flat = " ".join(command.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _last_words(lines: Iterable[str]) -> str:
    """The last line that says why, before the engine's own 'returned a non-zero code'."""
    relevant = [line for line in lines if "returned a non-zero code" not in line and not line.startswith("--->")]
    errors = [
        line for line in relevant if re.search(r"\b(error|failed|cannot|denied|no space|E:)", line, re.IGNORECASE)
    ]
    return _shorten((errors or relevant or ["it printed nothing"])[-1], 240)


def _file(content: bytes) -> IO[bytes]:
    """A real file: docker-py sends those in pieces and with their length."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the request that reads it
    file.write(content)
    file.seek(0)
    return file
