"""One mirror process: puts the parts together, starts and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, NoReturn

from harness.core.errors import MirrorError
from harness.wire.cluster import Cluster, TopicMeta
from harness.wire.frames import WireError
from mirrors.reference.server.answers import Answers
from mirrors.reference.server.control import Control
from mirrors.reference.server.design import ProducerIds
from mirrors.reference.server.divergence import Troubles
from mirrors.reference.server.failback import CUT, ENDED, agreed_offsets
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.isr_keeper import IsrKeeper
from mirrors.reference.server.leader_epochs import DUE, Bumping
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import Looking
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.reassignment import HandingOver
from mirrors.reference.server.registration import Registration
from mirrors.reference.server.reserving import reserve
from mirrors.reference.server.settings import Settings
from mirrors.reference.server.sharing import Sharing
from mirrors.reference.server.source import SourceLink
from mirrors.reference.server.stages import Stages
from mirrors.reference.server.state_store import StateStore
from mirrors.reference.server.states import PartitionState
from mirrors.reference.server.steps import CrashPoints, kill_process
from mirrors.reference.server.strays import Strays, create_coordinator_topics

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
        self.looking = Looking(self.hub)
        self.control = Control(self)
        self.stages = Stages(
            self.lifecycle, self.looking, guard=self.control.guard, last_sync=self.control.groups.sync_last
        )
        self.bumping = Bumping(self.hub, self.looking, self.stages.leading)
        self.troubles = Troubles(self.lifecycle, self.bumping)
        self.sharing = Sharing(self.lifecycle, self.looking, HandingOver(self.lifecycle, hold=self.stages.hold))
        self.registration = Registration(self.hub)
        self.isr = IsrKeeper(self.hub)
        self.strays = Strays(self.hub, self.looking)
        self.answers = Answers(self.hub)
        self.server = self.answers.server()
        self.mirrors: dict[str, MirrorConfig] = {}
        self._reserved: set[str] = set()  # mirrors whose producer ids are kept apart already
        self._tasks: list[asyncio.Task[Any]] = []
        self._refreshers: dict[str, asyncio.Task[Any]] = {}
        self.hub.save_source_epochs = self.lifecycle.save_source_epochs
        self.hub.poke = self.lifecycle.poked.set
        self.hub.out_of_range = self.troubles.out_of_range
        self.hub.diverged = self.troubles.diverged
        self.hub.epoch_due = DUE[self.hub.design.epoch_bump]
        self.hub.bump = lambda mirrored, epoch: self.bumping.raise_to(mirrored.led, epoch)

    async def start(self) -> None:
        """Come up: state, listeners, registration, then the loops. Raises MirrorError or WireError."""
        hub = self.hub
        await self._first_answer()
        self.lifecycle.records, self.mirrors = await self.store.load()
        self.lifecycle.resumed.update(self.lifecycle.records)
        for config in self.settings.mirrors:
            config.check()
            stored = self.mirrors.get(config.name)
            if stored is None:
                await self.store.put_mirror(config)
            elif stored.all_topics:
                config = replace(config, all_topics=True)
            self.mirrors[config.name] = config
        hub.expected_topics.update(key.topic for key in self.lifecycle.records)
        for config in self.mirrors.values():
            await self._connect(config)
        await create_coordinator_topics(hub.destination)
        await self.answers.pass_on(self.server)
        for listener in self.settings.listeners:
            await self.server.listen(listener.name, "0.0.0.0", listener.bind_port or listener.port)  # noqa: S104
        await self.registration.register()
        self._keep(self.registration.keep())
        if self.lifecycle.records:  # others may have taken over from this one while it waited to be a broker again
            self.lifecycle.renew((await self.store.load())[0])
            if not self.sharing.alone:
                hub.doubt()
        _LOG.info("registered as broker %d, epoch %d", hub.me, hub.broker_epoch)
        for part in (self.looking, self.isr, self.strays, self.sharing, self.lifecycle):
            self._keep(part.keep())
        for loop in self.control.loops():
            self._keep(loop)
        await self.control.start()

    async def run(self) -> None:
        """Start, and go on until cancelled."""
        await self.start()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Close everything. Partitions stay as they are: a real broker leads them once the session has timed out.

        A process that mirrors nothing takes its registration back.
        """
        await self.control.close()
        tasks = [*self._tasks, *self._refreshers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.lifecycle.close()
        for session in self.hub.sessions:
            await self.hub.end_session(session)
        await self.server.close()
        if self.hub.broker_epoch >= 0 and not self.lifecycle.leads_anything:
            with contextlib.suppress(WireError):  # a destination that is down forgets nothing now
                await self.registration.leave()
        self.hub.destination.close()
        for link in self.lifecycle.links.values():
            link.cluster.close()

    async def create_mirror(self, config: MirrorConfig) -> None:
        """A new mirror, without partitions yet. Raises MirrorError when there is one of this name."""
        if config.name in self.mirrors:
            raise MirrorError(f"mirror {config.name} exists already; delete it first")
        config.check()
        await self.store.put_mirror(config)
        self.mirrors[config.name] = config
        await self._connect(config)

    async def add_topic(self, mirror: str, topic: TopicMeta, *, only_new: bool = False) -> int:
        """Begin to mirror a topic of the source: created on the destination, or taken over and cut (see failback).

        Returns how many partitions this process begins with. only_new: what was stopped, or has failed, stays so.

        Raises: WireError, MirrorError or TimeoutError; asked again, it goes on.
        """
        hub, life = self.hub, self.lifecycle
        await life.until_sure()
        link = life.links[mirror]
        await self._keep_ids_apart(mirror)
        agreed = await self._agreed(link, topic)
        hub.expected_topics.add(topic.name)
        count = len(topic.partitions)
        await self.sharing.learn()
        owners = self.sharing.owners(mirror, topic.name, count)
        new = await self.stages.leading.create(topic.name, count, {}, owners)
        found = await self.looking.until(
            lambda meta: topic.name in meta.topics and len(meta.topics[topic.name].partitions) >= count,
            timeout_s=_START_S,
            what=f"topic {topic.name} on the destination",
        )
        cut = CUT[hub.design.failback_cut]
        records, outdated = [], []
        for index in sorted(topic.partitions):
            key = PartitionKey(mirror, topic.name, index)
            old = life.records.get(key)
            if owners[index] != hub.me or (old is not None and (only_new or old.state not in ENDED)):
                continue
            record = PartitionRecord(
                key=key,
                state=PartitionState.PREPARING,
                topic_id=found.topics[topic.name].topic_id,
                source_topic_id=topic.topic_id,
                source_cluster=link.cluster_id,
                owner=hub.me,
                cut=None if index in new else cut(agreed[index]),
                empty=index in new,
            )
            if old is not None and old.topic_id != record.topic_id:
                outdated.append(old)
            life.begin_anew(key, record.topic_id)
            records.append(record)
        await self.store.delete(outdated)  # of a topic that was deleted here: stored under another key
        await life.save(records)
        life.poked.set()
        return len(records)

    async def _keep_ids_apart(self, mirror: str) -> None:
        if self.hub.design.producer_ids is ProducerIds.RESERVED_BLOCK and mirror not in self._reserved:
            await reserve(self.hub, self.lifecycle.links[mirror].cluster)
            self._reserved.add(mirror)

    async def _agreed(self, link: SourceLink, topic: TopicMeta) -> dict[int, int]:
        """Where this topic's logs agree already: by our own records and by those kept on the source."""
        there = StateStore(link.cluster, partitions=0, key=self.hub.design.state_key)
        return agreed_offsets(
            topic.name,
            topic.partitions,
            own=self.lifecycle.records.values(),
            others=(await there.look()).values(),
            own_cluster=self.hub.cluster_id,
            source_cluster=link.cluster_id,
        )

    async def discover(self, mirror: str, *, at_most_age_s: float = 0.0) -> list[TopicMeta]:
        """The source's topics that the mirror wants; asked for now if what is known is older. Raises WireError."""
        config, link = self.mirrors[mirror], self.lifecycle.links[mirror]
        if link.age_s >= at_most_age_s:
            await link.refresh()
        return [topic for name, topic in sorted(link.topics.items()) if not topic.internal and config.wants(name)]

    async def _connect(self, config: MirrorConfig) -> None:
        link = SourceLink(config.name, Cluster(config.source))
        self.lifecycle.links[config.name] = link
        with contextlib.suppress(WireError):  # a source that is down now is asked again by the loop
            await link.refresh()
        self._refreshers[config.name] = asyncio.create_task(link.keep_fresh())

    def disconnect(self, mirror: str) -> None:
        """Forget a mirror's source."""
        self._refreshers.pop(mirror).cancel()
        self.lifecycle.links.pop(mirror).cluster.close()

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
