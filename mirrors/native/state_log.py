"""What the brokers themselves stored of the mirror's states: the records of `__mirror_state`, as rows of evidence.

Every change of a partition's state is a record there (type 2), so the log shows the whole path where snapshots of
descriptions show points of it. Where compaction has left a gap in one of the topic's partitions, what lies between is
not known, and the path ends there.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from harness.history.recording import Recorder
from harness.wire.cluster_mirror_api import STATE_TOPIC, MirrorPartitionStateValue, State, decode_state
from harness.wire.entity_table import EntityError
from mirrors.compacted import quiet_consumer

_POLL_S: Final = 0.2
_LIST_S: Final = 2.0
_BATCH: Final = 500

Change = tuple[uuid.UUID, int, str, str]
"""(topic id, partition, state as the build calls it, error)."""


def change_in(key: bytes, value: bytes | None, *, mirror: str) -> Change | None:
    """The state in one record; None for another mirror's, another type, a deletion, or a record that is not known."""
    try:
        _, where, what = decode_state(key, value)
        if where.mirror_name != mirror or where.topic_id is None or not isinstance(what, MirrorPartitionStateValue):
            return None
        return where.topic_id, where.partition, State(what.state).name, what.error_message or ""
    except (EntityError, ValueError):
        return None


class StateLog:
    """Reads the new records of one mirror, and stores them as rows of `mirror_states` (event log). Thread-safe; the
    consumer is made at first use."""

    def __init__(self, bootstrap: str, *, mirror: str, destination: str) -> None:
        self._bootstrap = bootstrap
        self._mirror = mirror
        self._destination = destination
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._next: dict[int, int | None] = {}  # partition of the topic → next offset, None after a gap

    def record(self, recorder: Recorder, topics: Mapping[uuid.UUID, str]) -> None:
        """Store those since the last call; bounded, and no error if the topic does not exist or no broker answers.

        topics: topic id → its name on the destination.
        """
        with self._lock:
            if self._next or self._assign():
                self._record(recorder, topics)

    def _record(self, recorder: Recorder, topics: Mapping[uuid.UUID, str]) -> None:
        while messages := self._consumer.consume(_BATCH, timeout=_POLL_S):
            for topic_id, partition, state, error in self._changes(messages):
                if topic_id in topics:
                    recorder.row(
                        "mirror_states",
                        mirror=self._mirror,
                        cluster=self._destination,
                        topic=topics[topic_id],
                        partition=partition,
                        state=state,
                        error=error,
                        event="log",
                        time_ns=recorder.clock.now_ns(),
                    )
            if len(messages) < _BATCH:
                return

    def _assign(self) -> bool:
        if self._consumer is None:
            self._consumer = Consumer(quiet_consumer(self._bootstrap, group="state-log"))
        try:
            found = self._consumer.list_topics(STATE_TOPIC, timeout=_LIST_S).topics[STATE_TOPIC].partitions
        except KafkaException:
            return False
        self._next = dict.fromkeys(found, 0)
        self._consumer.assign([TopicPartition(STATE_TOPIC, partition, OFFSET_BEGINNING) for partition in found])
        return bool(found)

    def _changes(self, messages: Sequence[Any]) -> list[Change]:
        found = []
        for message in messages:
            if message.error():
                continue
            whole = self._next.get(message.partition()) == message.offset()
            self._next[message.partition()] = message.offset() + 1 if whole else None
            change = change_in(message.key() or b"", message.value(), mirror=self._mirror) if whole else None
            if change is not None:
                found.append(change)
        return found

    def close(self) -> None:
        """Leave the cluster."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
                self._next = {}
