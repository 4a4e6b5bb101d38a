"""The control side of one process: the administration interface, discovery of topics, syncs, events."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from mirrors.reference.server.admin_api import AdminApi
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metrics import Metrics
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import PartitionRecord
from mirrors.reference.server.operations import Operations
from mirrors.reference.server.peers import Peers
from mirrors.reference.server.periodic import keep
from mirrors.reference.server.settings import Settings
from mirrors.reference.server.sync_acls import AclSyncing
from mirrors.reference.server.sync_configs import ConfigSync
from mirrors.reference.server.sync_groups import GroupSync
from mirrors.reference.server.topics import Discovery


class Control:
    """Made by the process; its loops run concurrently with the life cycle."""

    def __init__(
        self,
        settings: Settings,
        mirrors: Mirrors,
        lifecycle: Lifecycle,
        peers: Peers,
        guard: Guard,
        groups: GroupSync,
        audit: AuditLog,
    ) -> None:
        self._settings = settings
        self._hub = lifecycle.hub
        self._guard = guard
        self._groups = groups
        self._audit = audit
        self.port = 0  # where requests are served
        self.operations = Operations(mirrors, lifecycle, guard, lifecycle.crash)
        self.discovery = Discovery(mirrors, lifecycle, audit, every_s=settings.discovery_s)
        self.configs = ConfigSync(mirrors, lifecycle, audit, guard)
        self.acls = AclSyncing(mirrors, lifecycle, peers, audit, guard)
        self.api = AdminApi(self.operations, audit, health=self._health, metrics=Metrics(lifecycle).text)
        lifecycle.listeners.append(self._state_changed)

    async def start(self) -> None:
        """Serve requests. Call it once all stored state has been loaded."""
        self.port = await self.api.listen(self._settings.admin_port)

    async def close(self) -> None:
        """Stop serving."""
        await self.api.close()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """The loops that run until the process ends."""
        settings = self._settings
        return [
            keep("discovery", settings.discovery_s, self.discovery.poll),
            keep("group offsets", settings.group_sync_s, self._groups.sync_all),
            keep("configurations", settings.config_sync_s, self.configs.sync_all),
            keep("ACLs", settings.acl_sync_s, self.acls.sync_all),
        ]

    def _health(self) -> dict[str, Any]:
        hub = self._hub
        return {
            "broker_id": hub.me,
            "broker_epoch": hub.broker_epoch,
            "cluster_id": hub.cluster_id,
            "guard": self._guard.kind,
        }

    def _state_changed(self, old: PartitionRecord | None, new: PartitionRecord) -> None:
        if old is not None and old.state is new.state and old.error == new.error:
            return
        self._audit.add(
            EventKind.STATE,
            new.key.mirror,
            topic=new.key.topic,
            partition=new.key.partition,
            old=None if old is None else str(old.state),
            new=str(new.state),
            error=new.error,
            destination_offset=new.last_mirrored if new.last_mirrored >= 0 else None,
            owner=new.owner,
        )
