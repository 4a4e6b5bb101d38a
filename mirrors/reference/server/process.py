"""One mirror process: puts the parts together, starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.server.answers import Answers
from mirrors.reference.server.audit import AuditLog
from mirrors.reference.server.control import Control
from mirrors.reference.server.divergence import DivergenceHandler
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.hub import Hub, Reactions
from mirrors.reference.server.isr_keeper import IsrKeeper
from mirrors.reference.server.leader_epochs import DUE, LeaderEpochs
from mirrors.reference.server.leadership import Leadership
from mirrors.reference.server.led_logs import LedLogs
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.mirroring_api.service import MirroringApi
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.peers import Peers
from mirrors.reference.server.preparing import Preparing
from mirrors.reference.server.reassignment import Reassignment
from mirrors.reference.server.registration import Registration
from mirrors.reference.server.settings import Settings
from mirrors.reference.server.sharing import Sharing
from mirrors.reference.server.stages import Stages
from mirrors.reference.server.state_store import StateStore
from mirrors.reference.server.steps import CrashPoints, kill_process
from mirrors.reference.server.stopping import Stopping
from mirrors.reference.server.strays import Strays, create_coordinator_topics
from mirrors.reference.server.sync_groups import GroupSync
from mirrors.reference.server.work_loop import WorkLoop

_LOG = logging.getLogger(__name__)

_START_S: Final = 60.0


class MirrorProcess:
    """Everything of one process. Use `run`, or `start` and `stop`. kill: what a crash point does."""

    def __init__(self, settings: Settings, *, kill: Callable[[], NoReturn] = kill_process) -> None:
        self.settings = settings
        self.hub = Hub(settings)
        self.store = StateStore(
            self.hub.destination, partitions=settings.state_partitions, key=self.hub.design.state_key
        )
        self.crash = CrashPoints(settings.crash_at, kill=kill)
        self.lifecycle = Lifecycle(self.hub, self.store, self.crash)
        self.snapshots = MetadataSnapshots(self.hub)
        self.peers = Peers(self.lifecycle, self.snapshots)
        self.audit = AuditLog()
        self.guard = Guard(self.lifecycle, self.peers, self.audit)
        self.leadership = Leadership(self.hub, self.snapshots)
        self.mirrors = Mirrors(self.lifecycle, self.snapshots, self.peers, self.leadership)
        self.groups = GroupSync(self.mirrors, self.lifecycle, self.audit, self.guard)
        self.leader_epochs = LeaderEpochs(self.hub, self.snapshots, self.leadership)
        logs = LedLogs(self.lifecycle, self.leadership, self.leader_epochs)
        stages = Stages(
            self.lifecycle,
            logs,
            preparing=Preparing(self.lifecycle, logs, guard=self.guard),
            stopping=Stopping(self.lifecycle, self.snapshots, logs, guard=self.guard, last_sync=self.groups.sync_last),
        )
        self.work_loop = WorkLoop(self.lifecycle, stages.work)
        self.divergence = DivergenceHandler(self.lifecycle, self.leader_epochs)
        reassignment = Reassignment(self.lifecycle, self.work_loop, hold=stages.hold)
        self.sharing = Sharing(self.lifecycle, self.snapshots, self.peers, reassignment)
        self.control = Control(settings, self.mirrors, self.lifecycle, self.peers, self.guard, self.groups, self.audit)
        self.mirroring_api = MirroringApi(
            self.control.operations, self.mirrors, self.lifecycle, self.peers, self.snapshots
        )
        self.registration = Registration(self.hub)
        self.isr = IsrKeeper(self.hub)
        self.strays = Strays(self.hub, self.snapshots)
        self.answers = Answers(self.hub, self.snapshots.snapshot)
        self.server = self.answers.server()
        self._tasks: list[asyncio.Task[None]] = []
        self.hub.reactions = Reactions(
            poke=self.lifecycle.poked.set,
            save_source_epochs=self.lifecycle.save_source_epochs,
            out_of_range=self.divergence.out_of_range,
            diverged=self.divergence.diverged,
            epoch_due=DUE[self.hub.design.epoch_bump],
            raise_epoch=lambda mirrored, epoch: self.leader_epochs.raise_to(mirrored.led, epoch),
        )

    async def start(self) -> None:
        """Come up: state, listeners, registration, then the loops. Raises MirrorError or WireError."""
        hub = self.hub
        await self._first_answer()
        self.lifecycle.records, mirrors = await self.store.load()
        self.lifecycle.resumed.update(self.lifecycle.records)
        await self.mirrors.load(mirrors, self.settings.mirrors)
        hub.expected_topics.update(key.topic for key in self.lifecycle.records)
        await self.mirrors.connect_all()
        await create_coordinator_topics(hub.destination)
        await self.answers.pass_on(self.server)
        for listener in self.settings.listeners:
            await self.server.listen(listener.name, "0.0.0.0", listener.bind_port or listener.port)  # noqa: S104
        await self.registration.register()
        self._keep(self.registration.keep())
        if self.lifecycle.records:  # others may have taken over while this one waited to be registered again
            self.lifecycle.renew((await self.store.load())[0])
            if not self.peers.alone:
                hub.suspect_fencing()
        _LOG.info("registered as broker %d, epoch %d", hub.me, hub.broker_epoch)
        for part in (self.snapshots, self.isr, self.strays, self.sharing, self.work_loop):
            self._keep(part.keep())
        for loop in self.control.loops():
            self._keep(loop)
        if self.settings.mirroring_api:
            self.mirroring_api.serve(self.server)
        await self.control.start()

    async def run(self) -> None:
        """Start, and run until cancelled."""
        await self.start()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Close everything. Partitions stay as they are: a real broker leads them once the session has timed out.

        A process that mirrors nothing unregisters itself.
        """
        await self.control.close()
        self.mirroring_api.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.mirrors.close()
        await self.work_loop.close()
        for session in self.hub.sessions:
            await self.hub.end_session(session)
        await self.server.close()
        if self.hub.broker_epoch >= 0 and not self.lifecycle.leads_anything:
            with contextlib.suppress(WireError):  # a destination that is down cannot unregister it
                await self.registration.leave()
        self.hub.destination.close()
        for link in self.lifecycle.links.values():
            link.cluster.close()

    async def _first_answer(self) -> None:
        deadline = self.hub.clock() + _START_S
        while True:
            try:
                found = await self.hub.destination.metadata(())
                self.hub.cluster_id = found.cluster_id
                return
            except WireError as error:
                if self.hub.clock() > deadline:
                    raise MirrorError(f"the destination cannot be reached: {error}") from error
                await asyncio.sleep(0.5)

    def _keep(self, loop: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(loop))
