"""What each follower already knows and what is ready for it: fetch sessions (KIP-227) of followers.

A follower's session holds a cursor per partition. Answering a fetch visits only cursors that have something to send,
and the follower's requests name only partitions that changed: idle partitions cost nothing.
Nothing here waits or does I/O; `Session.event` wakes a pending fetch.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from mirrors.reference.server.partition import NO_OFFSET, Diverging, LedPartition, Refused

CursorKey = tuple[uuid.UUID, int]

_FIRST_EPOCH: Final = 0
_SESSIONLESS_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records as they are to be sent, from an offset to the offset after them."""

    offset: int
    end: int
    records: bytes


@dataclass(slots=True, eq=False)
class Cursor:
    """One partition in one follower's session.

    offset: the offset of the follower's last fetch. chunks: what follows from there, fetched ahead.
    """

    key: CursorKey
    partition: LedPartition | None
    session: Session
    offset: int = NO_OFFSET
    last_epoch: int = -1
    chunks: deque[Chunk] = field(default_factory=deque)
    position: int = NO_OFFSET  # after what was given last: the expected offset of the follower's next fetch
    not_before: float = 0.0  # when the source may be asked again, after the follower did not append what it was given
    generation: int = 0  # answers to fetches that were sent before a rewind have an older one
    verdict: Diverging | Refused | None = None
    sent_high_watermark: int = -2
    sent_log_start: int = -2

    @property
    def next_offset(self) -> int:
        """Where the source is to be asked next."""
        return self.chunks[-1].end if self.chunks else self.position

    def rewind(self) -> None:
        """Go back to where the follower is; whatever was fetched ahead is dropped."""
        self.session.held -= sum(len(chunk.records) for chunk in self.chunks)
        self.chunks.clear()
        self.position = self.offset
        self.generation += 1
        self.session.recheck(self)

    def move(self, offset: int) -> None:
        """The follower fetches from here on."""
        self.offset = offset
        if self.position != offset:
            self.rewind()

    def put(self, chunk: Chunk) -> None:
        """Records for the follower. Records that do not continue what is held are dropped."""
        if chunk.offset != self.next_offset:
            return
        self.chunks.append(chunk)
        self.session.held += len(chunk.records)
        self.session.mark(self)
        self.session.recheck(self)

    def take(self, most: int) -> Chunk | None:
        """The next chunks, joined: at least one chunk, otherwise at most `most` bytes."""
        if not self.chunks or self.position != self.offset:
            return None
        taken = [self.chunks.popleft()]
        size = len(taken[0].records)
        while self.chunks and size + len(self.chunks[0].records) <= most:
            size += len(self.chunks[0].records)
            taken.append(self.chunks.popleft())
        self.session.held -= size
        self.position = taken[-1].end
        records = taken[0].records if len(taken) == 1 else b"".join(chunk.records for chunk in taken)
        return Chunk(taken[0].offset, taken[-1].end, records)

    @property
    def ready(self) -> bool:
        """Whether there is something to send to the follower now."""
        if self.verdict is not None or self.partition is None:
            return True
        if self.chunks and self.position == self.offset:
            return True
        if self.partition.tail and self.partition.tail_from(self.offset):
            return True
        hw = self.partition.high_watermark
        return hw is not None and (
            hw != self.sent_high_watermark or self.partition.sent_log_start != self.sent_log_start
        )


