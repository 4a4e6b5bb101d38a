"""Live consumers: each assigns its share of a cluster's partitions itself and reads until the end of the load.

A mirrored topic may appear late, so topics are looked for until all are there; this never creates one.
Every change of position is an `assign` operation: the first assignment (at the log start), the position after a
client was replaced (unchanged), and the new position when the old one is no longer in the log:

- below the log start (retention): the log start;
- above the log end (the log was truncated, e.g. by an unclean election): the log start as well, because the records
  that replaced the lost ones may already be below the new log end, and must not be missed.

A consumer without commits and group shows what the log returns to readers. It does not cover groups (commits,
rebalances); a subscribing consumer would be another class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from harness.history.ops import F, OpRecord, OpType
from harness.history.recording import Recorder
from workloads.clients.control import StopSignal, Tally
from workloads.clients.error_table import Classified, Context, classify, error_name
from workloads.clients.polling import Partition, Polled, Reader, assign_record, poll_once
from workloads.values import Names

log = logging.getLogger(__name__)

_BATCH: Final = 500
_POLL_S: Final = 1.0
_REQUEST_S: Final = 2.0  # time limit of one metadata or offset request
_PAUSE_S: Final = 0.5


def share(*, topic: int, partitions: int, topics: int, per_topic: int, member: int, members: int) -> list[int]:
    """Partitions of one topic that one of several consumers reads: each partition has at least one reader.

    topic: its number of `topics`; partitions: how many it has; per_topic: how many each topic is expected to have.
    With more members than partitions the surplus members read a partition that another reads too.
    """
    total = topics * per_topic
    mine = member if members <= total else member % total
    modulus = min(members, total)
    return [p for p in range(partitions) if (topic * per_topic + p) % modulus == mine]


def partition_count(consumer: Consumer, topic: str) -> int:
    """The topic's number of partitions; 0 when it does not exist. Raises KafkaException."""
    found = consumer.list_topics(topic, timeout=_REQUEST_S).topics.get(topic)
    if found is None or found.error is not None:
        return 0
    return len(found.partitions)


