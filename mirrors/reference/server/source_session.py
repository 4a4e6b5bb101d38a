"""A fetch session (KIP-227) with one source broker. Pure.

After the first request only changes are sent, and only partitions with news are answered: a thousand idle partitions
cost as much as one. The broker answers from the offset that it was sent last, so a partition that brought records is
sent with its new offset in the next request. A broker that has no room for a session gets a full request each time.
Any error of a request as a whole restarts the session.
"""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from typing import Any, Final, cast

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from mirrors.reference.server.epochs import UNKNOWN
from mirrors.reference.server.follower_sessions import Cursor
from mirrors.reference.server.source import Mirrored

SourceKey = tuple[uuid.UUID, int]
"""(topic ID on the source, partition)"""

_PARTITION_BYTES: Final = 1024 * 1024
_FIRST_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
_NO_SESSION: Final = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a request: the offset, and the state it was sent in."""

    cursor: Cursor
    mirrored: Mirrored
    offset: int
    generation: int
    epoch: int
    leader_epoch: int

    @property
    def key(self) -> SourceKey:
        """Its key in the source's requests."""
        return self.mirrored.source_topic_id, self.mirrored.led.partition


class SourceSession:
    """See the module. asked: what is wanted now; sent: what the broker has in its session."""

    def __init__(self) -> None:
        self.asked: dict[SourceKey, Asked] = {}
        self.sent: dict[SourceKey, Asked] = {}
        self._changed: set[SourceKey] = set()
        self._number = _NO_SESSION
        self._epoch = _FIRST_EPOCH

    def ask(self, one: Asked) -> None:
        """This partition is wanted, from here on."""
        key = one.key
        self.asked[key] = one
        if self.sent.get(key) == one:
            self._changed.discard(key)
        else:
            self._changed.add(key)

    def drop(self, key: SourceKey) -> None:
        """This partition is not wanted now."""
        if self.asked.pop(key, None) is not None:
            self._changed.add(key)

    def request(self, *, isolation: int, max_bytes: int, wait_s: float) -> fetch.FetchRequest:
        """The next request; its partitions count as sent. `took` or `reset` has to follow."""
        if self._epoch == _FIRST_EPOCH:
            self.sent = {}
            self._changed = set(self.asked)
        changed = [self.asked[key] for key in self._changed if key in self.asked]
        forgotten = [key for key in self._changed if key not in self.asked and key in self.sent]
        self._changed.clear()
        for key in forgotten:
            del self.sent[key]
        self.sent.update((one.key, one) for one in changed)
        return fetch.FetchRequest(
            replica_id=BrokerId(-1),
            max_wait=i32Timedelta.parse(datetime.timedelta(seconds=wait_s)),
            min_bytes=i32(1),
            max_bytes=i32(max_bytes),
            isolation_level=i8(isolation),
            session_id=i32(self._number),
            session_epoch=i32(self._epoch),
            topics=tuple(
                fetch.FetchTopic(topic_id=topic_id, partitions=tuple(parts))
                for topic_id, parts in _by_topic(changed).items()
            ),
            forgotten_topics_data=tuple(
                fetch.ForgottenTopic(topic_id=topic_id, partitions=tuple(i32(p) for t, p in forgotten if t == topic_id))
                for topic_id in dict.fromkeys(topic_id for topic_id, _ in forgotten)
            ),
        )

    def took(self, answer: Any) -> bool:
        """Process the header of an answer. False: the broker refused the request as a whole."""
        if answer.error_code is not ErrorCode.none:
            self.reset()
            return False
        if self._epoch == _FIRST_EPOCH:
            self._number = int(answer.session_id)
        if self._number != _NO_SESSION:
            self._epoch = 1 if self._epoch >= _MAX_EPOCH else self._epoch + 1
        return True

    def reset(self) -> None:
        """The broker's session state is uncertain: restart it."""
        self._number, self._epoch = _NO_SESSION, _FIRST_EPOCH


def _by_topic(asked: list[Asked]) -> dict[uuid.UUID, list[fetch.FetchPartition]]:
    topics: dict[uuid.UUID, list[fetch.FetchPartition]] = {}
    for one in asked:
        mirrored = one.mirrored
        source = mirrored.led.shifts.source(one.offset)
        topics.setdefault(mirrored.source_topic_id, []).append(
            fetch.FetchPartition(  # kio's check of each number would be most of a request's cost
                partition=cast(i32, mirrored.led.partition),
                current_leader_epoch=cast(i32, one.epoch),
                fetch_offset=cast(i64, source),
                last_fetched_epoch=cast(
                    i32, mirrored.source_epochs.before(source) if mirrored.check_epochs else UNKNOWN
                ),
                partition_max_bytes=cast(i32, _PARTITION_BYTES),
            )
        )
    return topics
