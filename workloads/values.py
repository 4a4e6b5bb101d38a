"""Names of clients, processes and transactions, and the values that records carry.

A value is `RUN/CLIENT:PROCESS:SEQ`, e.g. `1x9k2f/A-producer-0#1:p3.1:57`, or `…:57:xxxx` with padding: a tag of the
run, the client incarnation that sent it, the process on whose behalf, and the number of the record within its client
incarnation. It has no attempt number, so each retry sends the same value, and no comma, space or quote.
Clients are numbered over the whole run (`Names`), so a value is unique over clusters and scenario steps as well; the
tag makes another run's record (left-over data, a wrong cluster) recognisable.
"""

from __future__ import annotations

import re
import string
import threading
import zlib
from collections import Counter
from collections.abc import MutableMapping
from typing import Any, NamedTuple

_VALUE = re.compile(r"(?P<run>[0-9a-z]+)/(?P<client>[^:#]+#\d+):(?P<process>[^:]+):(?P<seq>\d+)(?::x*)?")
_PAD = "x"
_DIGITS = string.digits + string.ascii_lowercase


class ParsedValue(NamedTuple):
    """Who wrote a record. `run` is the run's tag, `cluster` the letter in the client's name."""

    run: str
    cluster: str
    client: str
    process: str
    seq: int


def run_tag(run_id: str) -> str:
    """A short tag of a run: the CRC-32 of its id in base 36."""
    number, tag = zlib.crc32(run_id.encode()), ""
    while number or not tag:
        number, digit = divmod(number, len(_DIGITS))
        tag = _DIGITS[digit] + tag
    return tag


def make_value(prefix: str, seq: int, size: int = 0) -> str:
    """The value of record `seq`; `prefix` is `RUN/CLIENT:PROCESS`. Padded to `size` bytes where that is longer."""
    value = f"{prefix}:{seq}"
    if len(value) + 1 < size:
        return f"{value}:{_PAD * (size - len(value) - 1)}"
    return value


def parse_value(value: str) -> ParsedValue | None:
    """The parts of a value that `make_value` made; None for other text."""
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    client = match["client"]
    return ParsedValue(match["run"], client.partition("-")[0], client, match["process"], int(match["seq"]))


def next_process(process: str) -> str:
    """The name that replaces a retired process: `p3` → `p3.1` → `p3.2`."""
    base, _, generation = process.partition(".")
    return f"{base}.{int(generation or 0) + 1}"


class Names:
    """Hands out names that are unique over a run. Thread-safe.

    Kept in the context's `extra`, so that a later start of the workload in the same run (e.g. after a failover)
    continues the numbers. Contexts of one run share it when they are made by `dataclasses.replace`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Counter[str] = Counter()

    @classmethod
    def of(cls, extra: MutableMapping[str, Any]) -> Names:
        """The run's one object, made at the first call."""
        names = extra.setdefault("append.names", cls())
        if not isinstance(names, cls):
            raise TypeError(f"context.extra['append.names'] is {names!r}, which the append workload did not put there")
        return names

    def process(self, kind: str) -> str:
        """A new process: `p` for producers, `c` for consumers, `f` for final readers. `p0`, `p1`, …"""
        return f"{kind}{self._take(kind)}"

    def client(self, role: str) -> str:
        """A new incarnation of a client: `A-producer-0#0`, then `A-producer-0#1`, …"""
        return f"{role}#{self._take(role)}"

    def _take(self, counter: str) -> int:
        with self._lock:
            number = self._next[counter]
            self._next[counter] = number + 1
            return number
