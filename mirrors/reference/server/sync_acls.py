"""Syncs ACLs from the source to the destination, for mirrors with at least one mirrored partition.

One process of a destination does it for each mirror. The rules that the mirror brought are recorded in the state topic
before they are created, so that a rule that the source deletes is still known as the mirror's own after a restart.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from harness.wire.acls import Binding, bindings_of, create_bindings, delete_bindings
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.design import AclSync
from mirrors.reference.server.guard import Guard, is_guard
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.peers import Peers, owner
from mirrors.reference.server.topics import MIRRORED_STATES

_LOG = logging.getLogger(__name__)
_NOTE: Final = "acls"

Bindings = AbstractSet[Binding]


@dataclass(frozen=True, kw_only=True)
class AclChanges:
    """Rules to create and to delete on the destination."""

    create: frozenset[Binding] = frozenset()
    delete: frozenset[Binding] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.create or self.delete)


def _keep_local(source: Bindings, destination: Bindings, brought: Bindings, wanted: Bindings) -> AclChanges:
    """Create what is missing; delete only what the mirror brought and the source no longer has."""
    return AclChanges(create=frozenset(wanted - destination), delete=frozenset((brought - source) & destination))


def _source_wins(source: Bindings, destination: Bindings, _: Bindings, wanted: Bindings) -> AclChanges:
    """Create what is missing; delete whatever the source does not have, regardless of the filter."""
    return AclChanges(create=frozenset(wanted - destination), delete=frozenset(destination - source))


def _off(_: Bindings, __: Bindings, ___: Bindings, ____: Bindings) -> AclChanges:
    return AclChanges()


POLICY: Final[Mapping[AclSync, Callable[[Bindings, Bindings, Bindings, Bindings], AclChanges]]] = {
    AclSync.KEEP_LOCAL: _keep_local,
    AclSync.SOURCE_WINS: _source_wins,
    AclSync.OFF: _off,
}
"""(source, destination, what the mirror brought, what of the source is wanted) → changes."""


def acl_changes(
    policy: AclSync,
    *,
    source: Bindings,
    destination: Bindings,
    brought: Bindings,
    pattern: str,
    topics: Iterable[str],
    mirrored: bool,
) -> AclChanges:
    """The changes of one sync. pattern: for the one-line form of the source's rules.

    topics: the mirrored ones; their guards are neither synced nor deleted. mirrored: whether any partition is mirrored
    now; while all are stopped, nothing changes.
    """
    if not mirrored:
        return AclChanges()
    names = set(topics)
    ours = {b for b in source | destination if is_guard(b, names)}
    include = re.compile(pattern)
    wanted = {b for b in source - ours if include.fullmatch(b.line())}
    return POLICY[policy](source, destination - ours, brought, wanted)


def any_mirrored(records: Iterable[PartitionRecord]) -> bool:
    """Whether any partition is mirrored, or about to be."""
    return any(record.state in MIRRORED_STATES for record in records)


class AclSyncing:
    """The task around it."""

    def __init__(self, mirrors: Mirrors, lifecycle: Lifecycle, peers: Peers, audit: AuditLog, guard: Guard) -> None:
        self._mirrors = mirrors
        self._life = lifecycle
        self._peers = peers
        self._audit = audit
        self._guard = guard

    async def sync_all(self) -> None:
        """Sync every mirror that this process is responsible for, once. Raises WireError or MirrorError."""
        if self._life.hub.design.acl_sync is AclSync.OFF:
            return
        live = self._peers.live()
        for config in list(self._mirrors.configs.values()):
            if owner(PartitionKey(config.name, "", -1), live) == self._life.hub.me:
                await self.sync(config, alone=len(live) == 1)

    async def sync(self, config: MirrorConfig, *, alone: bool = True) -> None:
        """One mirror once. alone: no other process has partitions. Raises WireError or MirrorError."""
        records = await self._records(config.name, alone)
        if not any_mirrored(records):
            return
        source = await bindings_of(self._life.links[config.name].cluster)
        if source is None:
            return
        async with self._guard.changing:
            records = await self._records(config.name, alone)
            destination = await bindings_of(self._life.hub.destination)
            if destination is None:
                return
            brought = self._brought(config.name)
            changes = acl_changes(
                self._life.hub.design.acl_sync,
                source=source,
                destination=destination,
                brought=brought,
                pattern=config.acls,
                topics={record.key.topic for record in records},
                mirrored=any_mirrored(records),
            )
            if changes:
                await self._make(config.name, changes, brought)

    async def _make(self, mirror: str, changes: AclChanges, brought: frozenset[Binding]) -> None:
        cluster, store = self._life.hub.destination, self._life.store
        with_new = brought | changes.create
        if with_new != brought:
            await store.put_note(_NOTE, mirror, [b.values() for b in sorted(with_new)])
        await create_bindings(cluster, changes.create)
        for binding in sorted(changes.create):
            self._audit.add(EventKind.ACL, mirror, change="create", binding=binding.line())
        await delete_bindings(cluster, changes.delete)
        for binding in sorted(changes.delete):
            self._audit.add(EventKind.ACL, mirror, change="delete", binding=binding.line())
        left = with_new - changes.delete
        if left != with_new:
            await store.put_note(_NOTE, mirror, [b.values() for b in sorted(left)])

    def _brought(self, mirror: str) -> frozenset[Binding]:
        return frozenset(Binding.of(values) for values in self._life.store.notes(_NOTE).get(mirror, ()))

    async def _records(self, mirror: str, alone: bool) -> list[PartitionRecord]:
        """All processes' records: those of others are only in the state topic."""
        found = self._life.records if alone else (await self._life.store.load())[0]
        return [record for key, record in found.items() if key.mirror == mirror]
