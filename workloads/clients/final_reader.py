"""The final read of one cluster at one isolation level: one fresh consumer over all partitions, bounded in time."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from harness.history.ops import F, OpType
from harness.history.recording import Recorder
from workloads.base import Endpoint
from workloads.clients.kafka_config import admin_config, consumer_config
from workloads.clients.polling import Partition, Polled, Reader, assign_record, poll_once
from workloads.values import Names

log = logging.getLogger(__name__)

_BATCH: Final = 2_000
_POLL_S: Final = 1.0
_REQUEST_S: Final = 3.0
_PAUSE_S: Final = 0.3
_ABSENT_S: Final = 10.0  # how long a topic may be absent, at most a quarter of the available time
UNKNOWN: Final = -1
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Result:
    """How far one partition was read. Offsets are UNKNOWN until they are known."""

    topic: str
    partition: int
    start: int = UNKNOWN
    target: int = UNKNOWN
    position: int = UNKNOWN
    stable: int = UNKNOWN  # last stable offset, of a read_committed read
    complete: bool = False
    error: str | None = None

    @property
    def reached(self) -> bool:
        """Whether everything known to exist was read."""
        return self.target != UNKNOWN and self.position >= self.target

    def why_not(self, cluster: str, isolation: str) -> str:
        """One sentence for a read that was cut off."""
        where = f"{self.topic}-{self.partition} on {cluster}"
        if self.target == UNKNOWN:
            return f"the offsets of {where} could not be fetched in time"
        if isolation == "read_committed" and UNKNOWN < self.stable < self.target:
            return (
                f"{where} was read to {self.position}; its last stable offset stayed at {self.stable}, "
                f"below the high watermark {self.target}: a transaction is open"
            )
        return f"{where} was read to {self.position} of {self.target} when the time was over"


class FinalReader:
    """Reads until every partition is complete or the deadline (time.monotonic()) is reached.

    Partitions are complete independently: one that cannot be read does not make the others incomplete; at most it
    delays the end.
    topics: names on this cluster. per_topic: partitions each is expected to have, for rows of absent topics.
    """

    def __init__(
        self,
        *,
        run_id: str,
        endpoint: Endpoint,
        topics: Sequence[str],
        per_topic: int,
        isolation: str,
        names: Names,
        recorder: Recorder,
        deadline: float,
    ) -> None:
        self.endpoint = endpoint
        self.isolation = isolation
        self.failure: Exception | None = None
        self._topics = topics
        self._per_topic = per_topic
        self._recorder = recorder
        self._deadline = deadline
        self._results: dict[Partition, Result] = {}
        client = names.client(f"{endpoint.cluster}-final-{isolation.removeprefix('read_')}")
        self._reader = Reader(names.process("f"), endpoint.cluster, client, isolation)
        self._group = f"{run_id}-{client}"

    def results(self) -> list[Result]:
        """One per partition found, and one per expected partition of every topic that was not."""
        found = dict(self._results)
        for topic in self._topics:
            if not any(name == topic for name, _ in found):
                for number in range(self._per_topic):
                    error = f"{topic} was not found on {self.endpoint.cluster}: no client got its metadata in time"
                    found[topic, number] = Result(topic, number, error=error)
        return [found[key] for key in sorted(found)]

    def run(self) -> None:
        """The body of the reader's thread. Kafka errors end up in results, others in `failure`."""
        try:
            self._run()
        except Exception as error:
            log.exception("%s: final read failed", self._reader.client)
            self.failure = error
        finally:
            for result in self._results.values():
                if not result.complete and result.error is None:
                    result.error = result.why_not(self.endpoint.cluster, self.isolation)

    def _run(self) -> None:
        bootstrap, client = self.endpoint.bootstrap, self._reader.client
        admin = AdminClient(admin_config(bootstrap, f"{client}-admin"))
        if not self._find_partitions(admin):
            return
        config = consumer_config(bootstrap, client, group=self._group, isolation=self.isolation, partition_eof=True)
        consumer = Consumer(config)
        try:
            while not self._late():
                fresh = [key for key, result in self._results.items() if result.position == UNKNOWN]
                self._ask_offsets(admin)
                self._begin(consumer, fresh)
                self._read(consumer)
                if self._settled(admin):
                    return
                time.sleep(_PAUSE_S)
        finally:
            consumer.close()

    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _left_s(self, at_most: float) -> float:
        return max(0.1, min(at_most, self._deadline - time.monotonic()))

    def _find_partitions(self, admin: AdminClient) -> bool:
        """Fill in the partitions of every existing topic. Waits for absent topics, but not until the deadline."""
        started = time.monotonic()
        patience = min(_ABSENT_S, (self._deadline - started) / 4)
        missing = list(self._topics)
        answered = False
        while missing and not self._late():
            try:
                for topic in list(missing):
                    found = admin.list_topics(topic, timeout=self._left_s(_REQUEST_S)).topics.get(topic)
                    answered = True
                    if found is not None and found.error is None and found.partitions:
                        missing.remove(topic)
                        self._results |= {(topic, number): Result(topic, number) for number in found.partitions}
            except KafkaException as error:
                log.debug("%s: metadata: %s", self._reader.client, error)
            if missing and answered and time.monotonic() - started > patience:
                break
            if missing:
                time.sleep(_PAUSE_S)
        return bool(self._results)

    def _offsets(self, admin: AdminClient, spec: OffsetSpec, level: IsolationLevel) -> dict[Partition, int]:
        """One offset per partition; those whose leader did not answer are left out.

        The client sends no request before it knows every leader, so a partition without one must not be among them.
        """
        wanted = {TopicPartition(*key): spec for key in self._led(admin)}
        if not wanted:
            return {}
        limit = self._left_s(_REQUEST_S)
        futures: dict[TopicPartition, Future[Any]]
        futures = admin.list_offsets(wanted, isolation_level=level, request_timeout=limit)
        wait(futures.values(), timeout=limit + 1)
        return {
            (place.topic, place.partition): future.result().offset
            for place, future in futures.items()
            if future.done() and future.exception() is None
        }

    def _led(self, admin: AdminClient) -> list[Partition]:
        """The partitions that have a leader now; none without an answer."""
        try:
            topics = admin.list_topics(timeout=self._left_s(_REQUEST_S)).topics
        except KafkaException as error:
            log.debug("%s: metadata: %s", self._reader.client, error)
            return []
        leaders = {(name, number): p.leader for name, topic in topics.items() for number, p in topic.partitions.items()}
        return [key for key in self._results if leaders.get(key, -1) >= 0]

    def _ask_offsets(self, admin: AdminClient) -> None:
        if any(result.start == UNKNOWN for result in self._results.values()):
            for key, offset in self._offsets(admin, _EARLIEST, IsolationLevel.READ_UNCOMMITTED).items():
                if self._results[key].start == UNKNOWN:
                    self._results[key].start = offset
        self._update_targets(admin)

    def _update_targets(self, admin: AdminClient) -> set[Partition]:
        """Set targets to the current high watermarks; returns the partitions that answered."""
        ends = self._offsets(admin, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        for key, offset in ends.items():
            self._results[key].target = max(self._results[key].target, offset)
        if self.isolation == "read_committed":
            for key, offset in self._offsets(admin, _LATEST, IsolationLevel.READ_COMMITTED).items():
                self._results[key].stable = offset
        return set(ends)

    def _begin(self, consumer: Consumer, keys: Sequence[Partition]) -> None:
        """Assign unread partitions whose start is known."""
        ready = [key for key in keys if self._results[key].start != UNKNOWN]
        if not ready:
            return
        records = [assign_record(key, self._results[key].start) for key in ready]
        reader = self._reader
        index = self._recorder.invoke(
            reader.process,
            F.ASSIGN.value,
            cluster=reader.cluster,
            client=reader.client,
            isolation=self.isolation,
            records=records,
        )
        consumer.incremental_assign([TopicPartition(*key, self._results[key].start) for key in ready])
        for key in ready:
            self._results[key].position = self._results[key].start
        self._recorder.complete(index, OpType.OK, records=records)

    def _read(self, consumer: Consumer) -> None:
        """Poll until every assigned partition has reached its target, or for a while when some cannot."""
        until = min(self._deadline, time.monotonic() + _REQUEST_S)
        while any(not r.reached for r in self._results.values() if r.position != UNKNOWN):
            polled = poll_once(
                consumer, self._reader, self._recorder, batch=_BATCH, time_s=min(_POLL_S, self._left_s(_POLL_S))
            )
            if polled.records:
                until = min(self._deadline, time.monotonic() + _REQUEST_S)  # extended as long as there is progress
            self._advance(polled)
            if polled.out_of_range:
                self._restart(consumer, polled.out_of_range)
            if self._late() or time.monotonic() >= until:
                return
            if polled.error is not None:
                time.sleep(_PAUSE_S)

    def _advance(self, polled: Polled) -> None:
        for key, (offset, _) in polled.positions.items():
            if key in self._results:
                self._results[key].position = max(self._results[key].position, offset)
        for key, offset in polled.ends.items():
            if key in self._results:
                self._results[key].position = max(self._results[key].position, offset)

    def _restart(self, consumer: Consumer, keys: set[Partition]) -> None:
        """The log start moved past the position, or the log was truncated: restart at the current log start."""
        known = sorted(keys & self._results.keys())
        consumer.incremental_unassign([TopicPartition(*key) for key in known])
        for key in known:
            result = self._results[key]
            result.start = result.position = result.target = UNKNOWN

    def _settled(self, admin: AdminClient) -> bool:
        """Mark complete partitions: those that are reached, and have not grown meanwhile. Returns whether all are."""
        if any(result.reached for result in self._results.values()):
            answered = self._update_targets(admin)
            for key, result in self._results.items():
                result.complete = result.reached and (key in answered or result.complete)
        return all(result.complete for result in self._results.values())
