"""Fetching from the source on behalf of one follower's session: one long poll per source broker, fetched ahead.

A poll asks for every partition of the session that the broker leads, from the end of what was fetched already, in a
fetch session of its own (see source_session): idle partitions cost nothing. Bytes held for a follower are bounded by
`budget`; beyond it no poll is sent until the follower has taken some. A poll's answer is stamped (see stamping) and put
at the cursors it was sent for. Only cursors that were marked for it are checked, and all of them now and then. After a
poll that brought little the next one waits a moment (see pace): many small answers would cost more than they bring.

Followers at the same offset share one fetch: what one follower's feeder (the *first*, see `Hub.first`) fetches from an
offset on, others with the same offset do not fetch, and get the same chunk. A feeder fetches for itself where its
follower is at another offset, where the first does not fetch, or cannot hold more.

Refusals of the source are handled elsewhere: `Hub.source_refused`, `Hub.source_diverged`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode

from harness.wire.frames import WireError
from mirrors.reference.server.follower_sessions import Cursor, Session, Sessions
from mirrors.reference.server.pace import poll_interval, rest
from mirrors.reference.server.partition import Feed, LedPartition
from mirrors.reference.server.source import Mirrored, SourceLink
from mirrors.reference.server.source_session import Asked, SourceKey, SourceSession
from mirrors.reference.server.stamping import Stamped, stamp

_LOG = logging.getLogger(__name__)

_POLL_S: Final = 0.5
_GRACE_S: Final = 4.0  # beyond the poll's own wait, before the connection counts as dead
_IDLE_S: Final = 0.1  # between checks for something to fetch while nothing wakes the feeder
_ALL_S: Final = 1.0  # at least, between checks of every cursor
_RETRY_S: Final = 0.2
_STALE: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.offset_not_available,
        ErrorCode.kafka_storage_error,
    }
)


class Forwarding(Protocol):
    """The part of the hub that a feeder uses; the hub has the partitions, the followers' sessions and their feeders."""

    clock: Callable[[], float]
    isolation: int
    sessions: Sessions

    def first(self) -> Feeder | None: ...  # noqa: D102
    def feeds(self, session: Session) -> bool: ...  # noqa: D102
    def recheck(self, led: LedPartition) -> None: ...  # noqa: D102
    def mirrored_of(self, led: LedPartition) -> Mirrored | None: ...  # noqa: D102
    def source_seen(self, mirrored: Mirrored, part: Any) -> None: ...  # noqa: D102
    def source_refused(self, mirrored: Mirrored, offset: int) -> None: ...  # noqa: D102
    def source_diverged(self, mirrored: Mirrored, epoch: int, end: int) -> None: ...  # noqa: D102
    def fetched(self, mirrored: Mirrored, size: int) -> None: ...  # noqa: D102
    async def persist_before_forwarding(  # noqa: D102
        self, brought: Sequence[tuple[Mirrored, Stamped]]
    ) -> frozenset[Mirrored]: ...


class Source:
    """One source broker, as one follower's feeder sees it."""

    def __init__(self, link: SourceLink, broker: int) -> None:
        self.link = link
        self.broker = broker
        self.session = SourceSession()
        self.poll: asyncio.Task[None] | None = None


