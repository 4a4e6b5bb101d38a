"""Producers outside transactions: one Kafka client for several processes, driven by its delivery reports.

Each process has at most one pending send; the client has as many as it has processes, so the throughput is not limited
by round trips. Everything of one client happens in one thread (librdkafka serves delivery reports inside `poll`), so
the order of invocations is the order in which records entered the client.

A process whose send ends as `info` is retired, and replaced under another name. A client with a fatal error is
discarded (`crash`), and replaced by a new incarnation. The same happens at the end of a client's life, when that is
limited: jobs and lambdas write little and return as new clients.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.history.ops import F, OpType
from harness.history.recording import Recorder
from workloads.clients.control import StopSignal, Tally
from workloads.clients.error_table import CLIENT_ERRORS, Classified, Context, classify, kafka_error
from workloads.clients.kafka_config import ONLY_ATTEMPT_S
from workloads.clients.rate import TokenBucket
from workloads.clients.sends import STOPPED, Send, decide, new_send, offset_fate, with_offsets
from workloads.plan import SendPlan
from workloads.values import Names, next_process

log = logging.getLogger(__name__)

_IDLE_POLL_S = 0.05
_DRAIN_STEP_S = 0.05
_REPLACE_PAUSE_S = 0.5
_ONLY_ATTEMPT_NS = int(ONLY_ATTEMPT_S * 1e9)


class SendClient:
    """One producer client and its processes. `run` is the body of its thread.

    role: its name without incarnation, `A-producer-0`. config: client name → configuration.
    life: operations of one incarnation; 0: no limit.
    """

    def __init__(
        self,
        *,
        cluster: str,
        role: str,
        processes: int,
        config: Callable[[str], dict[str, Any]],
        plan: SendPlan,
        names: Names,
        recorder: Recorder,
        bucket: TokenBucket,
        stop: StopSignal,
        life: int = 0,
    ) -> None:
        self.tally = Tally(cluster)
        self._cluster = cluster
        self._role = role
        self._config = config
        self._plan = plan
        self._names = names
        self._recorder = recorder
        self._now_ns = recorder.clock.now_ns
        self._bucket = bucket
        self._stop = stop
        self._life = life or sys.maxsize
        self._left = 0  # operations that this incarnation may still begin
        self._idle: deque[str] = deque(names.process("p") for _ in range(processes))
        self._under_way: dict[int, Send] = {}
        self._doomed: Classified | None = None
        self._doomed_text = ""
        self._giving_up: str | None = None
        self._broken: Exception | None = None
        self._client = ""
        self._producer: Producer = None  # type: ignore[assignment]  # made by run, in its own thread

    def run(self) -> None:
        """Send until asked to stop, then let pending sends end, and close the client."""
        self._open()
        try:
            while not self._stop.is_set():
                for _ in range(self._bucket.take(min(len(self._idle), self._left))):
                    self._send(self._idle.popleft())
                ready = self._idle and self._left
                self._serve(min(self._bucket.wait_s(), _IDLE_POLL_S) if ready else _IDLE_POLL_S)
                if self._doomed is not None:
                    self._replace(self._doomed)
                elif not self._left and not self._under_way:
                    self._close()
                    self._open()
            self._drain(self._stop.remaining_s(at_most=3600) / 2)
        finally:
            self._close()

    def _open(self) -> None:
        self._client = self._names.client(self._role)
        self._plan.use_client(self._client)
        self._doomed = None
        self._left = self._life
        self._producer = Producer(self._config(self._client) | {"error_cb": self._on_client_error})

    def _serve(self, time_s: float) -> None:
        """Serve the client's callbacks. May raise a fatal error of the client."""
        try:
            self._producer.poll(time_s)
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            if error is None:
                raise
            self._on_client_error(error)
        if self._broken is not None:
            raise self._broken

    def _send(self, process: str) -> None:
        self._left -= 1
        records = self._plan.records(process)
        index = self._recorder.invoke(
            process, F.SEND.value, cluster=self._cluster, client=self._client, records=records
        )
        send = new_send(index, process, records, self._now_ns())
        self._under_way[index] = send
        produce, delivered = self._producer.produce, self._delivered
        for i, record in enumerate(records):
            _, topic, to, _, value, key, *_ = record
            try:
                produce(topic, value, key, to, on_delivery=partial(delivered, send, i))  # type: ignore[arg-type]
            except BufferError:
                self._settle(send, i, classify(KafkaError(KafkaError._QUEUE_FULL), context=Context.ENQUEUE))
            except KafkaException as error:
                self._refused(send, i, error.args[0], Context.ENQUEUE)

    def _delivered(self, send: Send, i: int, error: KafkaError | None, message: Message) -> None:
        """A delivery report. The hot path: one call per record."""
        if error is None:
            send.fates[i] = offset_fate(message.offset())
            send.left -= 1
            if not send.left and not send.done:
                self._finish(send)
        else:
            self._refused(send, i, error, Context.DELIVERY)

    def _refused(self, send: Send, i: int, error: KafkaError, context: Context) -> None:
        young = self._now_ns() - send.started_ns < _ONLY_ATTEMPT_NS
        what = classify(error, context=context, only_attempt=young)
        if what.replace_client and self._doomed is None:
            self._doomed, self._doomed_text = what, error.str()
        send.error_text = send.error_text or error.str()
        self._settle(send, i, what)

    def _settle(self, send: Send, i: int, fate: Classified) -> None:
        send.fates[i] = fate
        send.left -= 1
        if not send.left and not send.done:
            self._finish(send)

    def _finish(self, send: Send) -> None:
        """Complete the operation with the known results of its records, and free its process."""
        send.done = True
        del self._under_way[send.index]
        type_, name = decide(send.fates)
        if type_ is OpType.INFO:
            name = self._giving_up or name
        records = with_offsets(send.records, send.fates)
        try:
            self._recorder.complete(send.index, type_, records=records, error=name, error_text=send.error_text)
        except Exception as error:  # within a callback: the client might swallow it
            self._broken = self._broken or error
        tally = self.tally
        if type_ is OpType.OK:
            tally.ok_sends += 1
            tally.acked_records += len(send.records)
            self._idle.append(send.process)
            return
        tally.acked_records += sum(isinstance(fate, int) for fate in send.fates)
        if type_ is OpType.FAIL:
            tally.failed_sends += 1
            self._idle.append(send.process)
        else:
            tally.info_sends += 1
            self._idle.append(next_process(send.process))

    def _on_client_error(self, error: KafkaError) -> None:
        """Errors of the client as a whole. Only fatal ones matter: librdkafka recovers from the others by itself."""
        if error.fatal() and self._doomed is None:
            self._doomed, self._doomed_text = classify(error, context=Context.DELIVERY), error.str()
        log.debug("%s: %s", self._client, error)

    def _replace(self, why: Classified) -> None:
        old, text = self._client, self._doomed_text
        log.info("%s: replaced after %s (%s)", old, why.name, text)
        self._abandon(why.name)
        self._close()
        process = self._idle[0]
        index = self._recorder.invoke(process, F.CRASH.value, cluster=self._cluster, client=old)
        self._recorder.complete(index, OpType.OK, error=why.name, error_text=text)
        self._stop.wait(_REPLACE_PAUSE_S)  # do not flood a cluster on which every client fails at once
        self._open()

    def _drain(self, patience_s: float) -> None:
        """Let pending sends end by themselves for a while, then give them up."""
        until = time.monotonic() + patience_s
        while self._under_way and time.monotonic() < until:
            self._serve(_DRAIN_STEP_S)
        self._abandon(STOPPED)

    def _abandon(self, error: str) -> None:
        """Purge the client, process the resulting reports, and complete pending operations."""
        if self._under_way:
            self._giving_up = error
            self._producer.purge()
            self._serve(_DRAIN_STEP_S)
            for send in list(self._under_way.values()):
                self._finish(send)
            self._giving_up = None

    def _close(self) -> None:
        if self._producer is not None:
            for send in list(self._under_way.values()):  # only after an exception
                send.done = True
            self._under_way.clear()
            self._producer.purge()
            with contextlib.suppress(*CLIENT_ERRORS):  # its last callbacks; it is discarded anyway
                self._producer.close()
