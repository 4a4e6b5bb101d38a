"""Client configuration: every time-out bounded, so that an operation ends within seconds whatever is broken.

All times in ms. `delivery.timeout.ms` bounds a send, `socket.timeout.ms` a request to a broker that does not answer
(a paused one keeps its connections), `reconnect.backoff.max.ms` the time until a client reconnects to a healed broker.
librdkafka's own log goes to the Python logger `shatterproof.librdkafka`, never to the terminal.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from workloads.base import WorkloadOptions

DELIVERY_TIMEOUT_MS: Final = 15_000
TRANSACTION_TIMEOUT_MS: Final = 20_000  # not below the delivery time-out: librdkafka refuses that
RETRY_BACKOFF_MS: Final = 100
SESSION_TIMEOUT_MS: Final = 10_000  # of a group's member: it is removed after this

ONLY_ATTEMPT_S: Final = RETRY_BACKOFF_MS / 1000 / 2
"""A delivery report sooner than this after produce() is that of the only attempt.

librdkafka waits `retry.backoff.ms` ± 20 % before any second attempt.
"""

librdkafka_log: Final = logging.getLogger("shatterproof.librdkafka")
librdkafka_log.addHandler(logging.NullHandler())  # else Python prints warnings to stderr when no logging is configured


def _common(bootstrap: str, client: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client,
        "socket.timeout.ms": 6_000,
        "socket.connection.setup.timeout.ms": 3_000,
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "retry.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 5_000,
        "topic.metadata.refresh.fast.interval.ms": 100,
        "allow.auto.create.topics": False,
        "logger": librdkafka_log,
    }


def producer_config(
    bootstrap: str, client: str, options: WorkloadOptions, *, transactional_id: str | None = None
) -> dict[str, Any]:
    """Configuration of one producer client. `transactional_id` for transactional producers, and only for them."""
    config = _common(bootstrap, client) | {
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        "request.timeout.ms": 5_000,
        "linger.ms": 5,
        "acks": options.acks,
        "enable.idempotence": options.producer != "plain",
    }
    if transactional_id is not None:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return config


def consumer_config(
    bootstrap: str, client: str, *, group: str, isolation: str, partition_eof: bool = False
) -> dict[str, Any]:
    """Configuration of one consumer client that assigns its partitions itself and commits nothing.

    `auto.offset.reset=error`: a position outside the log is an error, which is handled and recorded, instead of a
    silent jump.
    """
    return _common(bootstrap, client) | {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "enable.partition.eof": partition_eof,
        "check.crcs": True,
        "fetch.wait.max.ms": 200,
        "fetch.error.backoff.ms": 100,
    }


def member_config(
    bootstrap: str, client: str, *, group: str, protocol: str, isolation: str, reset: str
) -> dict[str, Any]:
    """Configuration of a member of a consumer group that commits by itself. protocol: classic or consumer."""
    config = consumer_config(bootstrap, client, group=group, isolation=isolation) | {
        "auto.offset.reset": reset,
        "group.protocol": protocol,
    }
    if protocol == "classic":  # in the new protocol the group's coordinator decides it
        config["session.timeout.ms"] = SESSION_TIMEOUT_MS
    return config


def share_config(bootstrap: str, client: str, *, group: str) -> dict[str, Any]:
    """Configuration of a member of a share group. Polled records are accepted by the next poll, or by a commit."""
    config = _common(bootstrap, client)
    del config["allow.auto.create.topics"]  # not yet supported for share consumers
    return config | {
        "group.id": group,
        "share.acknowledgement.mode": "implicit",
        "check.crcs": True,
    }


def admin_config(bootstrap: str, client: str) -> dict[str, Any]:
    """Configuration of a client that only reads metadata and offsets."""
    config = _common(bootstrap, client)
    del config["allow.auto.create.topics"]
    return config
