"""Kafka's own configuration of each node: KRaft, four listeners, fast failure detection.

Each kind of traffic has its own listener, so that it can be cut alone: CLIENTS (clients on the host), REPL (between
brokers), LINK (for the mirror; advertised as toxiproxy's address, or else metadata would bypass the proxy) and
CONTROLLER.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.core.errors import UsageError

CLIENTS_PORT = 9092
REPL_PORT = 9093
LINK_PORT = 9094
CONTROLLER_PORT = 9095

CONFIG_PATH = "/etc/shatterproof/server.properties"
VOLUME_PATH = "/var/lib/shatterproof"
DATA_DIR = f"{VOLUME_PATH}/data"

# Keys that the plan of a node sets. A test that changed one of these would not run the planned topology.
RESERVED = frozenset(
    {
        "node.id",
        "broker.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)

# A failure shows within seconds, and a node of a test on a small machine stays small.
TIMING = {
    "replica.lag.time.max.ms": "4000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}
SIZE = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.index.size.max.bytes": "1048576",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}


@dataclass(frozen=True, kw_only=True)
class KafkaNode:
    """The inputs of one node's configuration. Addresses are IPv4; `link` is toxiproxy's (address, port)."""

    node_id: int
    address: str
    is_broker: bool
    is_controller: bool
    link: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        if self.is_broker != (self.link is not None):
            raise ValueError("a broker has a link address, a controller alone has none")


def new_cluster_id(random_bytes: Callable[[int], bytes]) -> str:
    """A cluster ID in Kafka's form: 16 bytes in URL-safe base64 without padding, not beginning with `-`.

    (A leading dash would read as an option on Kafka's command lines; Kafka's own generator avoids it as well.)
    """
    while True:
        text = base64.urlsafe_b64encode(random_bytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def check_extra(extra: Mapping[str, str], where: str) -> None:
    """Raise UsageError when a user's own configuration touches what the harness sets."""
    for key, value in extra.items():
        if key in RESERVED:
            raise UsageError(f"{where}: {key} is set by the harness and cannot be changed; leave it out")
        if not isinstance(value, str) or not key or any(c in key for c in "= \t\n:#") or "\n" in value:
            raise UsageError(f"{where}: {key!r} = {value!r} is not one line of a Kafka configuration")


def broker_defaults(brokers: int) -> dict[str, str]:
    """Defaults of a cluster with this many brokers; a user's configuration overrides them."""
    replication = str(min(3, brokers))
    return {
        **TIMING,
        **SIZE,
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": replication,
        "offsets.topic.replication.factor": replication,
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "share.coordinator.state.topic.replication.factor": replication,
        "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
    }


def properties(
    node: KafkaNode, *, voters: Mapping[int, str], brokers: int, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole configuration of one node. voters: controller id → address; brokers: how many the cluster has."""
    listeners: dict[str, int] = {}
    advertised: dict[str, tuple[str, int]] = {}
    if node.link is not None:
        listeners = {"CLIENTS": CLIENTS_PORT, "REPL": REPL_PORT, "LINK": LINK_PORT}
        advertised = {
            "CLIENTS": (node.address, CLIENTS_PORT),
            "REPL": (node.address, REPL_PORT),
            "LINK": node.link,
        }
    if node.is_controller:
        listeners["CONTROLLER"] = CONTROLLER_PORT
        advertised["CONTROLLER"] = (node.address, CONTROLLER_PORT)
    roles = [role for role, has in (("broker", node.is_broker), ("controller", node.is_controller)) if has]
    fixed = {
        "node.id": str(node.node_id),
        "process.roles": ",".join(roles),
        "controller.quorum.voters": ",".join(f"{i}@{a}:{CONTROLLER_PORT}" for i, a in sorted(voters.items())),
        "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://{host}:{port}" for name, (host, port) in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in ("CLIENTS", "REPL", "LINK", "CONTROLLER")),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": DATA_DIR,
    }
    if node.is_broker:
        fixed["inter.broker.listener.name"] = "REPL"
    return {**broker_defaults(brokers), **(extra or {}), **fixed}


def render(config: Mapping[str, str]) -> str:
    """A properties file, sorted by key."""
    escaped = ((key, value.replace("\\", "\\\\")) for key, value in sorted(config.items()))
    return "".join(f"{key}={value}\n" for key, value in escaped)
