"""Rows of the build as the harness's statuses. Pure."""

from __future__ import annotations

from harness.topology.mirror import PartitionState, PartitionStatus
from mirrors.native.rows import Partition, Row


def unknown(place: Partition, why: str) -> Row:
    """A partition that no broker could be asked about."""
    return Row(topic=place[0], partition=place[1], state=PartitionState.UNKNOWN, error=why)


def status_of(row: Row, due: int | None, cut: tuple[int, int] | None) -> PartitionStatus:
    """due: the source's high watermark, asked before the row; None when its leader did not answer. cut: of the last
    stop, which STOPPED partitions keep.

    The build's own lag compares with what its last fetch had seen, which may be long ago: the larger one counts, and
    without `due` none.
    """
    source, destination, lag = row.source_offset, row.destination_offset, None
    if row.state is PartitionState.STOPPED and cut is not None:
        source, destination = cut
    elif destination is not None and due is not None:
        lag = max(row.lag or 0, due - destination)
    return PartitionStatus(
        topic=row.topic,
        partition=row.partition,
        state=row.state,
        source_offset=source,
        destination_offset=destination,
        lag=lag,
        error=row.error or None,
    )
