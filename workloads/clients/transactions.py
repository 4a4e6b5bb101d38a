"""Transactional producers: begin, records, and commit or a deliberate abort, as one operation `txn`.

How a transaction ends, and the resulting type of its operation (`decide_txn`):

| commit tried | commit | abort | operation |
|---|---|---|---|
| yes | succeeded | – | `ok`, with offsets |
| yes | failed | succeeded | `fail`: the abort is the answer |
| yes | failed | failed, or no longer allowed | `info`: the commit may have been stored, or may still be |
| no | – | succeeded | `fail`, error `aborted` when it was deliberate, else its cause |
| no | – | failed | `fail`: it cannot be committed any more; it times out, or the next incarnation aborts it |

Records are flushed before a deliberate abort, so that aborted data reaches the log (librdkafka drops queued records);
their offsets are kept on the records. Whenever an abort failed or the result is unknown, the client is replaced: the
next incarnation has the same transactional.id, and its `init_transactions` fences the old one.
A transactional producer has one process; several producers give concurrency.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.history.ops import F, OpRecord, OpType
from harness.history.recording import Recorder
from workloads.clients.control import StopSignal, Tally
from workloads.clients.error_table import CLIENT_ERRORS, Classified, Context, classify, kafka_error
from workloads.clients.rate import TokenBucket
from workloads.clients.sends import STOPPED, Fate, offset_fate, with_offsets
from workloads.plan import SendPlan
from workloads.values import Names, next_process

log = logging.getLogger(__name__)

ABORTED: Final = "aborted"
_STEP_S: Final = 1.0  # one blocking call; librdkafka continues the same commit or abort when it is called again
_COMMIT_S: Final = 30.0
_ABORT_S: Final = 15.0
_PAUSE_S: Final = 0.5
_IDLE_S: Final = 0.05


@dataclass(slots=True)
class Txn:
    """One pending transaction, and the results of its steps. `error`: the first that made it impossible to continue."""

    name: str
    records: list[OpRecord]
    fates: list[Fate] = field(default_factory=list)
    deliberate_abort: bool = False
    commit_tried: bool = False
    committed: bool = False
    aborted: bool = False
    error: Classified | None = None
    error_text: str | None = None
    stopped: bool = False

    def failed(self, error: KafkaError, context: Context) -> None:
        """Remember the first error."""
        if self.error is None:
            self.error, self.error_text = classify(error, context=context), error.str()


def decide_txn(txn: Txn) -> tuple[OpType, str | None]:
    """Type and error name of the operation's completion, by the table above."""
    if txn.committed:
        return OpType.OK, None
    name = txn.error.name if txn.error is not None else None
    if txn.stopped and (name is None or not txn.aborted):
        name = STOPPED
    if txn.deliberate_abort and txn.aborted and name is None:
        name = ABORTED
    if txn.aborted or not txn.commit_tried:
        return OpType.FAIL, name
    return OpType.INFO, name


