"""State that all parts of one process share: the partitions it leads, followers' sessions, the source links."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from harness.wire.cluster import Cluster
from mirrors.reference.server.design import Design, FetchLimit
from mirrors.reference.server.fencing import CHANGES, FencedError
from mirrors.reference.server.follower_sessions import CursorKey, Session, Sessions
from mirrors.reference.server.partition import Diverging, LedPartition, Refused
from mirrors.reference.server.settings import Settings
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.source_fetcher import Feeder
from mirrors.reference.server.stamping import Stamped

_LOG = logging.getLogger(__name__)
_ALIVE_S: Final = 2.0  # a follower asks at least twice a second
_HEARTBEAT_LATE_S: Final = 3.0  # shorter than any session that a controller gives a broker
_ISOLATION: Final = {FetchLimit.HIGH_WATERMARK: 0, FetchLimit.LAST_STABLE: 1}


@dataclass(frozen=True, kw_only=True)
class Reactions:
    """Callbacks of other parts of the process; they do nothing where a part is missing, as in tests.

    poke: the life cycle may have something to do. save_source_epochs: store where the source's epochs began; returns
    whether that succeeded. out_of_range: the source has no such offset. diverged: the source log diverged after an
    epoch's end. epoch_due: whether the leader epoch is to be raised before a batch of this epoch is forwarded;
    raise_epoch: raise it.
    """

    poke: Callable[[], None] = lambda: None
    save_source_epochs: Callable[[Sequence[Mirrored]], Awaitable[bool]] | None = None
    out_of_range: Callable[[Mirrored, int], Coroutine[Any, Any, None]] | None = None
    diverged: Callable[[Mirrored, int, int], Coroutine[Any, Any, None]] | None = None
    epoch_due: Callable[[Mirrored, int], bool] = lambda _, __: False
    raise_epoch: Callable[[Mirrored, int], Coroutine[Any, Any, None]] | None = None


@dataclass
class Counters:
    """For the metrics."""

    bytes_fetched: int = 0
    fetches_answered: int = 0
    bytes_by_partition: dict[str, int] = field(default_factory=dict)


class Hub:
    """See the module. One event loop; nothing here blocks."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.design: Design = settings.design
        self.me = settings.broker_id
        self.broker_epoch = -1
        self.clock = clock
        self.destination = Cluster(
            settings.destination.bootstrap,
            controllers=settings.destination.controllers,
            before_sending=self._before_sending,
        )
        self.cluster_id = ""
        self.partitions: dict[CursorKey, LedPartition] = {}
        self.by_name: dict[tuple[str, int], LedPartition] = {}
        self.expected_topics: set[str] = set()  # topics of mirrors: never treated as strays
        self.sessions = Sessions()
        self.isolation = _ISOLATION[self.design.fetch_limit]
        self.refresh_now = asyncio.Event()  # refresh the destination's metadata at once
        self.reactions = Reactions()
        self.replicated_now = asyncio.Event()  # something waits until partitions are fully replicated: check soon
        self.counters = Counters()
        self.records_are_stale = False  # another process may have taken over since this one read its records
        self.suspicions = 0  # how often that happened
        self.suspected_at = -math.inf
        self._beat_at: float | None = None
        self._mirrored: dict[LedPartition, Mirrored] = {}
        self._unsaved: set[Mirrored] = set()  # the state topic does not have their source epochs yet
        self._feeders: dict[Session, tuple[Feeder, asyncio.Task[None]]] = {}

    # --- registration at the controller ----------------------------------------------------------------------------

    def on_heartbeat_ack(self, sent_at: float) -> None:
        """The controller accepted a heartbeat. If it was late, this process may have been fenced meanwhile."""
        if self._beat_at is not None and sent_at - self._beat_at > _HEARTBEAT_LATE_S:
            self.suspect_fencing()
        self._beat_at = sent_at

    def suspect_fencing(self) -> None:
        """The controller may have fenced this process."""
        self.records_are_stale, self.suspected_at = True, self.clock()
        self.suspicions += 1

    @property
    def maybe_fenced(self) -> bool:
        """Whether another process may have taken over from this one: change nothing until records are read again."""
        return self.records_are_stale or (
            self._beat_at is not None and self.clock() - self._beat_at > _HEARTBEAT_LATE_S
        )

    @property
    def why_maybe_fenced(self) -> str:
        """A sentence for errors."""
        return (
            f"process {self.me} had no word from the controller for a while, so another one may have taken over its "
            "partitions: it reads its records again first"
        )

    def raise_if_maybe_fenced(self) -> None:
        """Raises FencedError when this process may be fenced: long operations stop, and the records are read again."""
        if self.maybe_fenced:
            raise FencedError(self.why_maybe_fenced)

    def _before_sending(self, api_key: int) -> None:
        """Raises FencedError for a request that changes the destination when this process may be fenced."""
        if api_key in CHANGES:
            self.raise_if_maybe_fenced()

    # --- partitions --------------------------------------------------------------------------------------------

    def add(self, led: LedPartition, mirrored: Mirrored | None = None) -> None:
        """Answer followers of this partition from now on."""
        self.partitions[led.topic_id, led.partition] = led
        self.by_name[led.topic, led.partition] = led
        if mirrored is not None:
            self._mirrored[led] = mirrored

    def remove(self, led: LedPartition) -> None:
        """This process does not have it any more."""
        self.partitions.pop((led.topic_id, led.partition), None)
        if self.by_name.get((led.topic, led.partition)) is led:
            del self.by_name[led.topic, led.partition]
        self.forget_source(led)

    def forget_source(self, led: LedPartition) -> None:
        """It has no source any more."""
        gone = self._mirrored.pop(led, None)
        if gone is not None:
            self._unsaved.discard(gone)

    def mirrored_of(self, led: LedPartition) -> Mirrored | None:
        """Where a partition's records come from; None when it is not mirrored."""
        return self._mirrored.get(led)

    def all_mirrored(self) -> Sequence[Mirrored]:
        """Every mirrored partition that this process has."""
        return list(self._mirrored.values())

    def changed(self, led: LedPartition) -> None:
        """There may be news of this partition for followers."""
        for cursor in self.sessions.of(led):
            cursor.session.mark(cursor)

    def recheck(self, led: LedPartition) -> None:
        """What to ask the source for this partition may have changed."""
        for cursor in self.sessions.of(led):
            cursor.session.recheck(cursor)

    def rewind(self, led: LedPartition) -> None:
        """Drop what was fetched ahead for this partition."""
        for cursor in self.sessions.of(led):
            cursor.rewind()

    def truncate(self, led: LedPartition, offset: int) -> None:
        """Truncate every follower to an offset, and wake them."""
        led.truncate(offset, now=self.clock())
        self.rewind(led)
        self.notify_followers(led)

    def notify_followers(self, led: LedPartition) -> None:
        """Answer followers that are after a cut, or before the log start, at once."""
        for cursor in self.sessions.of(led):
            cut = led.cuts.get(cursor.session.follower)
            if cut is not None and cursor.offset > cut:
                cursor.verdict = Diverging(cursor.last_epoch, cut)
            elif cursor.offset < led.log_start:
                cursor.verdict = Refused(ErrorCode.offset_out_of_range)
            cursor.session.mark(cursor)
        self.replicated_now.set()

    def wake(self) -> None:
        """Followers may be fed again, or from elsewhere."""
        for session in self.sessions:
            session.recheck_all = True
            session.wants.set()

    # --- followers' sessions -----------------------------------------------------------------------------------

    def start_session(self, session: Session) -> None:
        """Start feeding a follower."""
        feeder = Feeder(session, self, budget=self.settings.budget)
        self._feeders[session] = (feeder, asyncio.create_task(feeder.run()))

    async def end_session(self, session: Session) -> None:
        """Stop feeding it."""
        if session not in self._feeders:
            return
        _, task = self._feeders.pop(session)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for link in {mirrored.link for mirrored in self.all_mirrored()}:
            link.cluster.pool.drop(f"fetch-{session.session_id}")

    def feeds(self, session: Session) -> bool:
        """Whether this session has a feeder."""
        return session in self._feeders

    def first(self) -> Feeder | None:
        """The feeder of the oldest session whose follower is alive: it fetches for others that want the same."""
        now = self.clock()
        alive = [s for s in self._feeders if now - s.fetched_at < _ALIVE_S]
        return self._feeders[min(alive, key=lambda s: s.session_id)][0] if alive else None

    @property
    def bytes_held(self) -> int:
        """Fetched ahead, over all followers."""
        return sum(session.held for session in self.sessions)

    # --- answers of the source ----------------------------------------------------------------------------------

    def source_seen(self, mirrored: Mirrored, part: Any) -> None:
        """The source's leader answered for a partition."""
        view = mirrored.view
        view.high_watermark, view.last_stable = int(part.high_watermark), int(part.last_stable_offset)
        start = int(part.log_start_offset)
        if start > view.log_start:
            view.log_start = start
            led = mirrored.led
            if led.feed_log_start(led.shifts.destination(start)):
                self.changed(led)

    def fetched(self, mirrored: Mirrored, size: int) -> None:
        """Bytes came in for a follower."""
        self.counters.bytes_fetched += size
        name = mirrored.name
        self.counters.bytes_by_partition[name] = self.counters.bytes_by_partition.get(name, 0) + size

    async def persist_before_forwarding(self, brought: Sequence[tuple[Mirrored, Stamped]]) -> frozenset[Mirrored]:
        """Persist source epochs before records that need them are forwarded. Returns what may be forwarded now."""
        allowed, unsaved, react = set(), [], self.reactions
        for mirrored, stamped in brought:
            epoch = stamped.highest_epoch
            if not mirrored.stamp.rewrite_epochs and react.raise_epoch and react.epoch_due(mirrored, epoch):
                self._investigate(mirrored, react.raise_epoch(mirrored, epoch))
                continue
            news = [mirrored.source_epochs.begin(epoch, start) for epoch, start in stamped.new_source_epochs]
            if any(news) or stamped.shifted or mirrored in self._unsaved:
                unsaved.append(mirrored)
            else:
                allowed.add(mirrored)
        self._unsaved.update(unsaved)
        if unsaved and (react.save_source_epochs is None or await react.save_source_epochs(unsaved)):
            self._unsaved.difference_update(unsaved)
            allowed.update(unsaved)
        return frozenset(allowed)

    def source_refused(self, mirrored: Mirrored, offset: int) -> None:
        """The source has no such offset: find out why, one inquiry at a time."""
        if self.reactions.out_of_range is not None:
            self._investigate(mirrored, self.reactions.out_of_range(mirrored, offset))

    def source_diverged(self, mirrored: Mirrored, epoch: int, end: int) -> None:
        """The source log diverged after this epoch's end."""
        if self.reactions.diverged is not None:
            self._investigate(mirrored, self.reactions.diverged(mirrored, epoch, end))

    def _investigate(self, mirrored: Mirrored, work: Coroutine[Any, Any, None]) -> None:
        if mirrored.inquiry is not None:
            work.close()
            return

        async def investigating() -> None:
            try:
                await work
            except Exception:
                _LOG.exception("%s: the source refused an offset, and finding the reason failed", mirrored.name)
                await asyncio.sleep(1)
            finally:
                mirrored.inquiry = None
                self.wake()
                self.reactions.poke()

        mirrored.inquiry = asyncio.create_task(investigating())
