"""Typed access to the fields of one line of a JSONL history, with errors that say what was expected."""

from __future__ import annotations

from typing import Any, Final

Line = dict[str, Any]
CLUSTERS: Final = ("A", "B", "C")

INT16, INT32, INT64 = 1 << 15, 1 << 31, 1 << 63


class BadLineError(Exception):
    """A line that is not of the format; the text completes the sentence "FILE, line N: …"."""


def text(line: Line, name: str) -> str | None:
    """A string field, None when it is absent or null."""
    value = line.get(name)
    if value is None:
        return None
    if type(value) is not str:
        raise wrong(line, name, "a string")
    return valid_text(value, name)


def need_text(line: Line, name: str) -> str:
    """A string field that must be there."""
    value = text(line, name)
    if value is None:
        raise missing(line, name, "a string")
    return value


def check_cluster(line: Line, name: str = "cluster") -> None:
    """Raise BadLineError unless a field names a cluster, or is absent or null: no checker would compare another with
    its source."""
    if line.get(name) not in (None, *CLUSTERS):
        raise wrong(line, name, "A (source), B (destination) or C (end of a chain)")


def whole(line: Line, name: str, limit: int = INT64) -> int | None:
    """An integer field, None when it is absent or null. `limit`: half the range of its type."""
    value = line.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise wrong(line, name, "an integer")
    if not -limit <= value < limit:
        raise wrong(line, name, f"an integer of {limit.bit_length()} bits")
    return value


def need_whole(line: Line, name: str, limit: int = INT64) -> int:
    """An integer field that must be there."""
    value = whole(line, name, limit)
    if value is None:
        raise missing(line, name, "an integer")
    return value


def flag(line: Line, name: str) -> bool | None:
    """A true/false field (0 and 1, and a count of retries, are understood), None when absent or null."""
    value = line.get(name)
    if value is None:
        return None
    if type(value) is bool:
        return value
    if type(value) is int:
        return value > 0
    raise wrong(line, name, "true or false")


def operation(line: Line) -> str | int | None:
    """The name of the operation that a line belongs to, in field `op`: the same on its invoke and its completions."""
    value = line.get("op")
    if value is None or type(value) is str or type(value) is int:
        return value
    raise wrong(line, "op", "a string or an integer")


def scalar(value: Any, name: str) -> str | None:
    """A record's value or key as text: strings as they are, numbers as JSON writes them."""
    if value is None:
        return None
    if type(value) is str:
        return value if value.isascii() else valid_text(value, name)
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, float):
        return str(value)
    raise BadLineError(f"expected {name} to be a string, a number or null, found {show(value)}")


def rows(line: Line, name: str) -> list[Any]:
    """A list field; an absent or null one is an empty list."""
    value = line.get(name)
    if value is None:
        return []
    if type(value) is not list:
        raise wrong(line, name, "a list")
    return value


def valid_text(value: str, name: str) -> str:
    """The same text, refused when it holds half a surrogate pair."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadLineError(f"expected {name} to be valid Unicode, found {value!a}") from None
    return value


def wrong(line: Line, name: str, expected: str) -> BadLineError:
    """The error for a field of the wrong type."""
    return BadLineError(f'expected field "{name}" of f "{line.get("f")}" to be {expected}, found {show(line[name])}')


def missing(line: Line, name: str, expected: str) -> BadLineError:
    """The error for a field that must be there."""
    return BadLineError(f'expected f "{line.get("f")}" to have a field "{name}" ({expected}), found none')


def show(value: Any) -> str:
    """A short quotation of a wrong value."""
    shown = ascii(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