class Feeder:
    """Keeps one follower's session supplied until it is cancelled."""

    def __init__(self, session: Session, hub: Forwarding, *, budget: int) -> None:
        self._session = session
        self._hub = hub
        self._budget = budget
        self._sources: dict[tuple[SourceLink, int], Source] = {}
        self._at: dict[Cursor, tuple[Source, SourceKey]] = {}  # where a cursor's partition is being fetched now
        self._later: list[Cursor] = []  # not to be fetched before some time
        self._all_at = -_ALL_S
        self._first: Feeder | None = None
        self._versions: dict[SourceLink, int] = {}

    async def run(self) -> None:
        """Poll every source broker that has something for this session."""
        try:
            while True:
                self._session.wants.clear()
                for cursor in self._cursors_to_recheck():
                    self._place(cursor)
                for source in self._sources.values():
                    if source.poll is None and source.session.asked and self._session.held < self._budget:
                        source.poll = asyncio.create_task(self._poll(source))
                try:
                    async with asyncio.timeout(_IDLE_S):
                        await self._session.wants.wait()
                except TimeoutError:
                    continue
        finally:
            for source in self._sources.values():
                if source.poll is not None:
                    source.poll.cancel()

    # --- what to ask for ---------------------------------------------------------------------------------------

    def _cursors_to_recheck(self) -> list[Cursor]:
        """The cursors whose fetch may have to change."""
        session, now = self._session, self._hub.clock()
        to_recheck, session.to_recheck = session.to_recheck, {}
        versions = {link: link.version for link in self._versions}
        first, self._first = self._first, self._hub.first()
        long_ago = now - self._all_at >= poll_interval(_ALL_S, len(session.cursors))
        if session.recheck_all or first is not self._first or long_ago or versions != self._versions:
            session.recheck_all, self._all_at, self._versions, self._later = False, now, versions, []
            return [*session.cursors.values(), *(c for c in self._at if session.cursors.get(c.key) is not c)]
        due = [cursor for cursor in self._later if cursor.not_before <= now]
        if due:
            self._later = [cursor for cursor in self._later if cursor.not_before > now]
        return [*to_recheck, *due]

    def _place(self, cursor: Cursor) -> None:
        """Fetch a cursor's partition from its leader at the cursor's offset; or not at all."""
        found = self._question(cursor)
        old = self._at.get(cursor)
        before = None if old is None else old[0].session.asked.get(old[1])
        if self._first is self and before is not None and (found is None or found[1].generation != before.generation):
            self._hub.recheck(before.mirrored.led)  # others got what this one fetched
        if old is not None and (found is None or found[0] is not old[0] or found[1].key != old[1]):
            old[0].session.drop(old[1])
            del self._at[cursor]
        if found is not None:
            source, asked = found
            source.session.ask(asked)
            self._at[cursor] = (source, asked.key)

    def _question(self, cursor: Cursor) -> tuple[Source, Asked] | None:
        led = cursor.partition
        if self._session.cursors.get(cursor.key) is not cursor or led is None or cursor.next_offset < 0:
            return None
        if not led.leading or led.feed is not Feed.SOURCE or led.high_watermark is None:
            return None
        if cursor.not_before > self._hub.clock():
            self._later.append(cursor)
            return None
        if led.limit is not None and cursor.next_offset >= led.limit:
            return None
        if cursor.next_offset > led.cuts.get(self._session.follower, cursor.next_offset):
            return None  # it has not truncated yet, and may be dead
        mirrored = self._hub.mirrored_of(led)
        if mirrored is None or mirrored.inquiry is not None:
            return None
        if self._first is not None and self._first is not self and self._first.brings(cursor):
            return None
        leader = mirrored.link.leader(led.topic, led.partition)
        if leader is None:
            return None
        source = self._source(mirrored.link, leader[0])
        return source, Asked(cursor, mirrored, cursor.next_offset, cursor.generation, leader[1], led.leader_epoch)

    def brings(self, other: Cursor) -> bool:
        """Whether this feeder is fetching what another follower wants next."""
        cursor = self._session.cursors.get(other.key)
        return (
            cursor is not None
            and cursor in self._at
            and cursor.partition is other.partition
            and cursor.next_offset == other.next_offset
            and self._session.held < self._budget
        )

    def _source(self, link: SourceLink, broker: int) -> Source:
        found = self._sources.get((link, broker))
        if found is None:
            found = self._sources[link, broker] = Source(link, broker)
            self._versions.setdefault(link, link.version)
        return found

    # --- asking ------------------------------------------------------------------------------------------------

    async def _poll(self, source: Source) -> None:
        link, broker, session = source.link, source.broker, source.session
        try:
            connection = await link.cluster.broker(broker, f"fetch-{self._session.session_id}")
            share = max(1, (self._budget - self._session.held) // len(self._sources))  # the answers of all polls fit
            request = session.request(isolation=self._hub.isolation, max_bytes=share, wait_s=_POLL_S)
            asked_at = self._hub.clock()
            answer = await connection.call(request, timeout_s=_POLL_S + _GRACE_S)
            size = await self._take(source, answer)
            await asyncio.sleep(rest(size, self._hub.clock() - asked_at))
        except WireError as error:
            session.reset()
            _LOG.info("mirror %s: fetch from broker %d: %s", link.mirror, broker, error)
            for one in session.asked.values():
                link.distrust(one.mirrored.led.topic, one.mirrored.led.partition)
            await asyncio.sleep(_RETRY_S)
        except Exception:
            session.reset()
            _LOG.exception("mirror %s: fetch from broker %d", link.mirror, broker)
            await asyncio.sleep(_RETRY_S)
        finally:
            source.poll = None
            self._session.wants.set()

    async def _take(self, source: Source, answer: Any) -> int:
        """Forwards the records of an answer; returns how many bytes they have."""
        refused = not source.session.took(answer)
        if refused:
            _LOG.info(
                "mirror %s: broker %d: the fetch session is restarted: %s",
                source.link.mirror,
                source.broker,
                answer.error_code,
            )
        brought: list[tuple[Asked, Stamped]] = []
        for topic in answer.responses:
            for part in topic.partitions:
                one = source.session.sent.get((topic.topic_id, int(part.partition_index)))
                # Sent before a cut: its error was handled already.
                if one is not None and one.cursor.generation == one.generation:
                    refused = self._take_partition(source.link, one, part, brought) or refused
                if one is not None:
                    self._session.recheck(one.cursor)
        await self._hand_on(brought)
        if refused:
            await asyncio.sleep(_RETRY_S)
        return sum(len(made.chunk.records) for _, made in brought)

    def _take_partition(self, link: SourceLink, one: Asked, part: Any, brought: list[tuple[Asked, Stamped]]) -> bool:
        """Adds its records to `brought`. Returns whether the source refused it: then the next poll waits a little."""
        led, mirrored = one.mirrored.led, one.mirrored
        error = part.error_code
        if error is ErrorCode.offset_out_of_range:
            self._hub.source_refused(mirrored, one.offset)
            return True
        if error is not ErrorCode.none:
            if error not in _STALE:
                _LOG.warning("mirror %s: %s at the source: %s", link.mirror, mirrored.name, error.name)
            link.distrust(led.topic, led.partition)
            return True
        if part.preferred_read_replica >= 0:
            link.prefer(led.topic, led.partition, int(part.preferred_read_replica))
            return False
        if part.diverging_epoch.epoch >= 0 or part.diverging_epoch.end_offset >= 0:
            epoch, end = int(part.diverging_epoch.epoch), int(part.diverging_epoch.end_offset)
            self._hub.source_diverged(mirrored, epoch, end)
            return True
        self._hub.source_seen(mirrored, part)
        if part.records and led.leader_epoch == one.leader_epoch and led.feed is Feed.SOURCE:
            last, records = mirrored.source_epochs.before(led.shifts.source(one.offset)), bytes(part.records)
            try:
                made = stamp(records, offset=one.offset, partition=led, policy=mirrored.stamp, last_epoch=last)
            except ValueError as error:  # the other partitions of this answer are good
                _LOG.error(
                    "mirror %s: %s: the source's records cannot be parsed: %s", link.mirror, mirrored.name, error
                )
                return True
            if made is not None:
                brought.append((one, made))
        return False

    async def _hand_on(self, brought: Sequence[tuple[Asked, Stamped]]) -> None:
        """Put records at the cursor that they were fetched for, and at others' that wait for the same."""
        may = await self._hub.persist_before_forwarding([(one.mirrored, made) for one, made in brought])
        for one, made in brought:
            led, cursor = one.mirrored.led, one.cursor
            if one.mirrored not in may or cursor.generation != one.generation or led.leader_epoch != one.leader_epoch:
                continue
            if led.feed is not Feed.SOURCE or (led.limit is not None and made.chunk.end > led.limit):
                continue  # it was held while its source epochs were being stored
            self._hub.fetched(one.mirrored, len(made.chunk.records))
            for other in self._hub.sessions.of(led):
                if other is cursor or self._rides(other):
                    other.put(made.chunk)

    def _rides(self, other: Cursor) -> bool:
        """Whether another follower's cursor may get what was fetched for this one's; `put` checks the offset."""
        session, led = other.session, other.partition
        return (
            led is not None
            and self._hub.feeds(session)
            and session.held < self._budget
            and other.not_before <= self._hub.clock()
            and other.next_offset <= led.cuts.get(session.follower, other.next_offset)
        )
