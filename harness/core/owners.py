"""Owners of temporary folders and other things outside a process: a process, identified by host, pid and start time.

A temporary folder holds a file that names its owner, so that `shatter clean` can remove those of dead processes and
leave those of living ones. Folders of this process are also remembered, so that an interrupt can remove them at once.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

OWNER_FILE: Final = ".owner.json"
PREFIX: Final = "shatter-"
_ABANDONED_S: Final = 86_400.0
"""A folder of ours that names no owner counts as abandoned when it has not been changed for this long."""


@dataclass(frozen=True)
class Owner:
    """A process: the host's name, its id, and its start in clock ticks since boot (0 where /proc is missing)."""

    host: str
    pid: int
    start: int


def process_start(pid: int) -> int | None:
    """Start of a process in clock ticks since boot (field 22 of /proc/PID/stat); None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
    return None if fields[0] in ("Z", "X") else int(fields[19])


def this_process() -> Owner:
    """This process as an owner."""
    return Owner(host=socket.gethostname(), pid=os.getpid(), start=process_start(os.getpid()) or 0)


class Remembered:
    """Folders and files to be removed when this process is cut short. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may come while it is held
        self._folders: set[Path] = set()

    def add(self, folder: Path) -> None:
        """Remember it."""
        with self._lock:
            self._folders.add(folder.absolute())

    def drop(self, folder: Path) -> None:
        """Forget a folder; its owner has dealt with it."""
        with self._lock:
            self._folders.discard(folder.absolute())

    def remove_all(self) -> None:
        """Remove all of them, and a parent folder called `results` that this left empty."""
        with self._lock:
            folders, self._folders = sorted(self._folders), set()
        for folder in folders:
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                folder.unlink(missing_ok=True)
            if folder.parent.name == "results" and folder.parent.is_dir() and not any(folder.parent.iterdir()):
                folder.parent.rmdir()


REMEMBERED: Final = Remembered()


def claim(folder: Path) -> None:
    """Make a folder that belongs to this process, and remember it."""
    folder.mkdir(parents=True)
    REMEMBERED.add(folder)
    (folder / OWNER_FILE).write_text(json.dumps(asdict(this_process())) + "\n", encoding="utf-8")


def release(folder: Path) -> None:
    """Remove a folder of this process."""
    shutil.rmtree(folder, ignore_errors=True)
    REMEMBERED.drop(folder)


@contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """A folder `shatter-WHAT-…` among the machine's temporary ones, gone after the block."""
    folder = new_temporary(what)
    try:
        yield folder
    finally:
        release(folder)


def new_temporary(what: str) -> Path:
    """The same without a block: the caller ends it with `release`."""
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}{what}-{os.getpid()}-{os.urandom(4).hex()}"
    claim(folder)
    return folder


def abandoned(folder: Path) -> bool:
    """Whether a folder's owner is gone: its process, on this host, has ended; or it names none and is a day old.

    Links and folders of other users never count as abandoned.
    """
    try:
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
            return False
        stored = json.loads((folder / OWNER_FILE).read_text(encoding="utf-8"))
        owner = Owner(host=str(stored["host"]), pid=int(stored["pid"]), start=int(stored["start"]))
    except (OSError, ValueError, KeyError, TypeError):
        return _untouched(folder)
    if owner.host != socket.gethostname():
        return False
    found = process_start(owner.pid)
    return found is None or (owner.start != 0 and found != owner.start)


def _untouched(folder: Path) -> bool:
    try:
        changed = max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return False
    return time.time() - changed > _ABANDONED_S
