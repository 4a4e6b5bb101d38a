"""Compacted topics as mappings, kept up to date by bounded reads.

The end to read to is the last stable offset of each partition; the reader is there when the client says
"end of partition" at it, since a transaction's marker at the very end is never delivered as a record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from harness.wire.client import WireError
from harness.wire.view import ClusterView

Entries = Mapping[bytes, bytes | None]


class CompactedTopics:
    """The last value of every key of some topics, as a read_committed reader sees them. One thread per object.

    The topics need not exist yet. A topic that was deleted and recreated is not noticed.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._view = ClusterView(bootstrap)
        self._entries: dict[str, dict[bytes, bytes | None]] = {topic: {} for topic in topics}
        self._reached: dict[tuple[str, int], int] = {}
        self._consumer: Any = Consumer(quiet_consumer(bootstrap, group="look"))

    def refresh(self, *, timeout_s: float) -> bool:
        """Read on to the current end of every partition. Returns whether it got there in time.

        A topic that does not exist counts as read.
        """
        deadline = time.monotonic() + timeout_s
        try:
            ends = self._view.leader_ends(self._entries, read_committed=True)
        except WireError:
            return False
        self._assign(ends)
        while any(end is not None and self._reached[tp] < end for tp, end in ends.items()):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            message = self._consumer.poll(min(left, 0.5))
            if message is not None:
                self._take(message)
        return all(end is not None for end in ends.values())

    def entries(self, topic: str) -> Entries:
        """What was read of one topic so far: key → last value (None: deleted)."""
        return self._entries[topic]

    def close(self) -> None:
        """Leave the cluster."""
        self._view.close()
        self._consumer.close()

    def _assign(self, ends: Mapping[tuple[str, int], int | None]) -> None:
        new = [tp for tp in ends if tp not in self._reached]
        if not new:
            return
        for tp in new:
            self._reached[tp] = 0
        self._consumer.incremental_assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in new])

    def _take(self, message: Any) -> None:
        error, where = message.error(), (message.topic(), message.partition())
        if error is None:
            self._entries[where[0]][message.key() or b""] = message.value()
            self._reached[where] = max(self._reached[where], message.offset() + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached[where] = max(self._reached[where], message.offset())


QUIET: Final = logging.getLogger("shatterproof.librdkafka")  # its errors about broken brokers are expected
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def quiet_consumer(bootstrap: str, *, group: str, isolation: str = "read_committed") -> dict[str, Any]:
    """Configuration of a consumer without side effects: no group membership, no commits, no log lines."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"shatterproof-{group}",  # librdkafka requires a name; the group is neither joined nor committed to
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "socket.timeout.ms": 5000,
        "socket.connection.setup.timeout.ms": 3000,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 5000,
        "fetch.wait.max.ms": 100,
        "logger": QUIET,
    }
