"""Kafka configurations that follow from a test's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AUTHORIZER: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""For brokers and controllers: ACLs can be created, and our own clients, all super users, are not bound by them."""

BROKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "delete": {},
    "compact": {"log.cleaner.backoff.ms": "200"},
}
"""cleanup_policy → configuration of brokers. The cleaner looks for work several times a second."""

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "delete": {},
    "compact": {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"},
}
"""cleanup_policy → configuration of the workload's topics. Only closed segments are cleaned: one a second."""
