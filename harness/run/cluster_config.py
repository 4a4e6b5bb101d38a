"""Kafka configurations that a test's options stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AUTHORIZER: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Of brokers and controllers: access rules can be made, and nobody here is bound by them."""

BROKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "delete": {},
    "compact": {"log.cleaner.backoff.ms": "200"},
}
"""cleanup_policy → configuration of brokers. The cleaner looks for work several times a second."""

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "delete": {},
    "compact": {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"},
}
"""cleanup_policy → configuration of the workload's topics. Only segments that are closed are cleaned: one a second."""