class Session:
    """One follower's fetcher."""

    def __init__(self, session_id: int, follower: int) -> None:
        self.session_id = session_id
        self.follower = follower
        self.epoch = 1
        self.broker_epoch = -1
        self.fetched_at = self.answered_at = 0.0
        self.held = 0
        self.cursors: dict[CursorKey, Cursor] = {}
        self.sent: list[tuple[Cursor, int]] = []  # given in the last answer, and where it ended
        self.event = asyncio.Event()  # something is ready for the follower
        self.wants = asyncio.Event()  # there is something to ask the source for
        self.to_recheck: dict[Cursor, None] = {}  # what to ask the source for these cursors may have changed
        self.recheck_all = True  # … for all cursors
        self._marked: dict[Cursor, None] = {}

    def mark(self, cursor: Cursor) -> None:
        """This cursor may have something to send."""
        self._marked[cursor] = None
        self.event.set()

    def recheck(self, cursor: Cursor) -> None:
        """What to ask the source for this cursor may have changed."""
        self.to_recheck[cursor] = None
        self.wants.set()

    def take_ready(self) -> list[Cursor]:
        """Cursors with something to send, each once; the others are forgotten until they are marked again."""
        found = [cursor for cursor in self._marked if cursor.ready]
        self._marked = dict.fromkeys(found)
        return found

    def said(self, cursor: Cursor) -> None:
        """Its answer goes out now."""
        self._marked.pop(cursor, None)

    def place(self, key: CursorKey, partition: LedPartition | None) -> Cursor:
        """The cursor of a partition; made when it is new."""
        cursor = self.cursors.get(key)
        if cursor is None or cursor.partition is not partition:
            if cursor is not None:
                cursor.rewind()
            cursor = self.cursors[key] = Cursor(key, partition, self)
            self.recheck(cursor)
        return cursor

    def forget(self, keys: Iterable[CursorKey]) -> None:
        """Partitions that the follower does not fetch any more."""
        for key in keys:
            cursor = self.cursors.pop(key, None)
            if cursor is not None:
                cursor.rewind()
                self._marked.pop(cursor, None)

    def next_epoch(self) -> None:
        """An answer of this session goes out."""
        self.epoch = 1 if self.epoch >= _MAX_EPOCH else self.epoch + 1


@dataclass(slots=True)
class Opened:
    """The session of one fetch. full: every partition has to be in the answer. lasting: later fetches continue it."""

    session: Session
    full: bool
    lasting: bool = True


class Sessions:
    """All followers' sessions. One per follower and client id, since each of its fetcher threads has its own."""

    def __init__(self) -> None:
        self._ids: Iterator[int] = itertools.count(1)
        self._by_id: dict[int, Session] = {}
        self._by_owner: dict[tuple[int, str], Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))

    def open(self, fetch: Any, *, follower: int, client_id: str) -> tuple[Opened | ErrorCode, list[Session]]:
        """The session that a fetch belongs to, or the error to answer; and sessions that ended with it."""
        ended: list[Session] = []
        epoch, number = int(fetch.session_epoch), int(fetch.session_id)
        if epoch in (_FIRST_EPOCH, _SESSIONLESS_EPOCH):
            old = self._by_owner.pop((follower, client_id), None)
            if old is not None:
                self._by_id.pop(old.session_id, None)
                ended.append(old)
            session = Session(next(self._ids), follower)
            self._by_id[session.session_id] = session
            self._by_owner[follower, client_id] = session
            return Opened(session, full=True, lasting=epoch == _FIRST_EPOCH), ended
        found = self._by_id.get(number)
        if found is None or found.follower != follower:
            return ErrorCode.fetch_session_id_not_found, ended
        if epoch != found.epoch:
            return ErrorCode.invalid_fetch_session_epoch, ended
        found.next_epoch()
        return Opened(found, full=False), ended

    def of(self, partition: LedPartition) -> Iterator[Cursor]:
        """Every follower's cursor of a partition."""
        for session in self._by_id.values():
            cursor = session.cursors.get((partition.topic_id, partition.partition))
            if cursor is not None and cursor.partition is partition:
                yield cursor


@dataclass(slots=True)
class Content:
    """One partition's part of an answer."""

    key: CursorKey
    error: ErrorCode = ErrorCode.none
    diverging: Diverging | None = None
    records: bytes = b""
    high_watermark: int = -1
    log_start: int = -1


def content(cursor: Cursor, most: int) -> Content:
    """One partition's part of the answer now, with at most about this many bytes; the cursor advances past it."""
    partition, verdict = cursor.partition, cursor.verdict
    cursor.verdict = None
    if partition is None:
        return Content(cursor.key, error=ErrorCode.unknown_topic_id)
    if isinstance(verdict, Refused):
        return Content(cursor.key, error=verdict.error)
    said = Content(cursor.key, high_watermark=partition.high_watermark or 0, log_start=partition.sent_log_start)
    if isinstance(verdict, Diverging):  # the follower truncates, and ignores the rest of the response
        said.diverging = verdict
        return said
    cursor.sent_high_watermark, cursor.sent_log_start = said.high_watermark, said.log_start
    chunk = cursor.take(most)
    if chunk is not None:
        said.records = chunk.records
        partition.given(chunk.end)
        cursor.session.sent.append((cursor, chunk.end))
    elif partition.tail:
        said.records = partition.tail_from(cursor.offset)
    return said
