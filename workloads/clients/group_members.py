"""Members of consumer groups: they subscribe, poll, commit what they have processed, and leave.

A member's partitions change within a poll, in which librdkafka calls back, and a process has at most one pending
operation. A callback therefore ends the poll's operation with the records until then, records its own operations,
and begins another poll operation for the rest: messages arrive one by one, so none is put on the wrong side. It commits
processed offsets of revoked partitions (`commit_offset`), names assigned or revoked ones (`assign`, action rebalance),
and fetches the group's committed offsets of assigned ones (`fetch_offset`). Where there is none, or it is outside the
log, `auto.offset.reset` decides, as for any application.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from harness.history.ops import Action, F, OpRecord, OpType
from harness.history.recording import Recorder
from workloads.clients.control import StopSignal, Tally
from workloads.clients.error_table import CLIENT_ERRORS, Context, classify, kafka_error
from workloads.clients.group_offsets import commit, committed
from workloads.clients.polling import Partition, Polled, end_poll, take
from workloads.group_roles import GroupRole, Stay
from workloads.values import Names, next_process

log = logging.getLogger(__name__)

COMMIT_S: Final = 0.5
LONGEST_STAY_S: Final = 6.0  # by so much a stay is extended until the group has committed an offset
SYNCED_S: Final = 10.0  # how long a moving member waits for the mirror to sync its group's offsets
STEADY_S: Final = 3.0  # and how long for translated offsets, which may stay lower, to stop rising
READY_S: Final = 3.0
_READY_STEP_S: Final = 0.05
_BATCH: Final = 500
_POLL_S: Final = 0.25
_SLICE_S: Final = 0.05
_REQUEST_S: Final = 2.0
_PAUSE_S: Final = 0.3


@dataclass(frozen=True, kw_only=True)
class Place:
    """A stay, and the topics by their names on its cluster. ready: condition to wait for, bounded, before it joins."""

    stay: Stay
    topics: Sequence[str]
    ready: Callable[[], bool] | None = None

    def await_ready(self, stop: StopSignal) -> None:
        """Wait until it is ready, for at most some seconds."""
        until = time.monotonic() + READY_S
        while self.ready is not None and not self.ready() and time.monotonic() < until:
            if stop.wait(_READY_STEP_S):
                return


class Member:
    """One member, one process. `run` is the body of its thread; it works at its places one after the other.

    name: its role without incarnation. configs: cluster → function from a client's name to its configuration.
    """

    def __init__(
        self,
        *,
        name: str,
        group: str,
        role: GroupRole,
        places: Sequence[Place],
        configs: Mapping[str, Callable[[str], dict[str, Any]]],
        names: Names,
        recorder: Recorder,
        stop: StopSignal,
    ) -> None:
        self.tally = Tally(places[-1].stay.cluster)
        self._name = name
        self._group = group
        self._role = role
        self._places = places
        self._configs = configs
        self._names = names
        self._recorder = recorder
        self._stop = stop
        self._process = names.process("g")
        self._place = places[0]
        self._client = ""
        self._consumer: Consumer = None  # type: ignore[assignment]  # made by run, in its own thread
        self._polled = Polled()  # of the pending poll
        self._poll_index: int | None = None
        self._fatal: KafkaError | None = None
        self._next: dict[Partition, tuple[int, int | None]] = {}  # processed: next offset, leader epoch
        self._committed: dict[Partition, int] = {}
        self._stands = False  # whether it has committed at this place
        self._reached: dict[tuple[int, int], int] = {}  # committed at this place, by number of topic and partition
        self._left_at: dict[tuple[int, int], int] = {}  # and at the place before

    def run(self) -> None:
        """Work at each place until its time is over, at the last one until asked to stop."""
        for place in self._places:
            if self._stop.is_set():
                return
            self._place = place
            self._stands = False
            self._left_at, self._reached = self._reached, {}
            place.await_ready(self._stop)
            self._work(place.stay.seconds)

    # --- one stay ----------------------------------------------------------------------------------------------

    def _work(self, seconds: float | None) -> None:
        """seconds: the length of a stay that ends by itself; it is extended until the group has committed an offset, or
        there would be nothing for a mirror to sync."""
        until = None if seconds is None else time.monotonic() + seconds

        def over() -> bool:
            if until is None or self._stop.is_set():
                return self._stop.is_set()
            late = time.monotonic() - until
            return late >= 0 and (self._stands or late >= LONGEST_STAY_S)

        while not over():
            self._open()
            try:
                if self._place.stay.synced:
                    self._await_synced()
                self._subscribe()
                due = time.monotonic() + COMMIT_S
                while not over() and self._fatal is None:
                    self._poll(over)
                    if time.monotonic() >= due:
                        self._commit()
                        due = time.monotonic() + COMMIT_S
                if self._fatal is None:
                    self._commit()
                else:
                    self._crash(self._fatal)
            finally:
                self._consumer.close()  # leaves the group

    def _open(self) -> None:
        self._client = self._names.client(f"{self._place.stay.cluster}{self._name[1:]}")
        self._fatal = None
        self._next.clear()
        self._committed.clear()
        config = self._configs[self._place.stay.cluster](self._client)
        self._consumer = Consumer(config | {"error_cb": self._on_client_error})

    def _subscribe(self) -> None:
        index = self._invoke(F.SUBSCRIBE)
        self._consumer.subscribe(
            list(self._place.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._recorder.complete(index, OpType.OK)

    def _poll(self, over: Callable[[], bool]) -> None:
        """One poll; more than one operation where the assignment changed within it."""
        self._begin_poll()
        until = time.monotonic() + _POLL_S
        while True:
            message = None
            try:
                message = self._consumer.poll(0 if self._polled.records else _SLICE_S)
            except CLIENT_ERRORS as raised:
                error = kafka_error(raised)
                if error is None:
                    raise
                self._polled.failed(error)
            polled = self._polled  # another object if a callback ran
            if message is not None:
                take([message], polled)
            full = len(polled.records) >= _BATCH or (polled.records and message is None)
            if full or polled.error is not None or over() or time.monotonic() >= until:
                break
        self._end_poll()
        if polled.doomed and self._fatal is None:
            self._fatal = KafkaError(KafkaError._FATAL, polled.error_text)
        elif polled.error is not None:
            self._stop.wait(_PAUSE_S)  # errors repeat while a cluster is down

    def _begin_poll(self) -> None:
        self._polled = Polled()
        self._poll_index = self._invoke(F.POLL)

    def _end_poll(self) -> None:
        index, self._poll_index = self._poll_index, None
        if index is None:
            return
        polled = self._polled
        self._next.update(polled.positions)
        if polled.records:
            self.tally.ok_polls += 1
            self.tally.polled_records += len(polled.records)
        end_poll(index, polled, self._recorder)

    # --- changes of the assignment -----------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        with self._between_polls():
            self._assigned(partitions)
            if partitions:
                self._fetch_offsets([(p.topic, p.partition) for p in partitions])

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        with self._between_polls():
            self._commit()
            self._assigned(partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        with self._between_polls():
            self._assigned(partitions)

    @contextmanager
    def _between_polls(self) -> Iterator[None]:
        """Callbacks run within a poll: the records before are one operation, the records after another."""
        polling = self._poll_index is not None
        self._end_poll()
        yield
        if polling:
            self._begin_poll()

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Record that these partitions were assigned or revoked."""
        for p in partitions:
            self._next.pop((p.topic, p.partition), None)
            self._committed.pop((p.topic, p.partition), None)
        records = [OpRecord(Action.REBALANCE.value, p.topic, p.partition) for p in partitions]
        index = self._invoke(F.ASSIGN, records)
        self._recorder.complete(index, OpType.OK, records=records)

    # --- offsets -----------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit what was processed since the last commit, as one operation."""
        due = {p: at for p, at in self._next.items() if self._committed.get(p) != at[0]}
        if not due:
            return
        records = [
            OpRecord(Action.COMMIT.value, t, p, offset, leader_epoch=epoch, processed=offset - 1)
            for (t, p), (offset, epoch) in sorted(due.items())
        ]
        index = self._invoke(F.COMMIT_OFFSET, records)
        answer = commit(self._consumer, due)
        words = answer.error.str() if answer.error is not None else None
        self._recorder.complete(index, answer.type, records=records, error=answer.name, error_text=words)
        if answer.type is OpType.OK:
            self._stands = True
            self._committed.update({p: at[0] for p, at in due.items()})
            topics = self._place.topics
            self._reached.update({(topics.index(t), p): at[0] for (t, p), at in due.items()})
        elif answer.type is OpType.INFO:
            self._process = next_process(self._process)
        if answer.error is not None and answer.error.fatal():
            self._fatal = self._fatal or answer.error

    def _fetch_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The group's committed offsets, as an operation; empty without an answer."""
        index = self._invoke(F.FETCH_OFFSET, [OpRecord(Action.FETCH.value, t, p) for t, p in partitions])
        offsets, error = committed(self._consumer, partitions)
        if error is not None:
            what = classify(error, context=Context.QUERY)
            self._recorder.complete(index, OpType.FAIL, error=what.name, error_text=error.str())
            return {}
        records = [OpRecord(Action.FETCH.value, t, p, offsets.get((t, p))) for t, p in partitions]
        self._recorder.complete(index, OpType.OK, records=records)
        return offsets

    def _await_synced(self) -> None:
        """Wait until the mirror has written the offsets with which the group left the place before, as an operator does
        before moving the consumers. A mirror that translates offsets may write lower ones: wait until they stay."""
        began = since = time.monotonic()
        seen: dict[Partition, int] = {}
        while (now := time.monotonic()) - began < SYNCED_S and not self._stop.is_set():
            try:
                topics = {t: self._consumer.list_topics(t, timeout=_REQUEST_S).topics[t] for t in self._place.topics}
            except KafkaException as error:
                log.debug("%s: looking for topics: %s", self._client, error)
                topics = {}
            partitions = [(t, p) for t, found in topics.items() for p in sorted(found.partitions)]
            offsets = self._fetch_offsets(partitions) if partitions else {}
            if offsets != seen:
                seen, since = offsets, now
            if partitions and len(offsets) == len(partitions):
                numbers = {(number, p): offsets[t, p] for number, t in enumerate(topics) for p in topics[t].partitions}
                if now - since >= STEADY_S or all(numbers[at] >= left for at, left in self._left_at.items()):
                    return
            self._stop.wait(_PAUSE_S)

    # --- helpers ------------------------------------------------------------------------------------------

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        log.debug("%s: %s", self._client, error)

    def _crash(self, error: KafkaError) -> None:
        """Record that this client is replaced; the loop makes the next one."""
        what = classify(error, context=Context.POLL)
        log.info("%s: replaced after %s (%s)", self._client, what.name, error.str())
        self._recorder.complete(self._invoke(F.CRASH), OpType.OK, error=what.name, error_text=error.str())
        self._stop.wait(_PAUSE_S)

    def _invoke(self, what: F, records: Sequence[OpRecord] = ()) -> int:
        return self._recorder.invoke(
            self._process,
            what.value,
            cluster=self._place.stay.cluster,
            client=self._client,
            group=self._group,
            isolation=self._role.isolation,
            reset=self._role.reset,
            records=records,
        )
