"""Detects Jepsen histories whose values are unique per key only.

Its generators (`elle.list-append`) count from 1 on every key; tables want values that are unique in the run. The
beginning of a history shows whether it is of that kind, so that it need not be read twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from harness.history.edn.reader import freeze

LOOK_AHEAD: Final = 10_000
"""Operations that are examined. Values that count per key repeat within the first dozens."""


def unique_per_key(operations: Iterable[Any]) -> bool:
    """Whether one value is sent to two keys."""
    keys: dict[Any, Any] = {}
    return any(keys.setdefault(value, key) != key for op in operations for key, value in _sent(op))


def _sent(op: Any) -> list[tuple[Any, Any]]:
    """(key, value) of each send of an operation; malformed ones are left to the importer."""
    steps = op.get(":value") if type(op) is dict else None
    found = []
    for step in steps if type(steps) is list else ():
        if type(step) is list and len(step) == 3 and step[0] == ":send":
            _, key, sent = step
            if type(sent) is list and len(sent) == 2 and op.get(":type") != ":invoke":
                sent = sent[1]
            if sent is not None:
                found.append((freeze(key), freeze(sent)))
    return found
