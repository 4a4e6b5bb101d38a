"""Observes a MirrorMaker 2: positions and task states from its internal topics, log ends from both clusters.

Positions are read before the source's log ends, so that "lag 0" means: all that the source held when the snapshot
began had been copied. Every snapshot is bounded, whatever is broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.core.errors import MirrorError
from harness.topology.clusters import Cluster
from harness.topology.mirror import Cut, PartitionState, PartitionStatus
from harness.wire.client import WireError
from harness.wire.view import ClusterView
from mirrors.compacted import CompactedTopics
from mirrors.mm2 import state
from mirrors.tail import TailReader

Partition = tuple[str, int]
_SNAPSHOT_S: Final = 2.0
_COUNT_S: Final = 1.5
_COUNT_MOST: Final = 10_000  # most offsets to read for an exact lag
_CALM_S: Final = 5.0  # a position beyond the source's end must be unchanged this long to count as caught up
_PAUSE_S: Final = 0.3


@dataclass(kw_only=True)
class Goal:
    """The target of one partition: its source end at the call, and the last readable record below it.

    last: None until it was looked up, -1 when there is none.
    """

    end: int
    last: int | None = None
    _beyond_since: float = 0.0
    _beyond_at: int = -1

    def reached(self, position: int, *, source_end: int | None, now: float) -> bool:
        """Whether a mirror at this position has copied everything below the end.

        source_end: the source's end now (None: not known). A position beyond that was lost with the source's tail;
        it must be unchanged for some seconds. now: seconds, monotonic.
        """
        if position > self.end and (source_end is None or position > source_end):
            if self._beyond_at != position:
                self._beyond_at, self._beyond_since = position, now
            return now - self._beyond_since >= _CALM_S
        return position >= self.end or (self.last is not None and position > self.last)


@dataclass(kw_only=True)
class _Snapshot:
    """One snapshot."""

    positions: Mapping[Partition, int]
    tasks: Mapping[int, state.TaskState]
    assignment: Mapping[Partition, int]
    fresh: bool
    source_ends: Mapping[Partition, int | None] = field(default_factory=dict)
    destination_ends: Mapping[Partition, int | None] = field(default_factory=dict)


class Mm2Watch:
    """Not thread-safe: the driver holds a lock around each call."""

    def __init__(
        self, *, source: Cluster, destination: Cluster, read_committed: bool, to_destination: Callable[[str], str]
    ) -> None:
        self._source = source
        self._destination = destination
        self._read_committed = read_committed
        self._to_destination = to_destination
        self._topics = {kind: state.internal_topic(kind, source.name) for kind in ("offsets", "status", "configs")}
        self._internal: CompactedTopics | None = None
        self._source_view = ClusterView(source.bootstrap)
        self._destination_view = ClusterView(destination.bootstrap)
        self._tail = TailReader(source.bootstrap, isolation="read_committed" if read_committed else "read_uncommitted")
        self._before: dict[Partition, tuple[int, int]] = {}  # position and source end of the last snapshot

    def describe(self, topics: Sequence[str], *, process_error: str | None) -> list[PartitionStatus]:
        """One status per partition of these topics. process_error: why no process runs, None when one does."""
        snapshot = self._take_snapshot(topics)
        exact = self._exact_lags(snapshot) if process_error is None else {}
        return [self._status(partition, snapshot, exact, process_error) for partition in sorted(snapshot.source_ends)]

    def stopped(self, cuts: Mapping[str, Cut]) -> list[PartitionStatus]:
        """Statuses of topics that were stopped: their cuts."""
        return [
            PartitionStatus(
                topic=topic,
                partition=partition,
                state=PartitionState.STOPPED,
                source_offset=source,
                destination_offset=destination,
            )
            for wanted, cut in sorted(cuts.items())
            for (topic, partition), (source, destination) in sorted(cut.offsets.items())
            if topic == wanted
        ]

    def cut(self, topics: Sequence[str]) -> Cut:
        """The cut of a stopped mirror. Raises: MirrorError when the destination does not answer."""
        snapshot = self._take_snapshot(topics, timeout_s=15.0)
        if not snapshot.fresh:
            raise MirrorError(
                f"cluster {self._destination.name} did not return MM2's positions "
                f"({self._topics['offsets']}) within 15 s: the cut is not known"
            )
        partitions = {p for p in {*snapshot.source_ends, *snapshot.positions} if p[0] in topics}
        offsets = {}
        for topic, number in sorted(partitions):
            end = snapshot.destination_ends.get((self._to_destination(topic), number))
            if end is None and (self._to_destination(topic), number) in snapshot.destination_ends:
                raise MirrorError(
                    f"partition {self._to_destination(topic)}-{number} of cluster {self._destination.name} "
                    "has no leader that reports its log end: the cut is not known"
                )
            offsets[(topic, number)] = (snapshot.positions.get((topic, number), 0), end or 0)
        return Cut(offsets)

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> dict[Partition, int | None]:
        """See harness.topology.mirror.Mirror.

        A partition whose stored position is beyond the source's end (the source was truncated by an unclean
        election) counts as caught up when the position is unchanged for 5 s; MM2 has seen the truncation by then.
        """
        deadline = time.monotonic() + timeout_s
        goals: dict[Partition, Goal] = {}
        open_partitions: set[Partition] | None = None
        positions: Mapping[Partition, int] = {}
        while True:
            if open_partitions is None or any(p not in goals for p in open_partitions):
                open_partitions = self._set_goals(topics, goals)
            positions, fresh = self._positions(min(_SNAPSHOT_S, max(0.2, deadline - time.monotonic())))
            if open_partitions is not None and fresh:
                open_partitions -= self._reached(goals, positions, open_partitions, deadline)
                if not open_partitions and goals:
                    break
            if time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_S)
        return self._missing(topics, goals, positions, open_partitions)

    def close(self) -> None:
        """Drop all clients."""
        self._tail.close()
        self._source_view.close()
        self._destination_view.close()
        if self._internal is not None:
            self._internal.close()
            self._internal = None

    def _refresh(self, timeout_s: float) -> tuple[CompactedTopics, bool]:
        if self._internal is None:
            self._internal = CompactedTopics(self._destination.bootstrap, list(self._topics.values()))
        return self._internal, self._internal.refresh(timeout_s=timeout_s)

    def _positions(self, timeout_s: float) -> tuple[dict[Partition, int], bool]:
        internal, fresh = self._refresh(timeout_s)
        return state.positions(internal.entries(self._topics["offsets"]), self._source.name), fresh

    def _take_snapshot(self, topics: Sequence[str], *, timeout_s: float = _SNAPSHOT_S) -> _Snapshot:
        internal, fresh = self._refresh(timeout_s)
        remote = [self._to_destination(topic) for topic in topics]
        snapshot = _Snapshot(
            positions=state.positions(internal.entries(self._topics["offsets"]), self._source.name),
            tasks=state.task_states(internal.entries(self._topics["status"])),
            assignment=state.task_partitions(internal.entries(self._topics["configs"])),
            fresh=fresh,
        )
        snapshot.source_ends = _ends(self._source_view, topics, read_committed=self._read_committed)
        snapshot.destination_ends = _ends(self._destination_view, remote, read_committed=False)
        if not snapshot.source_ends:  # no broker of the source answers: use the partitions known so far
            known = {p for p in {*snapshot.positions, *snapshot.assignment} if p[0] in topics}
            snapshot.source_ends = dict.fromkeys(known, None)
        return snapshot

    def _exact_lags(self, snapshot: _Snapshot) -> dict[Partition, int]:
        """Exact lags of partitions at rest: position and source end as in the last snapshot."""
        if not snapshot.fresh:
            return {}
        ranges = {}
        now = {}
        for partition, end in snapshot.source_ends.items():
            position = snapshot.positions.get(partition, 0)
            if end is None:
                continue
            now[partition] = (position, end)
            if self._before.get(partition) == (position, end) and 0 < end - position <= _COUNT_MOST:
                ranges[partition] = (position, end)
        self._before = now
        return {p: n for p, (n, _) in self._tail.count(ranges, timeout_s=_COUNT_S).items()} if ranges else {}

    def _status(
        self, partition: Partition, snapshot: _Snapshot, exact: Mapping[Partition, int], process_error: str | None
    ) -> PartitionStatus:
        topic, number = partition
        position, end = snapshot.positions.get(partition), snapshot.source_ends.get(partition)
        task = snapshot.tasks.get(snapshot.assignment.get(partition, -1))
        lag = None
        if snapshot.fresh and end is not None:
            lag = exact.get(partition, max(0, end - (position or 0)))
        error = process_error
        if process_error is not None or not snapshot.fresh:
            status = PartitionState.UNKNOWN
            error = error or f"cluster {self._destination.name} did not give MM2's positions in time"
        elif task is not None and task.state == "FAILED":
            status, error = PartitionState.FAILED, task.error or "its task failed without a reason"
        elif position is None and (task is None or task.state != "RUNNING"):
            status = PartitionState.PREPARING
        else:
            status = PartitionState.MIRRORING
        return PartitionStatus(
            topic=topic,
            partition=number,
            state=status,
            source_offset=position,
            destination_offset=snapshot.destination_ends.get((self._to_destination(topic), number)),
            lag=lag,
            error=error,
        )

    def _set_goals(self, topics: Sequence[str], goals: dict[Partition, Goal]) -> set[Partition] | None:
        """Note the source's ends that are not known yet; returns the partitions that are still open."""
        ends = _ends(self._source_view, topics, read_committed=self._read_committed)
        if not ends:
            return None
        for partition, end in ends.items():
            if end is not None and partition not in goals:
                goals[partition] = Goal(end=end)
        return set(ends)

    def _reached(
        self,
        goals: Mapping[Partition, Goal],
        positions: Mapping[Partition, int],
        open_partitions: set[Partition],
        deadline: float,
    ) -> set[Partition]:
        ranges = {
            p: (positions.get(p, 0), goals[p].end)
            for p in open_partitions
            if p in goals and goals[p].last is None and positions.get(p, 0) < goals[p].end
        }
        if ranges:
            found = self._tail.last_readable(ranges, timeout_s=min(5.0, max(0.2, deadline - time.monotonic())))
            for partition, last in found.items():
                goals[partition].last = -1 if last is None else last
        beyond = {p[0] for p in open_partitions if p in goals and positions.get(p, 0) > goals[p].end}
        now_ends = _ends(self._source_view, sorted(beyond), read_committed=self._read_committed) if beyond else {}
        return {
            p
            for p in open_partitions
            if p in goals and goals[p].reached(positions.get(p, 0), source_end=now_ends.get(p), now=time.monotonic())
        }

    def _missing(
        self,
        topics: Sequence[str],
        goals: Mapping[Partition, Goal],
        positions: Mapping[Partition, int],
        open_partitions: set[Partition] | None,
    ) -> dict[Partition, int | None]:
        if open_partitions is None:  # the source never answered
            return dict.fromkeys([p for p in positions if p[0] in topics] or [(t, 0) for t in topics], None)
        missing: dict[Partition, int | None] = dict.fromkeys({*goals, *open_partitions} - open_partitions, 0)
        ranges = {
            p: (positions.get(p, 0), goals[p].end)
            for p in open_partitions
            if p in goals and 0 < goals[p].end - positions.get(p, 0) <= _COUNT_MOST
        }
        counts = self._tail.count(ranges, timeout_s=_COUNT_S) if ranges else {}
        for p in open_partitions:
            if p in counts:
                missing[p] = counts[p][0]
            elif p in goals and goals[p].end > positions.get(p, 0):  # too many to read: the offsets are an upper bound
                missing[p] = goals[p].end - positions.get(p, 0)
            else:  # its end is not known, or its position is beyond it and was not stable
                missing[p] = None
        return missing


def _ends(view: ClusterView, topics: Sequence[str], *, read_committed: bool) -> dict[Partition, int | None]:
    try:
        return view.leader_ends(topics, read_committed=read_committed)
    except WireError:
        return {}
