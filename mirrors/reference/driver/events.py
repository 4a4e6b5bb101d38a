"""The mirror's audit log as rows of the run's tables: group offsets that it wrote, configs and ACLs that it changed."""

from __future__ import annotations

import time
from typing import Any, Final

from harness.history.recording import Recorder
from mirrors.reference.driver.admin_client import AdminClient
from mirrors.reference.server.audit import Event, EventKind

_MS: Final = 1_000_000


class EventRecorder:
    """Remembers how far each process's log was read. mirror: `A-B`; destination: letter."""

    def __init__(self, mirror: str, *, destination: str) -> None:
        self._mirror = mirror
        self._destination = destination
        self._read: dict[int, tuple[str, int]] = {}  # process → (boot, last seq)

    def record(self, number: int, client: AdminClient, recorder: Recorder) -> None:
        """Store what is new in one process's log. Raises: MirrorError when it does not answer."""
        known, seq = self._read.get(number, ("", 0))
        boot, events = client.events(seq)
        if boot != known and seq:  # it was restarted and counts from 1 again
            seq = 0
            boot, events = client.events(seq)
        for event in events:
            if event.mirror == self._mirror or _guards_by_rule(event):
                self._row(event, recorder)
        self._read[number] = (boot, events[-1].seq if events else seq)

    def _row(self, event: Event, recorder: Recorder) -> None:
        row = _ROWS.get(event.kind)
        if row is None:
            return
        table, columns = row(event.fields, f"mirror {self._mirror}")
        age_ms = time.time() * 1000 - event.time_ms  # both by this machine's wall clock
        at = max(0, recorder.clock.now_ns() - int(max(0.0, age_ms) * _MS))
        recorder.row(table, cluster=self._destination, time_ns=at, **columns)


def _guards_by_rule(event: Event) -> bool:
    """Whether it is one of the process's own rules against writes: they belong to a topic, not to one mirror. (Its
    other guard, a topic's min.insync.replicas, is not a configuration change, and is gone before the topic counts as
    stopped.)"""
    return event.kind is EventKind.ACL and bool(event.fields.get("guard"))


def _group(fields: dict[str, Any], _actor: str) -> tuple[str, dict[str, Any]]:
    return "group_offsets", {
        "group": fields["group"],
        "kind": fields["group_kind"],
        "event": "sync",
        "state": fields.get("state"),
        "members": fields.get("members"),
        "topic": fields["topic"],
        "partition": fields["partition"],
        "offset": fields["offset"],
        "source_offset": fields.get("source_offset"),
        "leader_epoch": fields.get("leader_epoch"),
    }


def _config(fields: dict[str, Any], actor: str) -> tuple[str, dict[str, Any]]:
    return "configs", {
        "event": "alter" if fields.get("value") is not None else "delete",
        "actor": actor,
        "topic": fields["topic"],
        "name": fields["name"],
        "value": fields.get("value"),
    }


def _acl(fields: dict[str, Any], actor: str) -> tuple[str, dict[str, Any]]:
    return "acls", {"event": fields["change"], "actor": actor, "binding": fields["binding"]}


_ROWS: Final = {EventKind.GROUP: _group, EventKind.CONFIG: _config, EventKind.ACL: _acl}
