"""A process is paused at every named step for longer than its session, while another one takes over its partitions.

`python -m tests.cluster.step_pauses OUT.md [STEP … | missing]`: as step_runs, but the process that reaches the step is
not killed. Its event loop is blocked there, as under SIGSTOP, until its successor has stopped the mirroring and clients
write to the destination; then it continues with its next action. It writes the table docs/pauses.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from harness.clusters.pair import RunningTopology
from mirrors.reference.server.model import PartitionKey
from mirrors.reference.server.sharing import owner
from mirrors.reference.server.states import PartitionState as S
from mirrors.reference.server.steps import CrashPoints
from tests.cluster import step_runs
from tests.cluster.reference_run import Mirror, running, until
from tests.cluster.step_runs import LEGS, NEW, Story, read, write

FIRST, SECOND = 100, 101
TAKEN_OVER_S, LEARNED_S, PAUSED_AT_MOST_S = 40.0, 30.0, 240.0

T = TypeVar("T")


class PausePoints(CrashPoints):
    """Blocks the thread, once, when a named step is reached. paused: called then; go_on: ends it."""

    def __init__(self, paused: Any, go_on: threading.Event) -> None:
        super().__init__()
        self._paused, self._go_on = paused, go_on

    def reached(self, step: str) -> None:
        if step != self.at:
            return
        self.at = ""
        self._paused()
        self._go_on.wait(PAUSED_AT_MOST_S)


class PausedMirror(Mirror):
    """A process with its own thread and event loop, so that all of it stops while it is paused."""

    def __init__(self, pair: RunningTopology, source: str, destination: str, step: str, **more: Any) -> None:
        super().__init__(pair, source, destination, broker_id=FIRST, **more)
        self.go_on = threading.Event()
        here = asyncio.get_running_loop()
        points = PausePoints(lambda: here.call_soon_threadsafe(self.killed.set), self.go_on)
        points.at = step
        self.process.crash = self.process.lifecycle.crash = points
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="paused mirror", daemon=True)

    async def there(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the process's own loop. Cancelling the caller does not cancel it there."""
        return await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop)))

    async def begin(self, topic: str) -> None:
        await self.there(super().begin(topic))

    async def ask(self, state: S) -> None:
        await self.there(super().ask(state))

    @asynccontextmanager
    async def started(self) -> AsyncIterator[PausedMirror]:
        """Runs until the end of the block."""
        self._thread.start()
        try:
            await self.there(self.process.start())
            yield self
        finally:
            self.go_on.set()
            await self.there(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, 20)
            self._loop.close()

    async def _end(self) -> None:
        await self.process.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class PauseStory(Story):
    """A failover and a failback in which one process of two is paused at one step."""

    _first: PausedMirror
    _second: Mirror

    def _new_topic(self) -> str:
        """A topic whose partition is assigned to the first process."""
        mirror = "".join(LEGS[self._leg])
        while True:
            topic = super()._new_topic()
            if owner(PartitionKey(mirror, topic, 0), (FIRST, SECOND)) == FIRST:
                return topic

    async def _start(self, stack: AsyncExitStack, leg: str, step: str) -> Mirror:
        if not step:
            return await super()._start(stack, leg, step)
        first = PausedMirror(self._pair, *LEGS[leg], step, **self._settings)
        self._first = await stack.enter_async_context(first.started())
        self._second = await stack.enter_async_context(
            running(self._pair, *LEGS[leg], broker_id=SECOND, **self._settings)
        )
        for mirror in (self._first, self._second):
            live = mirror.process.peers.live
            await until(lambda live=live: live() == {FIRST, SECOND}, LEARNED_S, lambda live=live: f"both: {live()}")
        return self._first

    async def _next(self, stack: AsyncExitStack, mirror: Mirror) -> Mirror:
        assert mirror is self._first
        self._second.keys = [PartitionKey(mirror.name, self._topic, 0)]
        await until(self._taken_over, TAKEN_OVER_S, lambda: f"the other process to take over {self._topic}")
        return self._second

    def _taken_over(self) -> bool:
        record = self._second.process.lifecycle.records.get(self._second.keys[0])
        return record is not None and record.owner == SECOND

    async def _stopped(self, leg: str) -> None:
        """The first process continues while clients write to the destination: it must not change anything."""
        if leg != self._leg:
            return
        destination = self._pair.clusters[LEGS[leg][1]]
        before = await asyncio.to_thread(write, destination.bootstrap, self._topic, NEW, "before")
        self._first.go_on.set()
        key, life = self._second.keys[0], self._first.process.lifecycle
        await until(
            lambda: (
                not life.hub.maybe_fenced
                and (record := life.records.get(key)) is not None
                and (record.owner, record.state, life.mirrored(key)) == (SECOND, S.STOPPED, None)
            ),
            LEARNED_S,
            lambda: f"the paused process to learn what became of {key}: {life.records.get(key)}",
        )
        await asyncio.sleep(2)  # now it does what it was about to do
        after = await asyncio.to_thread(write, destination.bootstrap, self._topic, NEW, "after")
        stored, _ = await self._second.process.store.load()
        assert (stored[key].owner, stored[key].state) == (SECOND, S.STOPPED), f"stored is {stored[key]}"
        placed = destination.partitions(self._topic)
        assert all(max(part.replicas) < FIRST for part in placed), f"led by a mirror again: {placed}"
        values = await asyncio.to_thread(read, destination.bootstrap, self._topic)
        gone = {o: v for told in (before, after) for o, v in told.acknowledged.items() if values.get(o) != v}
        assert not gone, f"{len(gone)} writes after the stop are gone: {dict(list(gone.items())[:3])}"


HEAD: Final = """# Pauses at every step

<!-- Written by `python -m tests.cluster.step_pauses docs/pauses.md` on real clusters; do not edit. -->

Two processes of the reference mirror (`strict`) share a destination. The one that owns the partition is paused once at
each named step for longer than its session, in a failover (A→B) or in the failback after it (B→A), while a client
writes to the source; the other one takes over the partition and stops it, and clients write to the destination. Then
the first one continues with its next action. *held*: everything that docs/crash-points.md says, and the paused process
changed nothing: it has released its record and its partition, the stored record is its successor's, real brokers lead,
and every write that the destination acknowledged after the stop is readable. *seconds*: from the pause until the
successor had brought the partition to the requested state; most of it is the timeout of the session.

| leg | step | outcome | seconds |
|---|---|---|---|
"""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clusters are taken down
    sys.exit(step_runs.main(Path(sys.argv[1]), sys.argv[2:], kind=PauseStory, head=HEAD))
