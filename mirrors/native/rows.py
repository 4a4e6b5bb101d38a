"""Rows of DescribeClusterMirrors: every broker's, merged into one per partition, in our words.

Every broker lists what it knows of a partition; the row of the partition's leader counts. A leader that can be asked
and did not answer leaves the state unknown; where the leader has no such request, any broker's row counts that says
more than UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.topology.mirror import PartitionState
from harness.wire.cluster_mirror_api import DescribeClusterMirrorsResponse, DescribedPartition, State
from harness.wire.cluster_mirror_names import STATES

Partition = tuple[str, int]

_WORDS: Final[Mapping[str, PartitionState]] = {
    State.UNKNOWN.name: PartitionState.UNKNOWN,
    State.LOG_TRUNCATION.name: PartitionState.PREPARING,
    State.EPOCH_FENCING.name: PartitionState.PREPARING,
    State.MIRRORING.name: PartitionState.MIRRORING,
    State.PAUSING.name: PartitionState.PAUSING,
    State.PAUSED.name: PartitionState.PAUSED,
    State.STOPPING.name: PartitionState.STOPPING,
    State.STOPPED.name: PartitionState.STOPPED,
    State.FAILED.name: PartitionState.FAILED,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One partition. source_offset: the source's high watermark at the last fetch. Offsets: None where not given.

    own_state: as the build calls it; error: the build's, or why the state is not known.
    """

    topic: str
    partition: int
    state: PartitionState
    own_state: str = ""
    source_offset: int | None = None
    destination_offset: int | None = None
    lag: int | None = None
    error: str = ""

    def __str__(self) -> str:
        name = f"{self.topic}-{self.partition} is {self.own_state or self.state}"
        return f"{name} ({self.error})" if self.error else name


def state_of(text: str) -> PartitionState:
    """A build's state in our words; UNKNOWN for one that is not in the tables."""
    name = text.strip().upper().replace(" ", "_")
    return _WORDS.get(STATES.get(name, name), PartitionState.UNKNOWN)


def rows_of(answer: DescribeClusterMirrorsResponse, mirror: str) -> dict[Partition, Row]:
    """One broker's rows of one mirror."""
    return {
        (topic.topic_name, part.partition_index): _row(topic.topic_name, part)
        for described in answer.mirrors
        if described.mirror_name == mirror and not described.error_code
        for topic in described.topics
        for part in topic.partitions
    }


def _row(topic: str, part: DescribedPartition) -> Row:
    state = state_of(part.state_value)
    unknown = f"its state {part.state_value!r} is not known here" if part.state_value not in _known() else ""
    return Row(
        topic=topic,
        partition=part.partition_index,
        state=state,
        own_state=part.state_value,
        source_offset=_offset(part.source_offset),
        destination_offset=_offset(part.destination_offset),
        lag=_offset(part.lag),
        error=part.error_message or unknown,
    )


def _known() -> Collection[str]:
    return {*_WORDS, *STATES}


def _offset(value: int) -> int | None:
    return value if value >= 0 else None


def merged(
    by_broker: Mapping[int, Mapping[Partition, Row]],
    leaders: Mapping[Partition, int | None],
    *,
    silent: Mapping[int, str],
) -> dict[Partition, Row]:
    """One row per partition that a broker lists or that has a leader here.

    leaders: of the destination's partitions, None where there is none. silent: brokers that can be asked and did not
    answer, and why.
    """
    listed = {place for rows in by_broker.values() for place in rows}
    return {place: _merge(place, by_broker, leaders, silent) for place in sorted({*listed, *leaders})}


def _merge(
    place: Partition,
    by_broker: Mapping[int, Mapping[Partition, Row]],
    leaders: Mapping[Partition, int | None],
    silent: Mapping[int, str],
) -> Row:
    leader = leaders.get(place)
    others = [rows[place] for _, rows in sorted(by_broker.items()) if place in rows]
    known = [row for row in others if row.state is not PartitionState.UNKNOWN]
    if leader is None:
        if place not in leaders and others:
            return (known or others)[0]
        why = "it has no leader"
    elif leader in silent:
        why = f"its leader, broker {leader}, did not answer: {silent[leader]}"
    elif leader in by_broker:
        if place in by_broker[leader]:
            return by_broker[leader][place]
        why = f"its leader, broker {leader}, does not list it"
    elif others:
        return (known or others)[0]
    else:
        why = "no broker lists it"
    return Row(topic=place[0], partition=place[1], state=PartitionState.UNKNOWN, error=why)


def shown(rows: Iterable[Row], *, most: int = 8) -> str:
    """Rows in words, for messages."""
    words = [str(row) for row in rows]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return (", ".join(words[:most]) or "no partition is known") + more
