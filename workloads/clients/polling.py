"""One recorded poll: shared by live consumers and final readers.

A `poll` operation lasts until something was read, or until its time is over (about a second), so an idle consumer
records one empty `ok` a second: proof that it is alive. An error without records completes as `fail` (nothing was
read, by definition); an error together with records is a note on an `ok`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message

from harness.history.ops import Action, F, OpRecord, OpType
from harness.history.recording import Recorder
from workloads.clients.error_table import CLIENT_ERRORS, Classified, Context, classify, kafka_error

_POLL: Final = Action.POLL.value
_SLICE_S: Final = 0.05  # consume() waits for a full batch or this long, so this bounds what it adds to latency

Partition = tuple[str, int]

OUT_OF_RANGE: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION", "_NO_OFFSET"})
"""Errors that mean: this position is not in the log (any more)."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The polling client: columns that all of its operations have."""

    process: str
    cluster: str
    client: str
    isolation: str
    group: str | None = None
    reset: str | None = None


@dataclass(slots=True)
class Polled:
    """The result of one poll. positions: partition → (next offset, leader epoch of the last record).

    ends: partition → offset at which the consumer met the end of the log (control records passed included).
    """

    records: list[OpRecord] = field(default_factory=list)
    positions: dict[Partition, tuple[int, int | None]] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    out_of_range: set[Partition] = field(default_factory=set)
    error: Classified | None = None
    error_text: str | None = None

    @property
    def doomed(self) -> bool:
        """Whether the client must be replaced."""
        return self.error is not None and self.error.replace_client

    def failed(self, error: KafkaError) -> None:
        """Keep the worst error: one that ends the client takes precedence over the first."""
        what = classify(error, context=Context.POLL)
        if self.error is None or (what.replace_client and not self.error.replace_client):
            self.error, self.error_text = what, error.str()


def text(data: bytes | str | None) -> str | None:
    """Bytes of a record as the history stores them: UTF-8, invalid bytes replaced."""
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data


def poll_once(
    consumer: Consumer,
    reader: Reader,
    recorder: Recorder,
    *,
    batch: int,
    time_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Polled:
    """Poll and record it as one operation: until records, an error or a partition's end arrived, or `time_s` passed."""
    index = begin_poll(reader, recorder)
    polled = Polled()
    until = time.monotonic() + time_s
    while True:
        try:
            take(consumer.consume(batch, timeout=_SLICE_S), polled)
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            if error is None:
                raise
            polled.failed(error)
        if polled.records or polled.ends or polled.error is not None or stopped() or time.monotonic() >= until:
            break
    end_poll(index, polled, recorder)
    return polled


def begin_poll(reader: Reader, recorder: Recorder) -> int:
    """A poll's invocation; returns its index."""
    return recorder.invoke(
        reader.process,
        F.POLL.value,
        cluster=reader.cluster,
        client=reader.client,
        isolation=reader.isolation,
        group=reader.group,
        reset=reader.reset,
    )


def end_poll(index: int, polled: Polled, recorder: Recorder) -> None:
    """A poll's completion. Without records an error makes it fail, with records it is a note."""
    recorder.complete(
        index,
        OpType.OK if polled.records or polled.error is None else OpType.FAIL,
        records=polled.records,
        error=polled.error.name if polled.error is not None else None,
        error_text=polled.error_text,
    )


def take(messages: Sequence[Message], polled: Polled) -> None:
    """Sort the messages from consume() into records, ends of partitions, and errors."""
    records, positions = polled.records, polled.positions
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is None:
            epoch = message.leader_epoch()
            records.append(OpRecord(_POLL, topic, partition, offset, text(message.value()), text(message.key()), epoch))  # type: ignore[arg-type]
            positions[topic, partition] = (offset + 1, epoch)  # type: ignore[index, operator]
        elif error.code() == KafkaError._PARTITION_EOF:
            polled.ends[topic, partition] = offset  # type: ignore[index, assignment]
        else:
            polled.failed(error)
            if topic is not None and partition is not None and str(error.name()) in OUT_OF_RANGE:
                polled.out_of_range.add((topic, partition))


def assign_record(partition: Partition, offset: int | None, leader_epoch: int | None = None) -> OpRecord:
    """Where a consumer starts reading a partition, as in an `assign` operation. None: at the log start."""
    return OpRecord(Action.ASSIGN.value, partition[0], partition[1], offset, leader_epoch=leader_epoch)
