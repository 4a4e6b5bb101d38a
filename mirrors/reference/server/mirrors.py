"""The mirrors of one process: their configurations, the links to their sources, and the topics they mirror."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harness.core.errors import MirrorError
from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from harness.wire.metadata import TopicMeta
from mirrors.reference.server.design import ProducerIds
from mirrors.reference.server.failback import CUT, agreed_offsets
from mirrors.reference.server.leadership import Leadership
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.peers import Peers
from mirrors.reference.server.reserving import reserve
from mirrors.reference.server.source import SourceLink
from mirrors.reference.server.state_store import StateStore
from mirrors.reference.server.states import ENDED, PartitionState

_START_S: Final = 60.0


class Mirrors:
    """See the module. configs: mirror → its configuration."""

    def __init__(
        self, lifecycle: Lifecycle, snapshots: MetadataSnapshots, peers: Peers, leadership: Leadership
    ) -> None:
        self._life = lifecycle
        self._hub = lifecycle.hub
        self._snapshots = snapshots
        self._peers = peers
        self._leadership = leadership
        self.configs: dict[str, MirrorConfig] = {}
        self._reserved: set[str] = set()  # mirrors whose producer ids are already kept apart
        self._refreshers: dict[str, asyncio.Task[None]] = {}

    async def load(self, stored: dict[str, MirrorConfig], configured: Sequence[MirrorConfig]) -> None:
        """Load the stored mirrors and those of the settings file; new ones among these are stored.

        Raises: MirrorError.
        """
        self.configs = stored
        for config in configured:
            config.check()
            known = self.configs.get(config.name)
            if known is None:
                await self._life.store.put_mirror(config)
            elif known.all_topics:
                config = replace(config, all_topics=True)
            self.configs[config.name] = config

    async def connect_all(self) -> None:
        """Open a link to the source of every mirror."""
        for config in self.configs.values():
            await self.connect(config)

    async def follow_all(self, mirror: str) -> None:
        """Mirror topics that appear later, too. Raises MirrorError."""
        config = self.configs[mirror]
        if not config.all_topics:
            await self.change(replace(config, all_topics=True))

    async def close(self) -> None:
        """Close the links to the sources."""
        tasks = list(self._refreshers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def create(self, config: MirrorConfig) -> None:
        """Create a mirror, without partitions yet. Raises MirrorError when one of this name exists."""
        if config.name in self.configs:
            raise MirrorError(f"mirror {config.name} exists already; delete it first")
        config.check()
        await self._life.store.put_mirror(config)
        self.configs[config.name] = config
        await self.connect(config)

    async def add_topic(self, mirror: str, topic: TopicMeta, *, only_new: bool = False) -> int:
        """Start mirroring a topic of the source: it is created on the destination, or taken over and cut (see
        failback).

        Returns how many partitions this process starts with. only_new: stopped or failed partitions stay so.

        Raises: WireError, MirrorError or TimeoutError; when called again, it resumes.
        """
        hub, life = self._hub, self._life
        await life.until_not_fenced()
        link = life.links[mirror]
        await self._keep_ids_apart(mirror)
        agreed = await self._agreed(link, topic)
        hub.expected_topics.add(topic.name)
        count = len(topic.partitions)
        await self._peers.learn()
        owners = self._peers.owners(mirror, topic.name, count)
        new = await self._leadership.create(topic.name, count, {}, owners)
        found = await self._snapshots.until(
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
            life.restart(key, record.topic_id)
            records.append(record)
        await self._life.store.delete(outdated)  # of a topic that was deleted here: stored under another key
        await life.save(records)
        life.poked.set()
        return len(records)

    async def _keep_ids_apart(self, mirror: str) -> None:
        if self._hub.design.producer_ids is ProducerIds.RESERVED_BLOCK and mirror not in self._reserved:
            await reserve(self._hub, self._life.links[mirror].cluster)
            self._reserved.add(mirror)

    async def _agreed(self, link: SourceLink, topic: TopicMeta) -> dict[int, int]:
        """Up to where this topic's logs agree: by this side's records and by those kept on the source."""
        there = StateStore(link.cluster, partitions=0, key=self._hub.design.state_key)
        return agreed_offsets(
            topic.name,
            topic.partitions,
            own=self._life.records.values(),
            others=(await there.read_records()).values(),
            own_cluster=self._hub.cluster_id,
            source_cluster=link.cluster_id,
        )

    async def discover(self, mirror: str, *, at_most_age_s: float = 0.0) -> list[TopicMeta]:
        """The source's topics that the mirror wants; refreshed if the known list is older. Raises WireError."""
        config, link = self.configs[mirror], self._life.links[mirror]
        if link.age_s >= at_most_age_s:
            await link.refresh()
        return [topic for name, topic in sorted(link.topics.items()) if not topic.internal and config.wants(name)]

    async def connect(self, config: MirrorConfig) -> None:
        """Open a link to a mirror's source, and keep its metadata fresh."""
        link = SourceLink(config.name, Cluster(config.source))
        self._life.links[config.name] = link
        with contextlib.suppress(WireError):  # a source that is down now is asked again by the loop
            await link.refresh()
        self._refreshers[config.name] = asyncio.create_task(link.keep_fresh())

    async def learn(self) -> None:
        """Adopt mirrors that other processes have created, changed or deleted. Raises WireError or MirrorError."""
        _, stored = await self._life.store.load()
        for name, config in stored.items():
            if name not in self.configs:
                await self.connect(config)
            self.configs[name] = config
        own = {key.mirror for key, record in self._life.records.items() if record.owner == self._hub.me}
        for name in self.configs.keys() - stored.keys() - own:
            self._drop(name)

    async def change(self, config: MirrorConfig) -> None:
        """Change a mirror's patterns. Raises MirrorError."""
        config.check()
        await self._life.store.put_mirror(config)
        self.configs[config.name] = config

    async def forget(self, mirror: str) -> None:
        """Delete a mirror whose partitions are deleted. Raises MirrorError."""
        await self._life.store.put_mirror(self.configs[mirror], deleted=True)
        self._drop(mirror)

    def _drop(self, mirror: str) -> None:
        del self.configs[mirror]
        self._refreshers.pop(mirror).cancel()
        self._life.links.pop(mirror).cluster.close()
