"""Which followers belong in the ISR, and the search for the partition epoch that the controller expects. Pure.

A follower leaves when it has not been at the log end for `lag_s`, but the last real replica never leaves: this process
owns no log, so with an ISR of it alone no election would be possible. A follower joins when it has everything below
the high watermark.

No client API reports a partition's epoch. AlterPartition answers INVALID_UPDATE_VERSION to one that is too low and
NOT_CONTROLLER to one that is too high: a search in growing steps, then by bisection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from mirrors.reference.server.partition import LedPartition

_ALIVE_S: Final = 2.0  # a follower asks at least twice a second


def wanted_isr(partition: LedPartition, *, now: float, lag_s: float) -> frozenset[int]:
    """The in-sync set that the partition should have, this process included."""
    if not partition.leading or partition.high_watermark is None:
        return partition.isr
    if _as_it_is(partition, now, lag_s):
        return partition.isr
    followers = partition.isr - {partition.me}
    staying = {f for f in followers if not _lags(partition, f, now, lag_s)}
    if followers and not staying:
        staying = {max(followers, key=lambda f: _offset(partition, f))}
    return frozenset({partition.me} | staying | _joining(partition, now))


def differs(partition: LedPartition, wanted: frozenset[int]) -> bool:
    """Whether to ask the controller for this set.

    After a request without an answer the controller may have adopted the set, and its members hold back the high
    watermark: then the wanted set is requested again, even if it is the same.
    """
    return wanted != partition.isr or not partition.joining <= wanted


def _as_it_is(partition: LedPartition, now: float, lag_s: float) -> bool:
    """Whether every follower is in the set and keeps up: nearly always true, and cheap to check."""
    isr, followers = partition.isr, partition.followers
    return len(followers) == len(isr) - 1 and all(
        follower in isr and now - state.caught_up_at <= lag_s for follower, state in followers.items()
    )


def _lags(partition: LedPartition, follower: int, now: float, lag_s: float) -> bool:
    state = partition.followers.get(follower)
    seen = partition.led_since if state is None else max(state.caught_up_at, partition.led_since)
    return now - seen > lag_s


def _joining(partition: LedPartition, now: float) -> set[int]:
    hw = partition.high_watermark or 0
    return {
        follower
        for follower, state in partition.followers.items()
        if follower in partition.replicas
        and follower not in partition.isr
        and follower not in partition.cuts
        and not state.diverges
        and state.broker_epoch >= 0
        and now - state.fetched_at <= _ALIVE_S
        and state.offset >= hw
        and state.offset >= partition.log_start
    }


def _offset(partition: LedPartition, follower: int) -> int:
    state = partition.followers.get(follower)
    return -1 if state is None else state.offset


@dataclass(slots=True)
class EpochSearch:
    """Finds a partition epoch. low: the lowest possible one; `guess` is what to try now."""

    low: int = 0
    high: int | None = None
    step: int = 1
    guess: int = 0

    def start(self, low: int) -> None:
        """Begin at an epoch that is known to have been right once."""
        self.low, self.high, self.step, self.guess = low, None, 1, low

    def refused(self, error: ErrorCode) -> bool:
        """Note a refusal. Returns whether there is another epoch to try."""
        if error is ErrorCode.invalid_update_version:
            self.low = self.guess + 1
        elif error is ErrorCode.not_controller:
            self.high = self.guess - 1
        else:
            return False
        if self.high is None:
            self.guess = self.low if self.step == 1 else self.low + self.step
            self.step *= 2
            return True
        if self.low > self.high:
            self.start(0)
            return False
        self.guess = (self.low + self.high) // 2
        return True
