"""Members of share groups: records are acquired, processed, and acknowledged by the next poll or a commit.

A share group has no committed offsets of its members; the mirror syncs its start offset, and snapshots show it.
Acknowledgements are not operations of their own: a polled record is accepted, or delivered again to another member.

Not covered: releases, rejections, delivery counts, and locks that expire.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import IllegalStateException, KafkaError, ShareConsumer

from harness.history.ops import F, OpType
from harness.history.recording import Recorder
from workloads.clients.control import StopSignal, Tally
from workloads.clients.error_table import CLIENT_ERRORS, kafka_error
from workloads.clients.group_members import Place
from workloads.clients.polling import Polled, Reader, begin_poll, end_poll, take
from workloads.group_roles import GroupRole
from workloads.values import Names

log = logging.getLogger(__name__)

_POLL_S: Final = 0.25
_COMMIT_S: Final = 0.5
_PAUSE_S: Final = 0.3


class ShareMember:
    """One member, one process, at one place. `run` is the body of its thread."""

    def __init__(
        self,
        *,
        name: str,
        group: str,
        role: GroupRole,
        place: Place,
        config: Callable[[str], dict[str, Any]],
        names: Names,
        recorder: Recorder,
        stop: StopSignal,
    ) -> None:
        cluster = place.stay.cluster
        self.tally = Tally(cluster)
        self._name = name
        self._place = place
        self._topics = list(place.topics)
        self._config = config
        self._names = names
        self._recorder = recorder
        self._stop = stop
        self._fatal: KafkaError | None = None
        self._reader = Reader(names.process("q"), cluster, "", role.isolation, group, role.reset)

    def run(self) -> None:
        """Poll and commit until asked to stop; a client with a fatal error is replaced."""
        self._place.await_ready(self._stop)
        while not self._stop.is_set():
            consumer = self._open()
            try:
                due = time.monotonic() + _COMMIT_S
                while not self._stop.is_set() and self._fatal is None:
                    self._poll(consumer)
                    if time.monotonic() >= due:
                        self._acknowledge(consumer)
                        due = time.monotonic() + _COMMIT_S
                if self._fatal is not None:
                    self._crash(self._fatal)
            finally:
                self._close(consumer)

    def _open(self) -> ShareConsumer:
        reader = self._reader
        client = self._names.client(self._name)
        self._reader = Reader(reader.process, reader.cluster, client, reader.isolation, reader.group, reader.reset)
        self._fatal = None
        consumer = ShareConsumer(self._config(client) | {"error_cb": self._on_client_error})
        self._did(F.SUBSCRIBE, lambda: consumer.subscribe(self._topics))
        return consumer

    def _poll(self, consumer: ShareConsumer) -> None:
        reader, polled = self._reader, Polled()
        index = begin_poll(reader, self._recorder)
        try:
            take(list(consumer.poll(timeout=_POLL_S)), polled)
        except CLIENT_ERRORS as raised:
            self._failed(raised, polled)
        end_poll(index, polled, self._recorder)
        if polled.records:
            self.tally.ok_polls += 1
            self.tally.polled_records += len(polled.records)
        if polled.doomed and self._fatal is None:
            self._fatal = KafkaError(KafkaError._FATAL, polled.error_text)
        elif polled.error is not None:
            self._stop.wait(_PAUSE_S)

    def _acknowledge(self, consumer: ShareConsumer) -> None:
        try:
            consumer.commit_sync(timeout=_POLL_S * 4)
        except CLIENT_ERRORS as raised:
            log.debug("%s: acknowledgement: %s", self._reader.client, raised)

    @staticmethod
    def _failed(raised: BaseException, polled: Polled) -> None:
        error = kafka_error(raised)
        if error is None:
            raise raised
        polled.failed(error)

    def _crash(self, error: KafkaError) -> None:
        log.info("%s: replaced after %s", self._reader.client, error)
        self._did(F.CRASH, lambda: self._stop.wait(_PAUSE_S), error=error)

    def _did(self, what: F, call: Callable[[], object], error: KafkaError | None = None) -> None:
        reader = self._reader
        index = self._recorder.invoke(
            reader.process, what.value, cluster=reader.cluster, client=reader.client, group=reader.group
        )
        call()
        name, words = (error.name(), error.str()) if error is not None else (None, None)
        self._recorder.complete(index, OpType.OK, error=name, error_text=words)

    def _close(self, consumer: ShareConsumer) -> None:
        """Accept the polled records, and leave the group."""
        try:
            consumer.close()
        except (*CLIENT_ERRORS, IllegalStateException) as error:
            log.debug("%s: close: %s", self._reader.client, error)

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        log.debug("%s: %s", self._reader.client, error)
