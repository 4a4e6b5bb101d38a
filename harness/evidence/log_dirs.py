"""Finds the logs in a run's `evidence` folder: `evidence/CLUSTER/BROKER/TOPIC-PARTITION/NNN.log`.

Next to them are Kafka's own small files: `partition.metadata` (the topic ID), and per broker the checkpoints of log
starts (`log-start-offset-checkpoint`) and high watermarks (`replication-offset-checkpoint`). The checkpoints of a
broker that was killed may be some seconds older than its log. A partition folder that Kafka had renamed to delete it
or to move it elsewhere (`NAME.ID-delete`, `-future`, `-stray`) is not a replica any more and is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import HistoryError

EVIDENCE = "evidence"
MANIFEST = "capture.json"
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_LEFT_OVER = re.compile(r".+\.[0-9a-f]{32}-(delete|future|stray)")
_METADATA_LOG = "__cluster_metadata"


@dataclass(frozen=True)
class Segment:
    """One segment file. `last`: the newest of its replica."""

    path: Path
    base_offset: int
    size: int
    last: bool


@dataclass(frozen=True, kw_only=True)
class ReplicaLog:
    """One replica's log. `log_start`, `high_watermark`: from the broker's checkpoints, None when not named there."""

    cluster: str
    broker: int
    topic: str
    partition: int
    topic_id: str | None
    segments: tuple[Segment, ...] = field(repr=False)
    log_start: int | None = None
    high_watermark: int | None = None


def has_segments(run_dir: Path) -> bool:
    """Whether the run holds captured segment files."""
    return next((run_dir / EVIDENCE).glob("*/*/*/*.log"), None) is not None


def find_logs(run_dir: Path) -> list[ReplicaLog]:
    """Every replica's log of the run, in the order cluster, broker, topic, partition.

    Raises HistoryError for a folder that is not named as it must be.
    """
    logs: list[ReplicaLog] = []
    for folder in sorted((run_dir / EVIDENCE).glob("*/*/*/")):
        if _LEFT_OVER.fullmatch(folder.name) or not any(folder.glob("*.log")):
            continue
        name = _PARTITION.fullmatch(folder.name)
        broker = folder.parent.name
        if name is None or not broker.lstrip("-").isdigit():
            raise HistoryError(f"{folder}: not EVIDENCE/CLUSTER/BROKER/TOPIC-PARTITION; rename it or take it out")
        if name["topic"] == _METADATA_LOG:
            continue
        key = (name["topic"], int(name["partition"]))
        logs.append(
            ReplicaLog(
                cluster=folder.parent.parent.name,
                broker=int(broker),
                topic=key[0],
                partition=key[1],
                topic_id=_topic_id(folder / "partition.metadata"),
                segments=_segments(folder),
                log_start=_checkpoint(folder.parent / "log-start-offset-checkpoint").get(key),
                high_watermark=_checkpoint(folder.parent / "replication-offset-checkpoint").get(key),
            )
        )
    return sorted(logs, key=lambda log: (log.cluster, log.broker, log.topic, log.partition))


def _segments(folder: Path) -> tuple[Segment, ...]:
    files = sorted(folder.glob("*.log"))
    for path in files:
        if not path.is_file():
            raise HistoryError(f"{path} is not a regular file, as a segment must be; take it out")
        if not path.stem.isdigit():
            raise HistoryError(f"{path}: a segment file is named by its base offset; rename it or take it out")
    newest = max(int(p.stem) for p in files)
    found = [Segment(p, int(p.stem), p.stat().st_size, int(p.stem) == newest) for p in files]
    return tuple(sorted(found, key=lambda s: s.base_offset))


def _topic_id(path: Path) -> str | None:
    """The topic ID in partition.metadata; None when the file is missing or does not hold it."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("topic_id:")), None)


def _checkpoint(path: Path) -> Mapping[tuple[str, int], int]:
    """(topic, partition) → offset, of a checkpoint file: version, count, then `topic partition offset` lines.

    Empty when there is none; lines that are torn are left out, because a broker that was killed may leave them.
    """
    try:
        lines = path.read_text("utf-8", "replace").splitlines()[2:] if path.is_file() else []
    except OSError:
        return {}
    found: dict[tuple[str, int], int] = {}
    for line in lines:
        words = line.split(" ")
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
            found[(words[0], int(words[1]))] = int(words[2])
    return found
