"""Writing and reading a few records, for tests whose subject is something else."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition


def produce(bootstrap: str, topic: str, values: Sequence[bytes], *, partition: int = 0) -> None:
    """Write with acks=all and wait until each is acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 20000})
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(30) == 0
    assert failed == []


def read(bootstrap: str, topic: str, count: int, *, partition: int = 0, timeout_s: float = 20) -> list[bytes]:
    """Read this many records from the start of a partition, or as many as come in time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + timeout_s
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()
    return found
