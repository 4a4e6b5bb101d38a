"""Syncs topics' configurations from the source to the destination while they are mirrored.

A mirrored topic gets its source's configuration: entries that only the destination's topic sets are removed. After the
stop nothing changes, unless a design wants that. Each topic belongs to the process that has its first partition.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.wire.frames import WireError
from harness.wire.topic_configs import alter_topic, topic_configs
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.design import Toggle
from mirrors.reference.server.guard import MIN_ISR, Guard
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import MirrorConfig, PartitionRecord
from mirrors.reference.server.states import PartitionState
from mirrors.reference.server.topics import MIRRORED_STATES

_LOG = logging.getLogger(__name__)

LOCAL: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Entries that refer to brokers of their own cluster."""

SYNCED: Final[Mapping[Toggle, frozenset[PartitionState]]] = {
    Toggle.OFF: MIRRORED_STATES,
    Toggle.ON: MIRRORED_STATES | {PartitionState.STOPPED},
}
"""config_sync_after_stop → states in which a topic's configuration is synced."""


@dataclass(frozen=True, kw_only=True)
class ConfigChange:
    """One entry of one topic. value: None removes it."""

    topic: str
    name: str
    old: str | None
    value: str | None


def synced_topics(records: Iterable[PartitionRecord], *, after_stop: Toggle) -> list[str]:
    """Topics of one mirror whose configuration is synced: every partition's state allows it."""
    states: dict[str, set[PartitionState]] = {}
    for record in records:
        states.setdefault(record.key.topic, set()).add(record.state)
    return sorted(topic for topic, found in states.items() if found <= SYNCED[after_stop])


def config_changes(
    topic: str, source: Mapping[str, str], destination: Mapping[str, str], *, exclude: Collection[str] = ()
) -> list[ConfigChange]:
    """Changes that make the destination's entries equal the source's. exclude: entries that are left as they are."""
    left = LOCAL | set(exclude)
    names = sorted((source.keys() | destination.keys()) - left)
    return [
        ConfigChange(topic=topic, name=name, old=destination.get(name), value=source.get(name))
        for name in names
        if source.get(name) != destination.get(name)
    ]


class ConfigSync:
    """The task around it."""

    def __init__(self, mirrors: Mirrors, lifecycle: Lifecycle, audit: AuditLog, guard: Guard) -> None:
        self._mirrors = mirrors
        self._life = lifecycle
        self._audit = audit
        self._guard = guard

    async def sync_all(self) -> None:
        """Every mirror once. Raises WireError."""
        for config in list(self._mirrors.configs.values()):
            await self.sync(config)

    async def sync(self, config: MirrorConfig) -> None:
        """One mirror once. Raises WireError."""
        topics = self._topics(config.name)
        if not topics:
            return
        source = await topic_configs(self._life.links[config.name].cluster, topics)
        for topic in topics:
            if topic in source:
                await self._sync_topic(config, topic, source[topic])

    async def _sync_topic(self, config: MirrorConfig, topic: str, source: Mapping[str, str]) -> None:
        cluster = self._life.hub.destination
        exclude = set(config.exclude_configs)
        # A stop waits for a change that began before it; no change begins after it.
        async with self._guard.changing:
            if topic not in self._topics(config.name):
                return
            destination = (await topic_configs(cluster, [topic])).get(topic)
            if destination is None:
                return
            if self._guard.holds_min_isr(topic):
                exclude.add(MIN_ISR)
                await self._guard.remember(topic, source.get(MIN_ISR))
            changes = config_changes(topic, source, destination, exclude=exclude)
            if not changes:
                return
            try:
                await alter_topic(cluster, topic, {change.name: change.value for change in changes})
            except WireError as error:
                _LOG.warning("%s", error)
                return
        for change in changes:
            self._audit.add(
                EventKind.CONFIG, config.name, topic=topic, name=change.name, old=change.old, value=change.value
            )

    def _topics(self, mirror: str) -> list[str]:
        records = [record for key, record in self._life.records.items() if key.mirror == mirror]
        mine = {r.key.topic for r in records if r.key.partition == 0 and r.owner == self._life.hub.me}
        toggle = self._life.hub.design.config_sync_after_stop
        return [topic for topic in synced_topics(records, after_stop=toggle) if topic in mine]
