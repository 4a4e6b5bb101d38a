"""The loop that brings each partition's log to its recorded state.

It works on groups of partitions and may be interrupted anywhere: after a restart the records say what to do, the
destination's metadata and the followers' logs say how far it got. The named steps are in `steps`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.pace import poll_interval
from mirrors.reference.server.partition import Feed
from mirrors.reference.server.source import Mirrored
from mirrors.reference.server.states import PartitionState

_LOG = logging.getLogger(__name__)

_TICK_S: Final = 0.2  # at the latest, without a poke
_BACK_OFF_S: Final = 1.0

S = PartitionState
Work = Callable[[Sequence[Mirrored]], Awaitable[object]]

TO_BE_LED: Final = frozenset({S.PREPARING, S.MIRRORING, S.PAUSING, S.PAUSED, S.STOPPING})


class WorkLoop:
    """See the module. work: the work of each state."""

    def __init__(self, lifecycle: Lifecycle, work: Mapping[PartitionState, Work]) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._work = work
        self._not_before: dict[PartitionKey, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self._dispatch()
            except Exception:
                _LOG.exception("life cycle")
            self._life.poked.clear()
            try:
                async with asyncio.timeout(poll_interval(_TICK_S, len(self._hub.all_mirrored()))):
                    await self._life.poked.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Interrupt all work in progress."""
        tasks = [*self._tasks, *(m.inquiry for m in self._hub.all_mirrored() if m.inquiry is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _dispatch(self) -> None:
        if self._hub.maybe_fenced:
            return
        now = self._hub.clock()
        groups: dict[PartitionState, list[Mirrored]] = {}
        for key, record in self._life.records.items():
            if record.owner != self._hub.me or key in self._life.busy or self._not_before.get(key, 0.0) > now:
                continue
            if record.state not in TO_BE_LED or key.mirror not in self._life.links:
                continue
            mirrored = self._life.attach(record)
            if self._settled(record, mirrored):
                continue
            groups.setdefault(record.state, []).append(mirrored)
        for state, group in groups.items():
            self.start(self._work[state], group)

    @staticmethod
    def _settled(record: PartitionRecord, mirrored: Mirrored) -> bool:
        if record.state is S.MIRRORING:  # an inquiry holds the feed, and may give up leadership
            led = mirrored.led  # held for another process that did not take it, or fed
            return mirrored.inquiry is not None or (led.leading and led.feed is Feed.SOURCE and led.limit is None)
        if record.state is S.PAUSED:
            return mirrored.led.leading
        return False

    def start(self, work: Work, group: Sequence[Mirrored]) -> None:
        """Start work on these partitions; no other work on them starts meanwhile."""
        keys = [self._life.key_of(mirrored) for mirrored in group]
        self._life.busy.update(keys)

        async def working() -> None:
            try:
                await work(group)
            except (WireError, MirrorError, TimeoutError) as error:
                _LOG.warning("%d partitions (%s, …): %s", len(group), group[0].name, error)
                self._retry_later(keys)
            except Exception:
                _LOG.exception("%d partitions (%s, …)", len(group), group[0].name)
                self._retry_later(keys)
            finally:
                self._life.busy.difference_update(keys)
                self._life.poked.set()

        task = asyncio.create_task(working())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _retry_later(self, keys: Iterable[PartitionKey]) -> None:
        self._not_before.update(dict.fromkeys(keys, self._hub.clock() + _BACK_OFF_S))
        asyncio.get_running_loop().call_later(_BACK_OFF_S, self._life.poked.set)
