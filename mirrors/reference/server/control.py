"""The control side of one process: the administration interface, discovery of topics, syncs, events."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mirrors.reference.server.admin_api import AdminApi
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.metrics import Metrics
from mirrors.reference.server.model import PartitionRecord
from mirrors.reference.server.operations import Operations
from mirrors.reference.server.periodic import keep
from mirrors.reference.server.sync_acls import AclSyncing
from mirrors.reference.server.sync_configs import ConfigSync
from mirrors.reference.server.sync_groups import GroupSync
from mirrors.reference.server.topics import Discovery

if TYPE_CHECKING:
    from mirrors.reference.server.process import MirrorProcess


class Control:
    """Made by the process; its loops run beside the life cycle."""

    def __init__(self, process: MirrorProcess) -> None:
        self._process = process
        self.audit = AuditLog()
        self.port = 0  # where requests are served
        self.operations = Operations(process)
        self.discovery = Discovery(process, self.audit)
        self.guard = Guard(process, self.audit)
        self.groups = GroupSync(process, self.audit, self.guard)
        self.configs = ConfigSync(process, self.audit, self.guard)
        self.acls = AclSyncing(process, self.audit, self.guard)
        self.api = AdminApi(self.operations, self.audit, health=self._health, metrics=Metrics(process.lifecycle).text)
        process.lifecycle.listeners.append(self._state_changed)

    async def start(self) -> None:
        """Serve requests: everything that is stored has been loaded."""
        self.port = await self.api.listen(self._process.settings.admin_port)

    async def close(self) -> None:
        """Serve no more."""
        await self.api.close()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs until the process ends."""
        settings = self._process.settings
        return [
            keep("discovery", settings.discovery_s, self.discovery.look),
            keep("group offsets", settings.group_sync_s, self.groups.sync_all),
            keep("configurations", settings.config_sync_s, self.configs.sync_all),
            keep("ACLs", settings.acl_sync_s, self.acls.sync_all),
        ]

    def _health(self) -> dict[str, Any]:
        hub = self._process.hub
        return {
            "broker_id": hub.me,
            "broker_epoch": hub.broker_epoch,
            "cluster_id": hub.cluster_id,
            "guard": self.guard.kind,
        }

    def _state_changed(self, old: PartitionRecord | None, new: PartitionRecord) -> None:
        if old is not None and old.state is new.state and old.error == new.error:
            return
        self.audit.add(
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
