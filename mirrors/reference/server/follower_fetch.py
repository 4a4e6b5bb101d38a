"""Answers followers' Fetch requests: notes their offsets, waits until there is something to send, sends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from harness.wire.frames import WireError
from harness.wire.server import Request
from mirrors.reference.server.fetch_codec import encode_answer
from mirrors.reference.server.follower_sessions import Content, Cursor, CursorKey, Opened, Session, content
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.pace import rest

_LONGEST_WAIT_S: Final = 1.0
_REFRESH_S: Final = 0.5
_NOT_TAKEN_S: Final = 0.5


class FollowerFetch:
    """The handler. hub: this process. refresh: requests the destination's metadata now."""

    def __init__(self, hub: Hub, refresh: Callable[[], Awaitable[object]]) -> None:
        self._hub = hub
        self._refresh_metadata = refresh

    async def answer(self, request: Request, fetch: Any, follower: int, broker_epoch: int) -> Sequence[bytes]:
        """The body of the response."""
        hub = self._hub
        opened, ended = hub.sessions.open(fetch, follower=follower, client_id=request.client_id)
        for session in ended:
            await hub.end_session(session)
        if not isinstance(opened, Opened):
            return encode_answer((), session_id=0, error=opened)
        session = opened.session
        if opened.lasting and opened.full:  # another mirror process fetches without a session: it gets no records
            hub.start_session(session)
        session.fetched_at, session.broker_epoch = hub.clock(), broker_epoch
        if self._take_in(session, fetch):  # this follower knows of a newer leadership than this process does
            await self._refresh()
            self._take_in(session, fetch)
        session.wants.set()
        ready = await self._ready(session, min(_LONGEST_WAIT_S, fetch.max_wait.total_seconds()))
        parts = self._say(session, ready, int(fetch.max_bytes), full=opened.full)
        hub.counters.fetches_answered += 1
        session.answered_at = asyncio.get_running_loop().time()
        session.wants.set()
        return parts

    async def _refresh(self) -> None:
        """Refresh the metadata before refusing anybody: a refusal costs the follower a second."""
        with contextlib.suppress(WireError, TimeoutError):
            async with asyncio.timeout(_REFRESH_S):
                await self._refresh_metadata()

    def _take_in(self, session: Session, fetch: Any) -> bool:
        """Returns whether the fetch refers to something that this process does not know yet."""
        outdated = False
        session.forget(_keys(fetch.forgotten_topics_data, "partitions"))
        for topic in fetch.topics:
            for part in topic.partitions:
                key = (topic.topic_id, int(part.partition))
                cursor = session.place(key, self._hub.partitions.get(key))
                self._follower_at(cursor, part)
                led = cursor.partition
                outdated = (
                    outdated or led is None or int(part.current_leader_epoch) > led.leader_epoch or not led.leading
                )
        for cursor, end in session.sent:
            if cursor.offset != end:  # it did not append what it was given: no tight loop
                cursor.not_before = session.fetched_at + _NOT_TAKEN_S
                cursor.rewind()
        session.sent.clear()
        return outdated

    def _follower_at(self, cursor: Cursor, part: Any) -> None:
        hub, session, led = self._hub, cursor.session, cursor.partition
        if led is None:
            session.mark(cursor)
            return
        before = led.high_watermark
        verdict = led.fetch(
            session.follower,
            current_epoch=int(part.current_leader_epoch),
            offset=int(part.fetch_offset),
            last_epoch=int(part.last_fetched_epoch),
            log_start=int(part.log_start_offset),
            broker_epoch=session.broker_epoch,
            now=session.fetched_at,
        )
        cursor.move(int(part.fetch_offset))
        cursor.last_epoch = int(part.last_fetched_epoch)
        cursor.verdict = verdict
        session.mark(cursor)
        session.recheck(cursor)
        if led.high_watermark != before:
            hub.changed(led)
            if before is None:
                hub.recheck(led)

    async def _ready(self, session: Session, wait_s: float) -> list[Cursor]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        while True:
            session.event.clear()
            ready = session.take_ready()
            left = deadline - clock()
            if ready:
                left = min(left, rest(session.held, clock() - session.answered_at))
            if left <= 0:
                return ready
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await session.event.wait()

    @staticmethod
    def _say(session: Session, ready: Iterable[Cursor], most: int, *, full: bool) -> Sequence[bytes]:
        said: dict[CursorKey, Content] = {}
        left = most
        for cursor in ready:
            if left <= 0:
                break
            one = content(cursor, left)
            left -= len(one.records)
            said[cursor.key] = one
            session.said(cursor)
            if cursor.ready:
                session.mark(cursor)
        if full:
            for key, cursor in session.cursors.items():
                if key not in said:
                    said[key] = content(cursor, 0) if not cursor.chunks else Content(key)
        return encode_answer(said.values(), session_id=session.session_id)


def _keys(topics: Iterable[Any], name: str) -> Iterable[CursorKey]:
    return [(topic.topic_id, int(partition)) for topic in topics for partition in getattr(topic, name)]
