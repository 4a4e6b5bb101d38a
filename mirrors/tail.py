"""Finds a log's last readable record: it may be below the log end, where markers and aborted records are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from mirrors.compacted import quiet_consumer

TopicPartitionKey = tuple[str, int]
_FIRST_WINDOW: Final = 64
_GROWTH: Final = 8


class TailReader:
    """Finds records in ranges of offsets of one cluster, as a reader with this isolation level sees them.

    One thread per object. The consumer is made at first use.
    """

    def __init__(self, bootstrap: str, *, isolation: str) -> None:
        self._bootstrap = bootstrap
        self._isolation = isolation
        self._consumer: Any = None

    def last_readable(
        self, ranges: Mapping[TopicPartitionKey, tuple[int, int]], *, timeout_s: float
    ) -> dict[TopicPartitionKey, int | None]:
        """Last readable offset in [low, high) of each partition, None where there is none.

        Reads backwards in growing windows, so that a long range costs no more than a short one when its end is
        readable. Partitions that were not finished in time are left out of the result.
        """
        deadline = time.monotonic() + timeout_s
        found: dict[TopicPartitionKey, int | None] = {tp: None for tp, (low, high) in ranges.items() if low >= high}
        open_ranges = {tp: r for tp, r in ranges.items() if r[0] < r[1]}
        window = _FIRST_WINDOW
        while open_ranges:
            windows = {tp: (max(low, high - window), high) for tp, (low, high) in open_ranges.items()}
            counts = self.count(windows, timeout_s=deadline - time.monotonic())
            following = {}
            for tp, (low, _) in open_ranges.items():
                if tp not in counts:
                    continue
                start = windows[tp][0]
                _, last = counts[tp]
                if last is not None or start == low:
                    found[tp] = last
                else:
                    following[tp] = (low, start)
            open_ranges = following
            window *= _GROWTH
        return found

    def count(
        self, ranges: Mapping[TopicPartitionKey, tuple[int, int]], *, timeout_s: float
    ) -> dict[TopicPartitionKey, tuple[int, int | None]]:
        """Readable records in [low, high) of each partition, and the last one's offset. Unfinished: left out."""
        deadline = time.monotonic() + timeout_s
        consumer = self._open()
        totals: dict[TopicPartitionKey, tuple[int, int | None]] = dict.fromkeys(ranges, (0, None))
        done = {tp for tp, (low, high) in ranges.items() if low >= high}
        consumer.assign([TopicPartition(t, p, ranges[t, p][0]) for t, p in ranges if (t, p) not in done])
        try:
            while len(done) < len(ranges):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                message = consumer.poll(min(left, 0.5))
                if message is None:
                    continue
                tp = (message.topic(), message.partition())
                if tp not in ranges or tp in done:
                    continue
                error, high = message.error(), ranges[tp][1]
                if error is None and message.offset() < high:
                    totals[tp] = (totals[tp][0] + 1, message.offset())
                at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if at_end or (error is None and message.offset() >= high - 1):
                    done.add(tp)
                    consumer.incremental_unassign([TopicPartition(*tp)])
        finally:
            consumer.unassign()
        return {tp: total for tp, total in totals.items() if tp in done}

    def close(self) -> None:
        """Leave the cluster."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self) -> Any:
        if self._consumer is None:
            self._consumer = Consumer(quiet_consumer(self._bootstrap, group="tail", isolation=self._isolation))
        return self._consumer
