"""Reads a JSON document of a run's folder, whatever program wrote it: bounded, and it never hangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from harness.core.bounds import MOST_DEEP, too_deep
from harness.core.errors import HistoryError

MOST_BYTES: Final = 64 << 20


def read_json(path: Path, *, mend: str) -> dict[str, Any]:
    """The object that the file holds. mend: how to fix a file that is not JSON.

    Raises: FileNotFoundError; HistoryError for a file that is not regular, cannot be read, is larger than MOST_BYTES,
    is not UTF-8, is not JSON, holds no object, or is nested more than 50 deep.
    """
    try:
        if path.exists() and not path.is_file():
            raise HistoryError(f"{path} is not a regular file; put one there")
        with path.open("rb") as source:
            raw = source.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}; make it readable") from error
    if len(raw) > MOST_BYTES:
        raise HistoryError(f"{path} has more than {MOST_BYTES >> 20} MiB; {mend}")
    try:
        document = json.loads(raw.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise HistoryError(f"{path} is torn or not JSON (line {error.lineno}: {error.msg}); {mend}") from None
    except UnicodeDecodeError as error:
        raise HistoryError(f"{path} is not UTF-8 (byte {error.start}); {mend}") from None
    except RecursionError:
        raise HistoryError(f"{path} is nested more than {MOST_DEEP} deep; {mend}") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise HistoryError(f"{path} cannot be read ({error}); {mend}") from None
    if not isinstance(document, dict):
        raise HistoryError(f"{path} must hold a JSON object, not {type(document).__name__}; {mend}")
    if too_deep(document):
        raise HistoryError(f"{path} is nested more than {MOST_DEEP} deep; {mend}")
    return document
