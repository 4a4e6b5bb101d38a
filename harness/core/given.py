"""Files that a user gives a test (a campaign, an external mirror's TOML): read whole, up to a size limit;
a bad one raises one clear sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from harness.core.bounds import MOST_DEEP, too_deep
from harness.core.errors import UsageError

MOST_BYTES: Final = 4 << 20
"""No file written by hand is this large."""


def read_given(path: str, *, what: str) -> str:
    """The text of a file. what: how an error message names it at its beginning.

    Raises: UsageError when it cannot be read, is not UTF-8, or has more than MOST_BYTES.
    """
    try:
        with Path(path).open("rb") as source:
            raw = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}; give a UTF-8 TOML file") from error
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{what} {path!r} cannot be read: {error}; give a UTF-8 TOML file") from error
    if len(raw) > MOST_BYTES:
        raise UsageError(f"{what} {path} has more than {MOST_BYTES:,} bytes; split it")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} {path} is not UTF-8 (byte 0x{raw[error.start]:02x} at {error.start}); save it as UTF-8"
        ) from error


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """A TOML document. Raises: UsageError when it is not TOML, or nested more than 50 deep."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{where} is nested too deep to be read; at most {MOST_DEEP} levels are") from None
    except ValueError as error:  # TOMLDecodeError, and an integer of more digits than Python reads
        raise UsageError(f"{where} is not valid TOML: {error}") from error
    if too_deep(document):
        raise UsageError(f"{where} is nested too deep to be read; at most {MOST_DEEP} levels are")
    return document
