"""What can be seen of a mirror while it works: states, lag, and when everything has arrived. Bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final

from harness.core.errors import MirrorError
from harness.topology.mirror import PartitionState, PartitionStatus
from harness.wire.frames import WireError
from harness.wire.view import ClusterView
from mirrors.native.administration import Administration
from mirrors.native.rows import Partition, Row
from mirrors.native.statuses import status_of, unknown

TIMEOUT_S: Final = 2.0  # of each request
_POLL_S: Final = 0.3

Ends = Mapping[Partition, int | None]


class Looks:
    """Thread-safe. source: bootstrap of the source's clients' listener; administration: of the destination, a new one
    with connections of its own at each call."""

    def __init__(self, source: str, administration: Callable[[], Administration]) -> None:
        self._source = source
        self._new = administration
        self._administration = administration()
        self._view = ClusterView(source)
        self._seen: set[Partition] = set()
        self._lock = threading.Lock()

    def statuses(self, topics: Collection[str], cuts: Mapping[Partition, tuple[int, int]]) -> Sequence[PartitionStatus]:
        """One per partition; UNKNOWN where no broker can be asked. cuts: of the last stops."""
        with self._lock:
            due = _ends(self._view, topics)
            try:
                rows: Mapping[Partition, Row] = {
                    (row.topic, row.partition): row for row in self._administration.rows(topics)
                }
            except (WireError, MirrorError) as error:
                rows = {place: unknown(place, str(error)) for place in self._seen}
            self._seen |= set(rows)
        return [status_of(row, due.get(place), cuts.get(place)) for place, row in sorted(rows.items())]

    def await_caught_up(self, topics: Collection[str], *, timeout_s: float) -> dict[Partition, int | None]:
        """Records that are missing: of every partition that the source has now. Judged by both high watermarks; None
        where a partition is not MIRRORING, or an end is not known."""
        deadline = time.monotonic() + timeout_s
        with closing(ClusterView(self._source)) as source, closing(self._new()) as administration:
            due = _ends(source, topics)
            while not _whole(due, topics) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                due = _ends(source, topics)
            missing: dict[Partition, int | None] = dict.fromkeys(due, None)
            while True:
                with suppress(WireError, MirrorError):
                    rows = administration.rows(topics)
                    mirroring = {(row.topic, row.partition) for row in rows if row.state is PartitionState.MIRRORING}
                    there = administration.brokers.view.leader_ends(topics)
                    missing.update(
                        {
                            place: lag
                            for place in mirroring
                            if (lag := _lag(due.get(place), there.get(place))) is not None
                        }
                    )
                if not any(lag is None or lag > 0 for lag in missing.values()) or time.monotonic() >= deadline:
                    return missing
                time.sleep(_POLL_S)

    def close(self) -> None:
        """Drop the connections."""
        with self._lock:
            self._administration.close()
            self._view.close()


def _whole(ends: Ends, topics: Collection[str]) -> bool:
    return {topic for topic, _ in ends} == set(topics) and None not in ends.values()


def _lag(due: int | None, there: int | None) -> int | None:
    return None if due is None or there is None else max(0, due - there)


def _ends(source: ClusterView, topics: Collection[str]) -> Ends:
    try:
        return source.leader_ends(topics)
    except WireError:
        return {}