class TxnClient:
    """One transactional producer and its process. `run` is the body of its thread.

    role: its name without incarnation. config: client name → configuration, transactional.id included.
    hold_s: how long each transaction is kept open after its records were written. wait_s: before the first one.
    life: transactions of one incarnation; 0: no limit.
    """

    def __init__(
        self,
        *,
        cluster: str,
        role: str,
        config: Callable[[str], dict[str, Any]],
        plan: SendPlan,
        names: Names,
        recorder: Recorder,
        bucket: TokenBucket,
        stop: StopSignal,
        hold_s: float = 0.0,
        wait_s: float = 0.0,
        life: int = 0,
    ) -> None:
        self.tally = Tally(cluster)
        self._cluster = cluster
        self._role = role
        self._config = config
        self._plan = plan
        self._names = names
        self._recorder = recorder
        self._bucket = bucket
        self._stop = stop
        self._hold_s = hold_s
        self._wait_s = wait_s
        self._life = life or sys.maxsize
        self._left = 0  # transactions that this incarnation may still begin
        self._process = names.process("p")
        self._count = 0
        self._fatal: KafkaError | None = None
        self._client = ""
        self._producer: Producer | None = None

    def run(self) -> None:
        """One transaction after the other until asked to stop; then close the client."""
        self._stop.wait(self._wait_s)
        try:
            while not self._stop.is_set():
                if self._producer is None and not self._open():
                    self._stop.wait(_PAUSE_S)
                elif self._bucket.take(1):
                    self._transaction()
                    if not self._left:
                        self._close()
                else:
                    self._stop.wait(min(self._bucket.wait_s(), _IDLE_S))
        finally:
            self._close()

    def _open(self) -> bool:
        """A new incarnation, initialised: earlier transactions of this transactional.id are over. False: not yet."""
        self._client = self._names.client(self._role)
        self._plan.use_client(self._client)
        self._fatal = None
        self._left = self._life
        producer = Producer(self._config(self._client) | {"error_cb": self._on_client_error})
        self._producer = producer
        while not self._stop.is_set():
            error = self._call(producer.init_transactions, _STEP_S)
            if error is None:
                return True
            if not error.retriable():
                log.info("%s: cannot initialise: %s", self._client, error)
                break
        self._close()
        return False

    def _transaction(self) -> None:
        self._left -= 1
        txn = Txn(name=f"{self._client}:{self._count}", records=self._plan.records(self._process))
        self._count += 1
        txn.fates = [None] * len(txn.records)
        txn.deliberate_abort = self._plan.aborts()
        index = self._recorder.invoke(
            self._process, F.TXN.value, cluster=self._cluster, client=self._client, txn=txn.name, records=txn.records
        )
        self._steps(txn)
        if self._fatal is not None:  # more specific than its effects on the records
            txn.error, txn.error_text = classify(self._fatal, context=Context.DELIVERY), self._fatal.str()
        type_, name = decide_txn(txn)
        self._recorder.complete(
            index, type_, records=with_offsets(txn.records, txn.fates), error=name, error_text=txn.error_text
        )
        if type_ is OpType.OK:
            self.tally.ok_sends += 1
            self.tally.acked_records += len(txn.records)
        elif type_ is OpType.FAIL:
            self.tally.failed_sends += 1
        else:
            self.tally.info_sends += 1
            self._process = next_process(self._process)
        if not (txn.committed or txn.aborted) or self._fatal is not None:
            self._replace(txn)

    def _steps(self, txn: Txn) -> None:
        """The transaction itself. Its progress is left in `txn`."""
        producer = self._producer
        assert producer is not None
        error = self._call(producer.begin_transaction)
        if error is not None:
            txn.failed(error, Context.TXN_BEGIN)
            return
        self._produce(producer, txn)
        while txn.error is None and None in txn.fates and not self._given_up(txn):
            error = self._call(producer.flush, _STEP_S)
            if error is not None:
                txn.failed(error, Context.DELIVERY)
        if txn.error is None and self._hold_s:
            self._hold(producer)
        if txn.error is None and not txn.deliberate_abort and not txn.stopped:
            self._commit(producer, txn)
        if not txn.committed and self._fatal is None:
            self._abort(producer, txn)

    def _produce(self, producer: Producer, txn: Txn) -> None:
        for i, record in enumerate(txn.records):
            _, topic, to, _, value, key, *_ = record
            try:
                producer.produce(topic, value, key, to, on_delivery=partial(self._delivered, txn, i))  # type: ignore[arg-type]
            except BufferError:
                txn.failed(KafkaError(KafkaError._QUEUE_FULL), Context.ENQUEUE)
                return
            except KafkaException as error:
                txn.failed(error.args[0], Context.ENQUEUE)
                return

    @staticmethod
    def _delivered(txn: Txn, i: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            txn.fates[i] = offset_fate(message.offset())
        else:
            txn.fates[i] = classify(error, context=Context.DELIVERY)
            txn.failed(error, Context.DELIVERY)

    def _hold(self, producer: Producer) -> None:
        """Leave the transaction open for a while, serving the client meanwhile."""
        until = time.monotonic() + self._hold_s
        while time.monotonic() < until and not self._stop.is_set():
            error = self._call(producer.poll, _IDLE_S)
            if error is not None:
                return  # a fatal error: the next steps fail with it, too

    def _commit(self, producer: Producer, txn: Txn) -> None:
        txn.commit_tried = True
        until = time.monotonic() + _COMMIT_S
        while True:
            error = self._call(producer.commit_transaction, _STEP_S)
            if error is None:
                txn.committed = True
            elif error.retriable() and time.monotonic() < until and not self._given_up(txn):
                continue
            else:
                txn.failed(error, Context.TXN_COMMIT)
            return

    def _abort(self, producer: Producer, txn: Txn) -> None:
        until = time.monotonic() + _ABORT_S
        while True:
            error = self._call(producer.abort_transaction, _STEP_S)
            if error is None:
                txn.aborted = True
            elif error.retriable() and time.monotonic() < until and not self._given_up(txn):
                continue
            else:
                txn.failed(error, Context.TXN_ABORT)
            return

    def _call(self, call: Callable[..., object], *arguments: float) -> KafkaError | None:
        """Make a blocking call of the client; returns its Kafka error, and notes if that ends the client."""
        try:
            call(*arguments)
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            if error is None:
                raise
            if error.fatal():
                self._fatal = self._fatal or error
            return error
        return None

    def _given_up(self, txn: Txn) -> bool:
        """Whether the time is up: half of it is for the pending steps, the rest for the abort."""
        if self._stop.is_set() and self._stop.remaining_s(at_most=3600) < _STEP_S * 3:
            txn.stopped = True
        return txn.stopped

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal() and self._fatal is None:
            self._fatal = error
        log.debug("%s: %s", self._client, error)

    def _replace(self, txn: Txn) -> None:
        """Discard the client, and record that; `run` makes the next one."""
        name = txn.error.name if txn.error is not None else STOPPED
        log.info("%s: replaced after %s (%s)", self._client, name, txn.error_text)
        index = self._recorder.invoke(self._process, F.CRASH.value, cluster=self._cluster, client=self._client)
        self._recorder.complete(index, OpType.OK, error=name, error_text=txn.error_text)
        self._close()

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            del producer  # not close(): that would abort, without a time limit
