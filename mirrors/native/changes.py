"""Changes of a mirror's state: requests are repeated while their refusal may pass, states awaited. All bounded."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from harness.core.errors import MirrorError, RequestRefusedError
from harness.topology.mirror import PartitionState
from harness.wire.frames import WireError
from mirrors.native.administration import Administration
from mirrors.native.requests import Refusal
from mirrors.native.rows import Row, shown

CHANGE_S: Final = 90.0  # until a change has ended, or was accepted
REFUSED_S: Final = 15.0  # a stop is refused for so long before that is told; whoever wants it asks again
AGAIN_S: Final = 1.0
_LOST_S: Final = 10.0  # an accepted stop that shows in no state is asked for again
_POLL_S: Final = 0.3

S = PartitionState
StartedTopics = Mapping[str, tuple[uuid.UUID, int]]
"""Topic → (id on the source, number of partitions)."""


def repeated(
    request: Callable[[], Sequence[Refusal]], what: str, *, limit_s: float = CHANGE_S, again_s: float = AGAIN_S
) -> None:
    """Ask until nothing is refused. what: begins the error's sentence.

    Raises: RequestRefusedError for a refusal that does not pass, or when the time is over; MirrorError without an
    answer by then.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            refused = request()
            why = "; ".join(map(str, refused))
        except WireError as error:
            refused, why = (), str(error)
        if not why:
            return
        if any(not one.may_pass for one in refused):
            raise RequestRefusedError(f"{what}: {why}")
        if time.monotonic() >= deadline:
            kind, words = (RequestRefusedError, "refused") if refused else (MirrorError, "unanswered")
            raise kind(f"{what}, {words} for {limit_s:g} s: {why}")
        time.sleep(again_s)


def due_at_start(topics: Collection[str], rows: Collection[Row]) -> tuple[list[str], list[str]]:
    """(topics to start, topics to resume): those that neither mirror nor prepare already."""
    states = {topic: {row.state for row in rows if row.topic == topic} for topic in topics}
    waiting = [topic for topic, found in states.items() if not found or not found <= {S.MIRRORING, S.PREPARING}]
    paused = [topic for topic in waiting if S.PAUSED in states[topic] and S.STOPPED not in states[topic]]
    return [topic for topic in waiting if topic not in paused], paused


def begin(administration: Administration, topics: StartedTopics) -> None:
    """Have these topics mirrored: started, or resumed. Returns when it is accepted. Raises: as `repeated`."""

    def ask() -> Sequence[Refusal]:
        to_start, to_resume = due_at_start(topics, administration.rows(topics))
        refused: Sequence[Refusal] = ()
        if to_start:
            refused = administration.start({topic: topics[topic] for topic in to_start})
        if to_resume:
            refused = (*refused, *administration.resume(to_resume))
        return refused

    repeated(ask, f"mirror {administration.mirror} cannot start {', '.join(topics)}")


def reached(
    administration: Administration, topics: Collection[str], done: Callable[[Row], bool], *, limit_s: float
) -> tuple[list[Row], bool]:
    """Wait until every partition of these topics is as wanted: (the last rows, whether it came to that)."""
    deadline = time.monotonic() + limit_s
    rows: list[Row] = []
    while True:
        try:
            rows = administration.rows(topics)
        except WireError:
            pass  # asked again until the time is over
        else:
            if {row.topic for row in rows} == set(topics) and all(done(row) for row in rows):
                return rows, True
        if time.monotonic() >= deadline:
            return rows, False
        time.sleep(_POLL_S)


class Stop:
    """One stop under way: when to ask, and what to say when it does not end. Times in seconds."""

    def __init__(self, mirror: str, *, limit_s: float = CHANGE_S, refused_s: float = REFUSED_S) -> None:
        self._mirror, self._limit_s, self._refused_s = mirror, limit_s, refused_s
        self._accepted_at: float | None = None
        self._asked_at: float | None = None
        self._refused = False
        self._why = ""

    def due(self, rows: Collection[Row], now: float) -> bool:
        """Whether to ask (again): not accepted yet, or accepted long ago and in no partition's state."""
        if self._accepted_at is None:
            return self._asked_at is None or now - self._asked_at >= AGAIN_S
        idle = all(row.state not in (S.STOPPING, S.STOPPED) for row in rows)
        return idle and now - self._accepted_at >= _LOST_S

    def asked(self, refused: Sequence[Refusal], now: float) -> None:
        """An answer came. Raises: RequestRefusedError for a refusal that does not pass."""
        self._asked_at, self._refused, self._why = now, bool(refused), "; ".join(map(str, refused))
        if not refused:
            self._accepted_at = now
        elif any(not one.may_pass for one in refused):
            raise RequestRefusedError(f"mirror {self._mirror} refuses to stop: {self._why}")

    def unanswered(self, why: str, now: float) -> None:
        """No answer came."""
        self._asked_at, self._why = now, why

    def limit_s(self) -> float:
        """How long it may take from its beginning, as it stands now."""
        return self._refused_s if self._refused and self._accepted_at is None else self._limit_s

    def over(self, rows: Collection[Row]) -> MirrorError:
        """The error when the time is over."""
        late = shown(row for row in rows if row.state is not S.STOPPED)
        if self._accepted_at is None and self._refused:
            text = f"mirror {self._mirror} refused to stop for {self._refused_s:g} s: {self._why}; {late}"
            return RequestRefusedError(text)
        if self._accepted_at is None:
            return MirrorError(f"mirror {self._mirror} did not answer for {self._limit_s:g} s: {self._why}; {late}")
        return MirrorError(f"mirror {self._mirror} accepted a stop and did not end within {self._limit_s:g} s: {late}")


def stopped(administration: Administration, topics: Sequence[str]) -> list[Row]:
    """Stop these topics and wait until every partition is STOPPED; returns their rows.

    Raises: RequestRefusedError when it is refused; MirrorError when it does not end in time.
    """
    stop, began = Stop(administration.mirror), time.monotonic()
    rows: list[Row] = []
    while True:
        try:
            rows = administration.rows(topics)
            whole = {row.topic for row in rows} == set(topics)
            if whole and all(row.state is S.STOPPED for row in rows):
                return rows
            if stop.due(rows, time.monotonic()):
                left = {row.topic for row in rows if row.state is not S.STOPPED} or set(topics)
                stop.asked(administration.stop(left), time.monotonic())
        except WireError as error:
            stop.unanswered(str(error), time.monotonic())
        if time.monotonic() - began >= stop.limit_s():
            raise stop.over(rows)
        time.sleep(_POLL_S)
