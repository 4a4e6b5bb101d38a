"""Writes a file beside its place and renames it there: it appears whole, and only over a regular file or nothing.

What lies at the place is looked at before anything is written: a link, a device, a pipe or a folder is refused, so
that nothing outside is written through and no device node is replaced.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from harness.core.errors import StorageError
from harness.core.owners import REMEMBERED

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(path: Path) -> str | None:
    """What lies there, links not followed: `a device`, …; an empty text for a regular file, None for nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no regular file")


def refuse_target(path: Path) -> None:
    """Raise StorageError unless a regular file, or nothing, lies at `path`."""
    try:
        kind = kind_of(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    if kind:
        raise StorageError(f"{path} is {kind}, which is not written over; name a regular file, or remove it")


def refuse_folder(path: Path) -> None:
    """Raise StorageError unless a folder (not a link to one), or nothing, lies at `path`."""
    try:
        kind = kind_of(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    if kind not in (None, "a folder"):
        raise StorageError(
            f"{path} is {kind or 'a file'} where a folder of results belongs, and nothing is written through it; "
            "remove it, or copy the run elsewhere"
        )


@contextmanager
def written_beside(path: Path) -> Iterator[IO[str]]:
    """A text file (UTF-8; what is no character stands as `\\udXXX`) that takes the place when the block ends well.

    Raises: StorageError naming the file, when something else lies there or it cannot be written.
    """
    refuse_target(path)
    temporary = path.parent / f".shatter-{secrets.token_hex(6)}.tmp"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        REMEMBERED.add(temporary)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            refuse_target(path)
            temporary.rename(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        finally:
            REMEMBERED.drop(temporary)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_beside(path: Path, text: str) -> None:
    """See `written_beside`."""
    with written_beside(path) as sink:
        sink.write(text)


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write to {path}: {error.strerror or error}; free space there, make its folder writable, or name "
        "another place"
    )
