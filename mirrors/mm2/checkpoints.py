"""MirrorMaker 2's checkpoints: its translations of groups' offsets, read from its own topic on the destination.

A checkpoint is one record of `SOURCE.checkpoints.internal` (one partition). Its key holds group, topic on the
destination and partition; its value a version, the source's offset, the destination's, and the commit's metadata. Both
are Kafka's protocol types one after the other: INT16, INT32, INT64, and STRING as INT16 length and UTF-8 bytes.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from harness.history.recording import Recorder
from mirrors.compacted import quiet_consumer

_VERSION: Final = 0
_POLL_S: Final = 0.2
_BATCH: Final = 500
_MS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One translation. offset: on the destination; source_offset: on the source."""

    group: str
    topic: str
    partition: int
    source_offset: int
    offset: int
    metadata: str


def checkpoints_topic(source: str) -> str:
    """Its name on the destination. source: MM2's alias of the source cluster."""
    return f"{source}.checkpoints.internal"


def decode(key: bytes, value: bytes) -> Checkpoint | None:
    """A record of the topic; None for one of another version, or that is no checkpoint."""
    try:
        group, at = _string(key, 0)
        topic, at = _string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        version, source_offset, offset = struct.unpack_from(">hqq", value, 0)
        metadata, _ = _string(value, struct.calcsize(">hqq"))
    except (struct.error, UnicodeDecodeError):
        return None
    if version != _VERSION:
        return None
    return Checkpoint(
        group=group, topic=topic, partition=partition, source_offset=source_offset, offset=offset, metadata=metadata
    )


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    begin = at + 2
    if length < 0 or begin + length > len(data):
        raise struct.error("a string reaches beyond the record")
    return data[begin : begin + length].decode(), begin + length


class CheckpointReader:
    """Reads new checkpoints, and records them as rows of `group_offsets` (event checkpoint). One thread at a time."""

    def __init__(self, bootstrap: str, *, source: str, destination: str) -> None:
        self._destination = destination
        self._consumer: Any = Consumer(quiet_consumer(bootstrap, group="checkpoints"))
        self._consumer.assign([TopicPartition(checkpoints_topic(source), 0, OFFSET_BEGINNING)])

    def record(self, recorder: Recorder) -> None:
        """Store those since the last call; bounded, and no error if the topic does not exist or no broker answers."""
        for message in self._consumer.consume(_BATCH, timeout=_POLL_S):
            found = None if message.error() else decode(message.key() or b"", message.value() or b"")
            if found is None:
                continue
            age_ms = time.time() * 1000 - message.timestamp()[1]  # both by this machine's wall clock
            recorder.row(
                "group_offsets",
                cluster=self._destination,
                time_ns=max(0, recorder.clock.now_ns() - int(max(0.0, age_ms) * _MS)),
                group=found.group,
                kind="consumer",
                event="checkpoint",
                topic=found.topic,
                partition=found.partition,
                offset=found.offset,
                source_offset=found.source_offset,
                metadata=found.metadata,
            )

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()
