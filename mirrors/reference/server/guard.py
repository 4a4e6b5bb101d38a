"""Keeps mirrored topics read-only while the mirror's process is dead and a real broker leads them.

While the process lives it refuses writes itself. The destination's capabilities decide which of two means is used:
- `deny_write`: with an authorizer, a rule DENY User:* WRITE on the topic. ACLs do not bind super users.
- `min_isr`: without, `min.insync.replicas` is the number of replicas with this process's among them, which are in sync
  only while it lives. It refuses acks=all only; a producer with acks=1 can still write.
The previous setting is kept in the state topic and restored at the stop, before the partition counts as STOPPED.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from harness.wire.acls import Binding, bindings_of, create_bindings, delete_bindings
from harness.wire.cluster import Cluster
from harness.wire.topic_configs import alter_topic, topic_configs
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.peers import Peers
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

MIN_ISR: Final = "min.insync.replicas"
_NOTE: Final = "guard"
_ALL: Final = "User:*"


class GuardKind(StrEnum):
    """How a topic is kept read-only."""

    DENY_WRITE = "deny_write"
    MIN_ISR = "min_isr"


def deny_write(topic: str) -> Binding:
    """The rule that keeps everybody from writing."""
    return Binding(permission="DENY", principal=_ALL, operation="WRITE", resource="TOPIC", name=topic)


def is_guard(binding: Binding, topics: Iterable[str]) -> bool:
    """Whether a rule has the form of a guard of one of these topics: such rules are never synced."""
    return binding in {deny_write(topic) for topic in topics}


def min_isr(replicas: Iterable[Sequence[int]]) -> int:
    """The number of real replicas plus one: brokers cap it at the number of replicas, the mirror's included."""
    return 1 + max(sum(broker < FIRST_MIRROR_ID for broker in one) for one in replicas)


class Guard:
    """See the module. changing: held by every sync while it changes the destination, so that a stop can wait for it."""

    def __init__(self, lifecycle: Lifecycle, peers: Peers, audit: AuditLog) -> None:
        self._life = lifecycle
        self._peers = peers
        self._audit = audit
        self.changing = asyncio.Lock()
        self.kind: GuardKind | None = None
        self._on: set[str] = set()  # topics whose guard this process put on, or found on

    @property
    def _cluster(self) -> Cluster:
        return self._life.hub.destination

    async def learn(self) -> GuardKind:
        """Which means the destination supports. Raises WireError."""
        if self.kind is None:
            found = await bindings_of(self._cluster)
            self.kind = GuardKind.MIN_ISR if found is None else GuardKind.DENY_WRITE
        return self.kind

    def notes(self) -> dict[str, dict[str, Any]]:
        """Topic → what guards it now, and what was there before."""
        return self._life.store.notes(_NOTE)

    def holds_min_isr(self, topic: str) -> bool:
        """Whether the topic's min.insync.replicas is the guard's."""
        return self.notes().get(topic, {}).get("kind") == GuardKind.MIN_ISR

    async def remember(self, topic: str, value: str | None) -> None:
        """Note the value of min.insync.replicas to restore later: the source's. Raises MirrorError."""
        note = self.notes()[topic]
        if note["before"] != value:
            await self._life.store.put_note(_NOTE, topic, {**note, "before": value})

    async def __call__(self, topics: Sequence[str], on: bool) -> None:
        """Guard these topics from now on, or no longer. Raises WireError or MirrorError."""
        kind = await self.learn()
        async with self.changing:
            if not self._peers.alone:
                await self._life.store.load()  # another process's notes
            for topic in topics:
                if on:
                    await self._put_on(topic, kind)
                elif await self._handed_over(topic):
                    await self._take_off(topic)

    async def _handed_over(self, topic: str) -> bool:
        """Whether real brokers have every partition: the last process that stops takes the guard off."""
        found = (await self._cluster.metadata((topic,))).topics.get(topic)
        return found is not None and all(
            part.leader is not None and part.leader < FIRST_MIRROR_ID and max(part.replicas) < FIRST_MIRROR_ID
            for part in found.partitions.values()
        )

    async def _put_on(self, topic: str, kind: GuardKind) -> None:
        known = self.notes().get(topic)
        if topic in self._on and known is not None:  # else another process, the last that stopped, took it off
            return
        if known is None and not self._first_partition_is_ours(topic):
            return
        if kind is GuardKind.DENY_WRITE:
            await self._put_on_rule(topic, known)
        else:
            await self._put_on_min_isr(topic, known)
        self._on.add(topic)
        _LOG.info("%s is kept read-only by %s", topic, kind)

    def _first_partition_is_ours(self, topic: str) -> bool:
        me = self._life.hub.me
        return any(
            key.topic == topic and key.partition == 0 and record.owner == me
            for key, record in self._life.records.items()
        )

    async def _put_on_rule(self, topic: str, known: dict[str, Any] | None) -> None:
        """known: the note of a process that was killed before or after it created the rule."""
        rule = deny_write(topic)
        there = rule in (await bindings_of(self._cluster) or ())
        if known is None:
            note = {"kind": str(GuardKind.DENY_WRITE), "before": there}
            await self._life.store.put_note(_NOTE, topic, note)
        if not there:
            await create_bindings(self._cluster, [rule])
            self._audit.add(EventKind.ACL, "", change="create", binding=rule.line(), guard=True)

    async def _put_on_min_isr(self, topic: str, known: dict[str, Any] | None) -> None:
        found = (await self._cluster.metadata((topic,))).topics.get(topic)
        if found is None:
            return
        before = (await topic_configs(self._cluster, [topic])).get(topic, {}).get(MIN_ISR)
        value = str(min_isr(part.replicas for part in found.partitions.values()))
        if known is None:
            note = {"kind": str(GuardKind.MIN_ISR), "before": before}
            await self._life.store.put_note(_NOTE, topic, note)
        if before != value:
            await alter_topic(self._cluster, topic, {MIN_ISR: value})
            self._audit.add(EventKind.CONFIG, "", topic=topic, name=MIN_ISR, old=before, value=value, guard=True)

    async def _take_off(self, topic: str) -> None:
        note = self.notes().get(topic)
        if note is None:
            return
        if note["kind"] == GuardKind.MIN_ISR:
            await alter_topic(self._cluster, topic, {MIN_ISR: note["before"]})
            self._audit.add(EventKind.CONFIG, "", topic=topic, name=MIN_ISR, old=None, value=note["before"], guard=True)
        elif not note["before"]:
            await delete_bindings(self._cluster, [deny_write(topic)])
            self._audit.add(EventKind.ACL, "", change="delete", binding=deny_write(topic).line(), guard=True)
        await self._life.store.put_note(_NOTE, topic, None)
        self._on.discard(topic)
