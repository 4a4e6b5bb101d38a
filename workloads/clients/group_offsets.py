"""A group member's requests to its coordinator: commit and fetch offsets. Bounded by the client's time-outs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from harness.history.ops import OpType
from workloads.clients.error_table import CLIENT_ERRORS, Context, classify, kafka_error
from workloads.clients.kafka_config import ONLY_ATTEMPT_S
from workloads.clients.polling import Partition

Processed = Mapping[Partition, tuple[int, int | None]]
"""Partition → next offset, leader epoch of the record before it."""

_REQUEST_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a commit. error: the client's; name: as in the error table."""

    type: OpType
    error: KafkaError | None = None
    name: str | None = None


def commit(consumer: Consumer, due: Processed) -> Answer:
    """Commit and wait for the answer. If the only attempt was refused for every partition, it did not happen."""
    started = time.monotonic()
    done: Sequence[TopicPartition] = ()
    try:
        done = consumer.commit(offsets=[_offset(p, at) for p, at in due.items()], asynchronous=False) or ()
        error = next((p.error for p in done if p.error is not None), None)
    except CLIENT_ERRORS as raised:
        error = kafka_error(raised)
        if error is None:
            raise
    if error is None:
        return Answer(OpType.OK)
    young = time.monotonic() - started < ONLY_ATTEMPT_S
    what = classify(error, context=Context.DELIVERY, only_attempt=young)
    refused = all(p.error is not None for p in done)
    return Answer(what.type if refused else OpType.INFO, error, what.name)


def committed(consumer: Consumer, partitions: Sequence[Partition]) -> tuple[dict[Partition, int], KafkaError | None]:
    """Partition → offset, without those that have none; and the error when there was no answer."""
    try:
        found = consumer.committed([TopicPartition(t, p) for t, p in partitions], timeout=_REQUEST_S)
    except CLIENT_ERRORS as raised:
        error = kafka_error(raised)
        if error is None:
            raise
        return {}, error
    for p in found:
        if p.error is not None:
            return {}, p.error
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}, None


def _offset(partition: Partition, at: tuple[int, int | None]) -> TopicPartition:
    offset, epoch = at
    if epoch is None:
        return TopicPartition(*partition, offset)
    return TopicPartition(*partition, offset, leader_epoch=epoch)
