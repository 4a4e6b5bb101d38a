"""Documents from outside: a limit on their nesting, and their values shortened for messages."""

from __future__ import annotations

import reprlib
from typing import Any, Final

MOST_DEEP: Final = 50
"""Levels of nesting that a JSON or TOML document of a test or a run may have."""


def too_deep(document: Any, *, most: int = MOST_DEEP) -> bool:
    """Whether lists and dicts are nested more than `most` deep in each other."""
    level: list[Any] = [document]
    for _ in range(most + 1):
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return False
    return True


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def shown(value: object) -> str:
    """A value for use in a message: shortened where it is long or deep."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 80
    return short.repr(value)
