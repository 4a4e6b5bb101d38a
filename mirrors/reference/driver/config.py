"""Turns a test's options into the settings of the mirror's processes, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from harness.core.errors import UsageError
from harness.core.hints import closest
from mirrors import options as mirror_options
from mirrors.options import option
from mirrors.reference.driver.promise import contract_of
from mirrors.reference.server.design import PRESETS, design_values, parse_design
from mirrors.reference.server.settings import settings_from
from mirrors.reference.server.steps import STEPS

ADMIN_PORT: Final = 8080
CLIENTS_PORT, REPL_PORT, LINK_PORT, CONTROLLER_PORT = 9092, 9093, 9094, 9095
_FAMILY: Final = "cluster-mirror"
_DEFAULT: Final = "strict"
CONTRACTS: Final = (f"{_FAMILY}/{_DEFAULT}", *(f"{_FAMILY}/{preset}" for preset in PRESETS if preset != _DEFAULT))
CONFIG_PATH: Final = "/etc/shatterproof/mirror.json"


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """Options for the user in addition to the design, as `--mirror-option NAME=VALUE`. Periods in seconds, sizes in
    bytes."""

    groups: str = option(".*", "regular expression of the groups whose offsets are synced")
    exclude_groups: str = option("$^", "regular expression of groups that are left out")
    acls: str = option(".*", "regular expression of the principals whose ACLs are synced")
    exclude_configs: str = option("", "topic configurations that are not synced, comma-separated")
    group_sync_s: float = option(1.0, "period of the sync of group offsets")
    config_sync_s: float = option(1.0, "period of the sync of topic configurations")
    acl_sync_s: float = option(1.0, "period of the sync of ACLs")
    discovery_s: float = option(1.0, "how often new topics and partitions of the source are looked for")
    lag_s: float = option(4.0, "how long a follower may lag before it leaves the in-sync set")
    drain_s: float = option(5.0, "how long a stop waits for followers to catch up")
    budget: int = option(10 * 1024 * 1024, "bytes held per follower")
    state_partitions: int = option(50, "partitions of the mirror's state topic")
    crash_at: str = option("", "kill a process once, at this step of a stop or a start; the driver starts it again")


_IN_MIRROR: Final = ("groups", "exclude_groups", "acls")
_DRIVER: Final = ("exclude_configs", "crash_at")


def option_docs() -> Mapping[str, str]:
    """Name of each `--mirror-option` → what it does and its default."""
    return mirror_options.option_docs(ReferenceOptions)


def parse_options(given: Mapping[str, str]) -> ReferenceOptions:
    """Validate `NAME=VALUE` pairs. Raises: UsageError naming the option and the fix."""
    parsed = mirror_options.parse_options("reference", ReferenceOptions, given)
    if parsed.crash_at and parsed.crash_at not in STEPS:
        raise UsageError(
            f"mirror option crash_at: there is no step {parsed.crash_at!r}; {closest(parsed.crash_at, STEPS)}"
        )
    for name in _IN_MIRROR:
        try:
            re.compile(getattr(parsed, name))
        except re.error as error:
            raise UsageError(
                f"mirror option {name}: {getattr(parsed, name)!r} is not a regular expression: {error}"
            ) from error
    return parsed


@dataclass(frozen=True, kw_only=True)
class Place:
    """Addresses of one process: its own, and those it has as a broker of the destination."""

    host: str
    broker_id: int
    link: tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Destination:
    """The cluster that a process joins: addresses of its real nodes."""

    letter: str
    brokers: tuple[str, ...]
    controllers: tuple[str, ...]


def process_settings(
    place: Place,
    destination: Destination,
    *,
    mirror: Mapping[str, Any],
    options: ReferenceOptions,
    design: Mapping[str, str],
    replicas: int,
) -> dict[str, Any]:
    """The JSON of one process (mirrors.reference.server.settings), checked."""

    def upstream(port: int) -> str:
        return ",".join(f"{host}:{port}" for host in destination.brokers)

    values: dict[str, Any] = {
        "broker_id": place.broker_id,
        "destination": {
            "letter": destination.letter,
            "bootstrap": upstream(REPL_PORT),
            "controllers": ",".join(f"{host}:{CONTROLLER_PORT}" for host in destination.controllers),
        },
        "listeners": [
            {"name": "CLIENTS", "host": place.host, "port": CLIENTS_PORT, "upstream": upstream(CLIENTS_PORT)},
            {"name": "REPL", "host": place.host, "port": REPL_PORT, "upstream": upstream(REPL_PORT)},
            {
                "name": "LINK",
                "host": place.link[0],
                "port": place.link[1],
                "bind_port": LINK_PORT,
                "upstream": upstream(LINK_PORT),
            },
        ],
        "admin_port": ADMIN_PORT,
        "replicas": replicas,
        "design": dict(design),
        "mirrors": [dict(mirror)],
    }
    own = [f.name for f in fields(ReferenceOptions) if f.name not in (*_IN_MIRROR, *_DRIVER)]
    values |= {name: getattr(options, name) for name in own}
    settings_from(values)
    return values


def mirror_config(name: str, source: str, topics: Sequence[str], options: ReferenceOptions) -> dict[str, Any]:
    """One mirror, as mirrors.reference.server.model.MirrorConfig reads it."""
    excluded = tuple(part.strip() for part in options.exclude_configs.split(",") if part.strip())
    return {
        "name": name,
        "source": source,
        "topics": "|".join(re.escape(topic) for topic in topics),
        **{field_name: getattr(options, field_name) for field_name in _IN_MIRROR},
        "exclude_configs": excluded,
    }


def design(arguments: Sequence[str]) -> tuple[str, Mapping[str, str]]:
    """`--design` arguments → (the contract that the mirror is judged by, switch → value).

    Raises: UsageError naming the valid ones.
    """
    chosen = parse_design(arguments)
    return contract_of(chosen), design_values(chosen)
