"""Atomic writes: a temporary file next to the target is renamed over it; only a regular file is ever replaced.

The target is checked before anything is written: a link, a device, a pipe or a folder is refused, so that nothing is
written through a link and no device node is replaced.
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
    """The kind of file at `path`, links not followed: `a device`, …; "" for a regular file, None for nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def refuse_target(path: Path) -> None:
    """Raise StorageError unless `path` is a regular file or does not exist."""
    try:
        kind = kind_of(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    if kind:
        raise StorageError(f"{path} is {kind}, which is not overwritten; name a regular file, or remove it")


def refuse_folder(path: Path) -> None:
    """Raise StorageError unless `path` is a folder (not a link to one) or does not exist."""
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
    """A text file (UTF-8; lone surrogates are written as `\\udXXX`) that replaces `path` when the block succeeds.

    Raises: StorageError naming the file, when `path` is something else or cannot be written.
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