class ConsumerClient:
    """One consumer client, one process. `run` is the body of its thread.

    topics: names on this cluster. member, members: its number among the cluster's consumers.
    """

    def __init__(
        self,
        *,
        cluster: str,
        role: str,
        topics: Sequence[str],
        per_topic: int,
        member: int,
        members: int,
        isolation: str,
        config: Callable[[str], dict[str, Any]],
        names: Names,
        recorder: Recorder,
        stop: StopSignal,
    ) -> None:
        self.tally = Tally(cluster)
        self._cluster = cluster
        self._role = role
        self._missing = dict(enumerate(topics))
        self._topics = len(topics)
        self._per_topic = per_topic
        self._member = member
        self._members = members
        self._isolation = isolation
        self._config = config
        self._names = names
        self._recorder = recorder
        self._stop = stop
        self._process = names.process("c")
        self._positions: dict[Partition, tuple[int, int | None]] = {}
        self._misplaced: set[Partition] = set()
        self._fatal: KafkaError | None = None
        self._reader = Reader(self._process, cluster, "", isolation)
        self._consumer: Consumer = None  # type: ignore[assignment]  # made by run, in its own thread

    def run(self) -> None:
        """Read until asked to stop; then close the client."""
        self._open()
        try:
            while not self._stop.is_set():
                if self._missing:
                    self._look_for_topics()
                if self._misplaced:
                    self._find_place()
                if self._positions:
                    self._poll()
                else:
                    self._consumer.poll(0)  # serves its log and errors
                    self._stop.wait(_PAUSE_S)
        finally:
            self._consumer.close()

    def _open(self) -> None:
        client = self._names.client(self._role)
        self._fatal = None
        self._reader = Reader(self._process, self._cluster, client, self._isolation)
        self._consumer = Consumer(self._config(client) | {"error_cb": self._on_client_error})

    def _look_for_topics(self) -> None:
        for number, topic in list(self._missing.items()):
            try:
                count = partition_count(self._consumer, topic)
            except KafkaException as error:
                log.debug("%s: looking for %s: %s", self._reader.client, topic, error)
                return
            if not count:
                continue
            del self._missing[number]
            mine = share(
                topic=number,
                partitions=count,
                topics=self._topics,
                per_topic=self._per_topic,
                member=self._member,
                members=self._members,
            )
            self._assign({(topic, partition): (OFFSET_BEGINNING, None) for partition in mine})

    def _assign(self, places: Mapping[Partition, tuple[int, int | None]], *, error: str | None = None) -> None:
        """Start reading at these positions, and record it. error: the cause."""
        if not places:
            return
        records: list[OpRecord] = []
        new: list[TopicPartition] = []
        for partition, (offset, epoch) in places.items():
            records.append(assign_record(partition, None if offset < 0 else offset, epoch))
            new.append(_place(partition, offset, epoch))
        reader = self._reader
        index = self._recorder.invoke(
            reader.process,
            F.ASSIGN.value,
            cluster=self._cluster,
            client=reader.client,
            isolation=self._isolation,
            records=records,
        )
        again = [place for place in new if (place.topic, place.partition) in self._assigned()]
        if again:
            self._consumer.incremental_unassign(again)
        self._consumer.incremental_assign(new)
        self._positions.update(places)
        self._recorder.complete(index, OpType.OK, records=records, error=error)

    def _assigned(self) -> set[Partition]:
        return {(place.topic, place.partition) for place in self._consumer.assignment()}

    def _poll(self) -> None:
        polled = poll_once(
            self._consumer, self._reader, self._recorder, batch=_BATCH, time_s=_POLL_S, stopped=self._stop.is_set
        )
        self._positions.update(polled.positions)
        self._misplaced |= polled.out_of_range & self._positions.keys()
        if polled.records:
            self.tally.ok_polls += 1
            self.tally.polled_records += len(polled.records)
        if polled.doomed or self._fatal is not None:
            self._replace(polled)
        elif polled.error is not None:
            self._stop.wait(_PAUSE_S)  # errors repeat while a cluster is down

    def _find_place(self) -> None:
        """A new position for partitions whose old one is not in the log. Retried later without an answer."""
        places: dict[Partition, tuple[int, int | None]] = {}
        for partition in sorted(self._misplaced):
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=_REQUEST_S)
            except KafkaException as error:
                log.debug("%s: watermarks of %s: %s", self._reader.client, partition, error)
                break
            place = self._positions[partition][0]
            log.info("%s: %s is at %d, the log is %d…%d", self._reader.client, partition, place, low, high)
            places[partition] = (low, None)
        self._misplaced -= places.keys()
        self._assign(places, error="OFFSET_OUT_OF_RANGE")

    def _replace(self, polled: Polled) -> None:
        """A new client, which continues at the old one's position."""
        what, words = self._why(polled)
        old = self._reader.client
        log.info("%s: replaced after %s (%s)", old, what.name, words)
        index = self._recorder.invoke(self._process, F.CRASH.value, cluster=self._cluster, client=old)
        self._recorder.complete(index, OpType.OK, error=what.name, error_text=words)
        self._consumer.close()
        self._stop.wait(_PAUSE_S)
        self._open()
        self._assign(dict(self._positions), error=what.name)

    def _why(self, polled: Polled) -> tuple[Classified, str | None]:
        if polled.doomed and polled.error is not None:
            return polled.error, polled.error_text
        assert self._fatal is not None
        return classify(self._fatal, context=Context.POLL), self._fatal.str()

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        log.debug("%s: %s: %s", self._reader.client, error_name(error), error)


def _place(partition: Partition, offset: int, leader_epoch: int | None) -> TopicPartition:
    if leader_epoch is None or offset < 0:
        return TopicPartition(*partition, offset)
    return TopicPartition(*partition, offset, leader_epoch=leader_epoch)


def roles(cluster: str, kind: str, count: int) -> Iterable[str]:
    """Names of clients without incarnation: `A-producer-0`, `A-producer-1`, …"""
    return (f"{cluster}-{kind}-{number}" for number in range(count))
