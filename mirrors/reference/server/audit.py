"""What the mirror changed on the destination, in order: the harness asks for it and stores it in the run's tables.

Kept in memory and bounded. A new `boot` means that the process was restarted and counts from 1 again.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

_KEPT: Final = 200_000


class EventKind(StrEnum):
    """What was changed."""

    STATE = "state"
    GROUP = "group"
    CONFIG = "config"
    ACL = "acl"
    TOPIC = "topic"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One change. seq: 1, 2, … since the process started. time_ms: wall clock, when the change had been acknowledged.

    fields, by kind:
    state: topic, partition, old (null for a new one), new, error, source_offset, destination_offset, owner
    group: group, group_kind (consumer, share), state, members, topic, partition, old, offset, source_offset,
           leader_epoch
    config: topic, name, old, value (null: the entry was removed)
    acl: change (create, delete), binding (one line, see harness.wire.acls)
    topic: topic, change (created, partitions, gone, recreated)
    """

    seq: int
    time_ms: int
    kind: EventKind
    mirror: str
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class AuditLog:
    """The last changes. One event loop."""

    def __init__(self, *, kept: int = _KEPT, clock: Callable[[], float] = time.time) -> None:
        self.boot = uuid.uuid4().hex
        self._events: deque[Event] = deque(maxlen=kept)
        self._clock = clock
        self._next = 1

    def add(self, kind: EventKind, mirror: str, **fields: Any) -> Event:
        """A change that has been acknowledged."""
        event = Event(seq=self._next, time_ms=int(self._clock() * 1000), kind=kind, mirror=mirror, fields=fields)
        self._next += 1
        self._events.append(event)
        return event

    def after(self, seq: int, *, limit: int) -> list[Event]:
        """Events after this one, the oldest first, at most `limit`."""
        if not self._events:
            return []
        first = self._events[0].seq
        begin = max(0, seq + 1 - first)
        return [self._events[i] for i in range(begin, min(begin + limit, len(self._events)))]
