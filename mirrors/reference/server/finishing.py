"""What a stop does before it ends the log: it mirrors on until the source has decided its open transactions.

A log that ends between a transaction's records and its marker would have the destination abort what the source commits.
So a stop first asks the source's coordinators which transactions are open, waits until these have ended (it does not
wait for those that begin later: there may never be a moment without one), and mirrors up to the source's log end at
that time: every marker of a transaction that began before the stop is below it. Records of later transactions may be
there, too; the stop aborts them, and what the source commits of them is lag.

The time is bounded, and the stop does not wait for a source that does not answer: what it committed is lag, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from harness.wire.frames import WireError
from mirrors.reference.server.design import StopAt
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.reading import LATEST
from mirrors.reference.server.source import Mirrored, SourceLink
from mirrors.reference.server.source_transactions import Undecided, undecided

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_SILENT_S: Final = 2.0  # give up on a source that does not answer for so long
_STANDING_S: Final = 2.0  # and on one that sends no records for so long
_CATCH_UP_S: Final = 30.0


class Finishing:
    """See the module. feed: starts forwarding the source's records."""

    def __init__(self, lifecycle: Lifecycle, *, feed: Callable[[Sequence[Mirrored]], None]) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._feed = feed

    async def carry_on(self, group: Sequence[Mirrored]) -> None:
        """Mirror until everything that had begun on the sources is decided, or the time is up. Partitions are fed."""
        by_link: dict[SourceLink, list[Mirrored]] = defaultdict(list)
        for mirrored in group:
            by_link[mirrored.link].append(mirrored)
        self._feed(group)
        await asyncio.gather(*(self._finish(link, part) for link, part in by_link.items()))

    async def _finish(self, link: SourceLink, group: Sequence[Mirrored]) -> None:
        topics = {key.topic for key in self._life.records if key.mirror == link.mirror}
        left = await self._decided(link, topics)
        if left is None:
            _LOG.warning("mirror %s: the source does not answer; stopping at the current offset", link.mirror)
            return
        if left:
            names = sorted(one.transactional_id for one in left)
            _LOG.warning("mirror %s: %d transactions of the source stay open: %s", link.mirror, len(names), names[:3])
        ends = await self._asked(link, lambda: self._ends(link, group))
        if ends is not None:
            await self._reach(ends)

    async def _decided(self, link: SourceLink, topics: set[str]) -> frozenset[Undecided] | None:
        """Wait for the transactions that are open now; returns those that stay open, None without an answer."""
        deadline = self._hub.clock() + self._hub.settings.finish_s
        waited: frozenset[Undecided] | None = None
        while True:
            now = await self._asked(link, lambda: undecided(link.cluster, topics))
            if now is None:
                return waited
            waited = now if waited is None else waited & now
            if not waited or self._hub.clock() >= deadline:
                return waited
            await asyncio.sleep(_POLL_S)

    async def _asked(self, link: SourceLink, question: Callable[[], Awaitable[T]]) -> T | None:
        """Its answer; None when the source gives none in time."""
        deadline = self._hub.clock() + _SILENT_S
        while True:
            self._hub.raise_if_maybe_fenced()
            try:
                async with asyncio.timeout(max(0.1, deadline - self._hub.clock())):
                    return await question()
            except (WireError, TimeoutError) as error:
                _LOG.info("mirror %s: asking the source: %s", link.mirror, error or "no answer in time")
                if self._hub.clock() >= deadline:
                    return None
            await asyncio.sleep(_POLL_S)

    async def _ends(self, link: SourceLink, group: Sequence[Mirrored]) -> Mapping[Mirrored, int]:
        """The source's log ends at this mirror's isolation level, as destination offsets. Raises WireError."""
        by_leader: dict[int, list[tuple[Mirrored, int]]] = defaultdict(list)
        for mirrored in group:
            meta = link.topics.get(mirrored.led.topic)
            part = None if meta is None else meta.partitions.get(mirrored.led.partition)
            if part is None or part.leader is None:
                link.distrust(mirrored.led.topic, mirrored.led.partition)
                raise WireError(f"{mirrored.name} has no leader at the source")
            by_leader[part.leader].append((mirrored, part.leader_epoch))
        found: dict[Mirrored, int] = {}
        for broker, parts in by_leader.items():
            answer = await link.cluster.call_broker(broker, self._question(parts))
            by_name = {(m.led.topic, m.led.partition): m for m, _ in parts}
            for topic in answer.topics:
                for one in topic.partitions:
                    mirrored = by_name[str(topic.name), int(one.partition_index)]
                    if one.error_code is not ErrorCode.none:
                        link.distrust(mirrored.led.topic, mirrored.led.partition)
                        raise WireError(f"the end of {mirrored.name} at the source: {one.error_code.name}")
                    found[mirrored] = mirrored.led.shifts.destination(int(one.offset))
        return found

    def _question(self, parts: Iterable[tuple[Mirrored, int]]) -> list_offsets.ListOffsetsRequest:
        topics: dict[str, list[list_offsets.ListOffsetsPartition]] = defaultdict(list)
        for mirrored, epoch in parts:
            topics[mirrored.led.topic].append(
                list_offsets.ListOffsetsPartition(
                    partition_index=i32(mirrored.led.partition),
                    current_leader_epoch=i32(epoch),
                    timestamp=i64(LATEST),
                )
            )
        return list_offsets.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(self._hub.isolation),
            topics=tuple(
                list_offsets.ListOffsetsTopic(name=TopicName(name), partitions=tuple(of)) for name, of in topics.items()
            ),
        )

    async def _reach(self, ends: Mapping[Mirrored, int]) -> None:
        """Wait until followers were given everything below these ends, as long as records arrive."""
        deadline = self._hub.clock() + _CATCH_UP_S
        moved_at, before = self._hub.clock(), -1
        while True:
            self._hub.raise_if_maybe_fenced()
            short = [m for m, end in ends.items() if m.led.log_end < end]
            total = sum(m.led.log_end for m in ends)
            now = self._hub.clock()
            if total != before:
                before, moved_at = total, now
            if not short or now >= deadline or now - moved_at >= _STANDING_S:
                if short:
                    _LOG.warning("%d partitions (%s, …) did not reach the source's end", len(short), short[0].name)
                return
            await asyncio.sleep(_POLL_S)


async def _as_it_stands(_: Finishing, __: Sequence[Mirrored]) -> None:
    """The log ends with what was mirrored so far."""


STOP_AT: Final[Mapping[StopAt, Callable[[Finishing, Sequence[Mirrored]], Awaitable[None]]]] = {
    StopAt.DECIDED: Finishing.carry_on,
    StopAt.CARRIED: _as_it_stands,
}
"""Runs before a stop holds the log."""
