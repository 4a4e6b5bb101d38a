"""The state of a pending send, and how it ends. Pure: no client, no clock.

The rule, record by record and then for the operation:

- A record is *acknowledged* when its delivery report has no error. Its offset is then known, unless the broker
  answered that it had the record already (then the offset stays null).
- An operation is `ok` when every record was acknowledged, `fail` when every record definitely failed, else `info`.
- A completion carries each record's offset where one was acknowledged, whatever its type. Kafka acknowledges records,
  not operations, so checkers may treat a `send` record with an offset as acknowledged also in an `info` completion.
  (Not so in a `txn`: there only `ok` acknowledges.) A record without an offset in an `info` completion may have
  happened or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.history.ops import Action, OpRecord, OpType
from workloads.clients.error_table import Classified

ACKED_UNKNOWN_OFFSET: Final = -1
STOPPED: Final = "stopped"

_SEND: Final = Action.SEND.value
_REST: Final = (None,) * (len(OpRecord._fields) - 6)
_new: Final = tuple.__new__

Fate = int | Classified | None
"""Of one record: its offset (or ACKED_UNKNOWN_OFFSET), the meaning of its error, or None while pending."""


@dataclass(slots=True)
class Send:
    """One pending operation. `records` as invoked; `started_ns` on the run's clock."""

    index: int
    process: str
    records: Sequence[OpRecord]
    started_ns: int
    fates: list[Fate]
    left: int
    error_text: str | None = None
    done: bool = False


def new_send(index: int, process: str, records: Sequence[OpRecord], started_ns: int) -> Send:
    """A send without any results yet."""
    return Send(index, process, records, started_ns, [None] * len(records), len(records))


def offset_fate(offset: int | None) -> int:
    """The fate of an acknowledged record; `offset` as the client reports it, negative when unknown."""
    return ACKED_UNKNOWN_OFFSET if offset is None or offset < 0 else offset


def with_offsets(records: Sequence[OpRecord], fates: Sequence[Fate]) -> list[OpRecord]:
    """The records of a completion: those of the invocation with the offsets that were acknowledged."""
    return [
        # OpRecord(…) without its Python-level constructor: saves a microsecond per acknowledged record
        _new(OpRecord, (_SEND, r[1], r[2], fate if fate.__class__ is int and fate >= 0 else None, r[4], r[5], *_REST))
        for r, fate in zip(records, fates, strict=True)
    ]


def decide(fates: Sequence[Fate]) -> tuple[OpType, str | None]:
    """Type and error name of the completion of an operation with these fates of its records."""
    acked = failed = 0
    first_fail: str | None = None
    first_info: str | None = None
    for fate in fates:
        if fate is None:
            first_info = first_info or STOPPED
        elif isinstance(fate, int):
            acked += 1
        elif fate.type is OpType.FAIL:
            failed += 1
            first_fail = first_fail or fate.name
        else:
            first_info = first_info or fate.name
    if acked == len(fates):
        return OpType.OK, None
    if failed == len(fates):
        return OpType.FAIL, first_fail
    return OpType.INFO, first_info or first_fail
