"""Liveness by mirrored records: writes a probe record into every partition of the source, awaits it on the destination.

A running mirror process proves nothing; a probe that arrives proves the whole path, including everything before it
in its partition where the mirror keeps the order. Probe values begin with `probe:` and are recorded as sends, so that
no checker counts them as phantoms.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from harness.core.errors import MirrorError, WaitTimeoutError
from harness.history.ops import Action, F, OpRecord, OpType
from harness.history.recording import Recorder
from harness.wire.client import WireError
from harness.wire.view import ClusterView
from mirrors.compacted import QUIET, quiet_consumer

PREFIX: Final = "probe:"
_SEND_TIMEOUT_MS: Final = 10_000
_POLL_S: Final = 0.5  # how often the destination's metadata is checked for partitions that do not exist yet

Partition = tuple[str, int]


class Probe:
    """One round of probes. source, destination: bootstrap servers of clients, not of the links.

    to_destination: topic on the source → its mirrored name. explain: returns the mirror's status for a time-out's
    message.
    """

    def __init__(
        self,
        *,
        source: str,
        destination: str,
        source_letter: str,
        to_destination: Callable[[str], str],
        recorder: Recorder,
        explain: Callable[[], str],
    ) -> None:
        self._source = source
        self._destination = destination
        self._letter = source_letter
        self._to_destination = to_destination
        self._recorder = recorder
        self._explain = explain
        self._token = secrets.token_hex(4)
        self._sends = 0
        self._values: dict[Partition, set[str]] = {}
        self._retry: list[Partition] = []

    def await_mirrored(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[Partition, float]:
        """Write and await; returns seconds from the call per (topic on the source, partition).

        A partition whose send fails gets another probe. Raises: WaitTimeoutError naming what was not mirrored,
        MirrorError when the source does not know a topic.
        """
        began = time.monotonic()
        deadline = began + timeout_s
        view = ClusterView(self._destination)
        producer: Any = Producer(self._producer_config())
        consumer: Any = Consumer(quiet_consumer(self._destination, group=f"probe-{self._token}"))
        try:
            partitions = self._partitions(topics)
            starts = self._ends_before(view, topics)
            for partition in partitions:
                self._send(producer, partition)
            took: dict[Partition, float] = {}
            assigned: set[Partition] = set()
            checked = 0.0
            while len(took) < len(partitions):
                now = time.monotonic()
                if now >= deadline:
                    raise self._late(sorted(set(partitions) - set(took)), len(partitions), timeout_s)
                producer.poll(0)
                if len(assigned) < len(partitions) and now - checked >= _POLL_S:
                    self._assign(consumer, view, partitions, starts, assigned)
                    checked = now
                while self._retry:
                    self._send(producer, self._retry.pop())
                arrived = self._arrived(consumer)
                if arrived is not None and arrived not in took:
                    took[arrived] = time.monotonic() - began
            return took
        finally:
            view.close()
            consumer.close()
            producer.flush(_SEND_TIMEOUT_MS / 1000)

    def _producer_config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._source,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": _SEND_TIMEOUT_MS,
            "linger.ms": 0,
            "topic.metadata.refresh.interval.ms": 5000,
            "logger": QUIET,
        }

    def _partitions(self, topics: Sequence[str]) -> list[Partition]:
        view = ClusterView(self._source)
        try:
            found = [(p.topic, p.partition) for p in view.metadata(topics).partitions()]
        finally:
            view.close()
        missing = sorted(set(topics) - {topic for topic, _ in found})
        if missing:
            raise MirrorError(f"cluster {self._letter} has no topic {', '.join(missing)} to probe; create it first")
        return found

    def _ends_before(self, view: ClusterView, topics: Sequence[str]) -> dict[Partition, int]:
        try:
            ends = view.leader_ends([self._to_destination(topic) for topic in topics])
        except WireError:
            return {}
        return {partition: end for partition, end in ends.items() if end is not None}

    def _assign(
        self,
        consumer: Any,
        view: ClusterView,
        partitions: Sequence[Partition],
        starts: Mapping[Partition, int],
        assigned: set[Partition],
    ) -> None:
        wanted = {(self._to_destination(topic), number) for topic, number in partitions}
        try:
            found = {(p.topic, p.partition) for p in view.metadata({topic for topic, _ in wanted}).partitions()}
        except WireError:
            return
        new = (wanted & found) - assigned
        if new:
            consumer.incremental_assign([TopicPartition(t, n, starts.get((t, n), 0)) for t, n in sorted(new)])
            assigned |= new

    def _send(self, producer: Any, partition: Partition) -> None:
        topic, number = partition
        value = f"{PREFIX}{self._token}:{topic}:{number}:{self._sends}"
        process = f"probe-{self._token}-{self._sends}"
        self._sends += 1
        self._values.setdefault(partition, set()).add(value)
        sent = OpRecord(Action.SEND, topic, number, None, value, value)
        index = self._recorder.invoke(process, F.SEND, cluster=self._letter, client=process, records=[sent])

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                done = [sent._replace(offset=message.offset())]
                self._recorder.complete(index, OpType.OK, records=done)
            else:  # never definite: the probe may have been appended, or may still be
                self._recorder.complete(index, OpType.INFO, records=[sent], error=error.name(), error_text=error.str())
                self._retry.append(partition)

        producer.produce(topic, value=value, key=value, partition=number, on_delivery=delivered)

    def _arrived(self, consumer: Any) -> Partition | None:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            return None
        value = (message.value() or b"").decode(errors="replace")
        if not value.startswith(f"{PREFIX}{self._token}:"):
            return None
        return next((partition for partition, sent in self._values.items() if value in sent), None)

    def _late(self, missing: Sequence[Partition], total: int, timeout_s: float) -> WaitTimeoutError:
        names = ", ".join(f"{topic}-{number}" for topic, number in missing[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        return WaitTimeoutError(
            f"waited {timeout_s:g} s for a probe record to be mirrored on every partition; {len(missing)} of {total} "
            f"mirrored none: {names}{more}; {self._explain()}"
        )
