"""Suggestions for a misspelt word: the nearest known ones, or all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str:
    """A clause for the end of an error message."""
    names = sorted(known)
    if not names:
        return "it has none"
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    return "known: " + ", ".join(names)
