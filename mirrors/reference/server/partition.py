"""One partition that this process leads without owning a log: followers, high watermark, epochs, cuts. Pure.

The log is the followers' logs. `log_end` is the end of what was ever given to them in this leadership; the high
watermark is the lowest fetch offset over the in-sync followers and goes back only where the log is truncated.
Nothing here waits, does I/O or reads a clock: the caller passes `now` (monotonic seconds).

It cannot know what a follower holds before its first fetch of this leadership. Until every in-sync follower has
fetched once, the high watermark of a leadership that no real leader handed over is unknown (None).
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from kio.schema.errors import ErrorCode

from mirrors.reference.server.epochs import UNKNOWN, EpochList, OffsetShifts

NO_OFFSET = -1
ALONE_S: Final = 30.0  # how long to wait for replicas, none of them in sync, to come back


@dataclass(slots=True)
class Follower:
    """One follower's last fetch. Times are monotonic seconds."""

    offset: int
    last_epoch: int
    broker_epoch: int
    log_start: int
    fetched_at: float
    caught_up_at: float
    end_at_fetch: int  # the log end at its last fetch
    diverges: bool = False  # it was told to truncate, and has not fetched since


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower has to truncate: `epoch` is its last fetched epoch, or an older one that both have."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The follower's fetch is refused with this error."""

    error: ErrorCode


class Feed(Enum):
    """Where the records for followers come from."""

    HELD = auto()  # nowhere: nothing is given
    SOURCE = auto()  # the source's leader


