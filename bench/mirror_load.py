"""Clients of the mirrors' measurement: fill a topic, write at a steady pace, and read how long each record took."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from harness.core.errors import ClusterError
from mirrors.compacted import QUIET

_SENT: Final = struct.Struct(">q")  # time.monotonic_ns() of the send, at the beginning of every value; 0: not paced
_RUN: Final = 64  # records that go to one partition before the next has its turn, as a sticky partitioner does
_STICKY_S: Final = 0.01  # time that one partition has at a pace: librdkafka's sticky.partitioning.linger.ms (KIP-480)
_FLUSH_S: Final = 120.0
_PAYLOAD_BYTES: Final = 1 << 20


def fill(bootstrap: str, topic: str, *, partitions: int, records: int, value_bytes: int) -> None:
    """Write so many records, spread evenly in runs, and wait until all are acknowledged. Raises ClusterError."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": 131072,
            "queue.buffering.max.kbytes": 65536,
        }
    )
    failed: list[KafkaError] = []
    random = os.urandom(_PAYLOAD_BYTES)  # not to be compressed by anybody on the way

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(records):
        begin = (number * 997) % (_PAYLOAD_BYTES - value_bytes)
        value = _SENT.pack(0) + random[begin : begin + value_bytes - _SENT.size]
        while True:
            try:
                producer.produce(topic, value, partition=number // _RUN % partitions, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(_FLUSH_S)
    if failed or left:
        raise ClusterError(
            f"{topic} could not be filled: {len(failed)} sends failed, {left} without answer {failed[:1]}"
        )


class PacedWriter:
    """Writes at a steady rate until it is closed, in a thread of its own; partitions take turns of some milliseconds.

    acknowledged: (sent, seconds until A had it on every replica in sync) of each record; a list that only grows.
    """

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, rate: float, value_bytes: int) -> None:
        self.sent = 0
        self.failed = 0
        self.acknowledged: list[tuple[int, float]] = []
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._rest = os.urandom(value_bytes - _SENT.size)
        self._end = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, "logger": QUIET})
        self._thread = threading.Thread(target=self._run, name="paced-writer")
        self._thread.start()

    def close(self) -> None:
        """End the thread, with everything delivered or failed."""
        self._end.set()
        self._thread.join()
        self.failed += self._producer.flush(_FLUSH_S)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.wait(0.002):
            due = int((time.monotonic() - began) * self._rate)
            while self.sent < due:
                value = _SENT.pack(time.monotonic_ns()) + self._rest
                turn = int(self.sent / self._rate / _STICKY_S)
                self._producer.produce(
                    self._topic, value, partition=turn % self._partitions, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failed += 1
            return
        (sent,) = _SENT.unpack_from(message.value())
        self.acknowledged.append((sent, (time.monotonic_ns() - sent) / 1e9))


class LatencyReader:
    """Reads what the paced writer wrote, committed records only, and keeps (sent, seconds on the way) of each."""

    def __init__(self, bootstrap: str, ends: Mapping[tuple[str, int], int]) -> None:
        """ends: where to begin, per partition."""
        self.taken: list[tuple[int, float]] = []
        self._end = threading.Event()
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "logger": QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()])
        self._thread = threading.Thread(target=self._run, name="latency-reader")
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._end.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                (sent,) = _SENT.unpack_from(message.value())
                if not sent:
                    continue
                self.taken.append((sent, (time.monotonic_ns() - sent) / 1e9))
