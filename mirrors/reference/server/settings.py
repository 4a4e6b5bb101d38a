"""Settings of one mirror process: a JSON file that the harness writes. Unknown and missing keys are named."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from harness.core.errors import UsageError
from mirrors.reference.server.design import Design, LeaderEpoch, design_from
from mirrors.reference.server.model import MirrorConfig

LOG_DIR_NAMESPACE = uuid.UUID("6a3f2c1e-5d0b-4c58-9f57-3d1c2b4a9e10")
FIRST_MIRROR_ID: Final = 100  # broker ids from here on are mirror processes: they hold no log
CLIENTS, REPLICATION = "CLIENTS", "REPL"


@dataclass(frozen=True, kw_only=True)
class Listener:
    """One listener, with the same name as the real brokers' listener.

    host, port: what is advertised. bind_port: where the process listens (the same by default). upstream: the real
    brokers' addresses on this listener, for forwarded requests (else clients would get addresses of another listener).
    """

    name: str
    host: str
    port: int
    bind_port: int = 0
    upstream: str = ""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """The cluster that the process registers with. letter: its name in the harness."""

    bootstrap: str
    controllers: str
    letter: str = "B"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a process. Times in seconds, sizes in bytes.

    replicas: how many real replicas a mirror topic gets (bounded by the brokers there are). lag_s: how long a follower
    may lag before it leaves the ISR. budget: bytes held per follower. drain_s: how long a stop waits for
    followers to catch up. finish_s: how long it waits for transactions that are open on the source to end there.
    crash_at: the step of a life cycle at which the process kills itself (tests). mirroring_api: serve the requests of
    Cluster Mirroring, too (see the package mirroring_api), and end each log at a stop so that the last mirrored leader
    epoch ends where the source's records end; needs the design leader_epoch=preserve.
    """

    broker_id: int
    destination: Destination
    listeners: tuple[Listener, ...]
    mirrors: tuple[MirrorConfig, ...] = ()
    design: Design = field(default_factory=Design)
    admin_port: int = 8080
    replicas: int = 3
    lag_s: float = 4.0
    heartbeat_s: float = 0.5
    budget: int = 10 * 1024 * 1024
    drain_s: float = 5.0
    finish_s: float = 5.0
    state_partitions: int = 50
    group_sync_s: float = 5.0
    config_sync_s: float = 5.0
    acl_sync_s: float = 5.0
    discovery_s: float = 2.0
    crash_at: str = ""
    mirroring_api: bool = False

    def __post_init__(self) -> None:
        """Raises TypeError for settings that do not go together."""
        if self.mirroring_api and self.design.leader_epoch is not LeaderEpoch.PRESERVE:
            raise TypeError(
                "mirroring_api needs the design leader_epoch=preserve: the last mirrored epoch that it reports is the "
                "source's"
            )

    @property
    def log_dir(self) -> uuid.UUID:
        """The directory id: the same at every start, or the controller would count the replicas as offline."""
        return uuid.uuid5(LOG_DIR_NAMESPACE, f"{self.destination.letter}/{self.broker_id}")


def read_settings(path: Path) -> Settings:
    """Settings out of a file. Raises UsageError naming the file and the key."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
    return settings_from(values, where=str(path))


def settings_from(values: Mapping[str, Any], *, where: str = "settings") -> Settings:
    """Settings out of JSON values. Raises UsageError naming the key."""
    given = dict(values)
    unknown = sorted(given.keys() - {f.name for f in fields(Settings)})
    if unknown:
        raise UsageError(
            f"{where}: unknown key {unknown[0]!r}; there are {', '.join(f.name for f in fields(Settings))}"
        )
    try:
        given["destination"] = Destination(**given["destination"])
        given["listeners"] = tuple(Listener(**one) for one in given["listeners"])
        given["mirrors"] = tuple(MirrorConfig.from_json(one) for one in given.get("mirrors", ()))
        given["design"] = design_from(given.get("design", {}))
        return Settings(**given)
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{where}: {error}") from error