@dataclass(frozen=True, slots=True)
class Tail:
    """A batch of the mirror's own, after everything from the source."""

    base: int
    next_offset: int
    records: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class LedPartition:
    """See the module. `isr` has this process in it; `me` is its broker id."""

    me: int
    topic: str
    partition: int
    topic_id: uuid.UUID
    leader_epoch: int = UNKNOWN
    replicas: tuple[int, ...] = ()
    isr: frozenset[int] = frozenset()
    joining: frozenset[int] = frozenset()  # requested from the controller: they already count for the high watermark
    partition_epoch: int = 0  # the lowest value that the controller may have
    isr_at: float = -math.inf  # when the controller confirmed the in-sync set
    leading: bool = False
    led_since: float = 0.0
    own_epochs: bool = True  # batches are stamped with this cluster's leader epochs, not with the source's
    feed: Feed = Feed.HELD
    limit: int | None = None  # nothing at or after this offset is given from the source
    high_watermark: int | None = None
    log_start: int = 0
    log_end: int = 0
    epochs: EpochList = field(default_factory=EpochList)
    shifts: OffsetShifts = field(default_factory=OffsetShifts)
    tail: list[Tail] = field(default_factory=list)
    followers: dict[int, Follower] = field(default_factory=dict)
    cuts: dict[int, int] = field(default_factory=dict)  # follower → offset that its next fetch must be at or below
    cut_at: float = 0.0

    # --- leadership --------------------------------------------------------------------------------------------

    def lead(self, *, epoch: int, isr: Iterable[int], replicas: Iterable[int], now: float) -> bool:
        """Apply the controller's state of a partition that this process leads. Returns whether an epoch began."""
        self.replicas = tuple(replicas)
        began = epoch > self.leader_epoch or not self.leading
        if began:
            self.leading = True
            self.led_since = now
            self.leader_epoch = epoch
            self.followers.clear()
            self.joining = frozenset()
            if self.high_watermark is not None:
                self._begin_epoch(self.log_end)
        self.set_isr(isr)
        return began

    def set_isr(self, isr: Iterable[int]) -> None:
        """Apply the controller's in-sync set: followers that left it no longer hold back the high watermark."""
        self.isr = frozenset(isr)
        self.joining -= self.isr
        if self.leading:
            self._settle()

    def hand_over(self, *, log_end: int, high_watermark: int, log_start: int, epochs: EpochList) -> None:
        """Take over the previous leader's state of the log. Call it before `lead`."""
        self.log_end, self.high_watermark, self.log_start, self.epochs = log_end, high_watermark, log_start, epochs
        self.tail.clear()
        self.cuts.clear()

    def stand_down(self, epoch: int) -> None:
        """Another broker leads, or there is no leader."""
        self.leading = False
        self.leader_epoch = max(self.leader_epoch, epoch)
        self.followers.clear()
        self.joining = frozenset()

    # --- followers ---------------------------------------------------------------------------------------------

    @property
    def in_sync_followers(self) -> frozenset[int]:
        """Followers whose offsets determine the high watermark."""
        return (self.isr | self.joining) - {self.me}

    def fetch(
        self,
        follower: int,
        *,
        current_epoch: int,
        offset: int,
        last_epoch: int,
        log_start: int,
        broker_epoch: int,
        now: float,
    ) -> Diverging | Refused | None:
        """A follower fetches from an offset on. None: it may get what is there."""
        if not self.leading:
            return Refused(ErrorCode.not_leader_or_follower)
        if current_epoch != UNKNOWN and current_epoch != self.leader_epoch:
            stale = current_epoch < self.leader_epoch
            return Refused(ErrorCode.fenced_leader_epoch if stale else ErrorCode.unknown_leader_epoch)
        if follower not in self.replicas:
            return Refused(ErrorCode.unknown_topic_or_partition)
        known = self.followers.get(follower)
        caught_up = now if known is None or offset >= self.log_end else known.caught_up_at
        if known is not None and offset >= known.end_at_fetch:
            caught_up = max(caught_up, known.fetched_at)
        diverging = self._divergence(follower, offset, last_epoch)
        counted = min(offset, diverging.end) if diverging is not None else offset
        self.followers[follower] = Follower(
            counted,
            last_epoch,
            broker_epoch,
            log_start,
            now,
            caught_up,
            self.log_end,
            diverges=diverging is not None,
        )
        self._settle()
        self._settle_alone(now)
        if diverging is not None:
            return diverging
        if self.high_watermark is None:
            return Refused(ErrorCode.not_leader_or_follower)  # it retries in a moment
        if offset < self.log_start:
            return Refused(ErrorCode.offset_out_of_range)
        return None

    def truncate(self, offset: int, *, now: float) -> None:
        """Have every follower truncate to an offset; the high watermark goes back with it."""
        self.cut_at = now
        if self.high_watermark is not None:
            self.high_watermark = min(self.high_watermark, offset)
        self.log_end = min(self.log_end, offset)
        if self.limit is not None:
            self.limit = min(self.limit, offset)
        self.log_start = min(self.log_start, offset)
        self.tail = [batch for batch in self.tail if batch.next_offset <= offset]
        self.shifts.truncate(offset)
        self.epochs.truncate(offset)
        self._begin_epoch(offset)
        self.cuts = {follower: offset for follower in self.replicas if follower != self.me}
        for state in self.followers.values():
            state.offset = min(state.offset, offset)

    def still_at(self, follower: int, offset: int, fetched_at: float) -> None:
        """A follower fetched again without naming this partition: its offset is unchanged."""
        state = self.followers.get(follower)
        if state is not None:
            state.fetched_at = max(state.fetched_at, fetched_at)
            if offset >= self.log_end:
                state.caught_up_at = max(state.caught_up_at, fetched_at)
        if fetched_at > self.cut_at and offset <= self.cuts.get(follower, -1):
            del self.cuts[follower]

    @property
    def fully_replicated(self) -> bool:
        """Whether every in-sync follower is at the log end, with nothing left to truncate."""
        return (
            self.high_watermark == self.log_end
            and not any(follower in self.cuts for follower in self.in_sync_followers)
            and all(
                follower in self.followers and self.followers[follower].offset == self.log_end
                for follower in self.in_sync_followers
            )
        )

    @property
    def epoch_is_fresh(self) -> bool:
        """Whether nothing was given in this leader epoch yet: then all that is cut has an older epoch."""
        return self.epochs.entries[-1:] == ((self.leader_epoch, self.log_end),)

    def matches(self, follower: int) -> bool:
        """Whether everything that a follower holds belongs to this log: only then may consumers read from it.

        Records from before this leadership, or above a cut, stay there until it has truncated.
        """
        state = self.followers.get(follower)
        return state is not None and not state.diverges and follower not in self.cuts

    # --- records for followers ---------------------------------------------------------------------------------------

    def given(self, end: int) -> None:
        """Records up to here were given to a follower."""
        self.log_end = max(self.log_end, end)

    def append_tail(self, batches: Iterable[Tail]) -> None:
        """Batches of the mirror's own at the log end. Only while nothing comes from the source."""
        for batch in batches:
            if batch.base != self.log_end:
                raise ValueError(f"a batch at {batch.base} cannot follow the log end {self.log_end}")
            self.tail.append(batch)
            self.log_end = batch.next_offset

    def tail_from(self, offset: int) -> bytes:
        """The mirror's own batches from an offset on; nothing for a follower that has not reached them yet, which would
        append them after a gap."""
        if not self.tail or offset < self.tail[0].base:
            return b""
        return b"".join(batch.records for batch in self.tail if batch.base >= offset)

    def feed_log_start(self, offset: int) -> bool:
        """The source's log starts here. Followers learn of it as far as they have come; returns whether it moved."""
        moved = min(offset, self.log_end)
        if moved <= self.log_start:
            return False
        self.log_start = moved
        return True

    def jump(self, offset: int) -> None:
        """The source's log start passed the log end: followers restart at it."""
        self.log_start = max(self.log_start, offset)
        self.log_end = max(self.log_end, offset)

    @property
    def sent_log_start(self) -> int:
        """The log start to send to followers: they refuse one that is beyond their high watermark."""
        return min(self.log_start, self.high_watermark or 0)

    def _divergence(self, follower: int, offset: int, last_epoch: int) -> Diverging | None:
        cut = self.cuts.get(follower)
        if cut is not None:
            if offset > cut:
                return Diverging(last_epoch, cut)
            del self.cuts[follower]
        if not self.own_epochs or last_epoch == UNKNOWN or self.high_watermark is None:
            return None
        epoch, end = self.epochs.end_of(last_epoch)
        if epoch == UNKNOWN:
            return None
        if end is None and epoch < last_epoch:  # an epoch that never existed: the log ends with what is known
            return Diverging(epoch, self.log_end)
        if end is not None and (epoch < last_epoch or end < offset):
            return Diverging(epoch, end)
        return None

    def _begin_epoch(self, offset: int) -> None:
        if self.own_epochs:
            self.epochs.begin(self.leader_epoch, offset)

    def _settle(self) -> None:
        """Move the high watermark to what every in-sync follower has."""
        offsets = [state.offset for follower, state in self.followers.items() if follower in self.in_sync_followers]
        if not offsets or len(offsets) < len(self.in_sync_followers):
            return
        lowest = min(offsets)
        if self.high_watermark is None:
            self._begin_with(lowest, offsets)
            return
        self.log_end = max(self.log_end, lowest)
        self.high_watermark = max(self.high_watermark, lowest)

    def _settle_alone(self, now: float) -> None:
        """No real replica is in sync (they failed one after the other) and this process, which owns no log, was
        restarted: the longest of the real replicas is the log. Replicas that do not come back in time are not waited
        for.
        """
        if self.high_watermark is not None or self.in_sync_followers:
            return
        if len(self.followers) < len(self.replicas) - 1 and now - self.led_since < ALONE_S:
            return
        offsets = [state.offset for state in self.followers.values()]
        self._begin_with(max(offsets), offsets)

    def _begin_with(self, high_watermark: int, offsets: list[int]) -> None:
        """The followers' logs end at these offsets: this is what the log is now."""
        self.high_watermark = high_watermark
        self.log_end = max(offsets)
        self.log_start = min(state.log_start for state in self.followers.values())
        self._begin_epoch(self.log_end)
