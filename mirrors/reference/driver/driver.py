"""The reference mirror under test: its processes in containers, driven through their admin API.

A process joins the destination as a broker of its own (ids from 100 on) and reaches the source only over its link. The
driver cannot see what a process did between its last answer and its death, except what the state topic kept.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from harness.core.errors import MirrorError
from harness.history.recording import Recorder
from harness.topology.clusters import Node
from harness.topology.mirror import Capability, Cut, PartitionState, PartitionStatus, Support
from harness.wire.client import WireError
from harness.wire.view import ClusterView
from mirrors.driven import DrivenMirror
from mirrors.reference.driver import config
from mirrors.reference.driver.admin_client import AdminClient, MirrorRow
from mirrors.reference.driver.events import EventRecorder
from mirrors.reference.driver.processes import Processes
from mirrors.reference.server.design import FetchLimit, design_from
from mirrors.reference.server.state_topic import TOPIC as STATE_TOPIC
from mirrors.reference.server.steps import START, STOP
from mirrors.site import MirrorContext

_CHANGE_S: Final = 90.0  # a start or a stop, restarts of a killed process included
_ASK_S: Final = 5.0  # a request is sent again after this, for processes that took over from others
_AGAIN_S: Final = 0.5  # the same while some process does not answer
_ASKED: Final = {START: "start", STOP: "stop"}

S = PartitionState


class ReferenceMirror(DrivenMirror):
    """Implements harness.topology.mirror.Mirror. Thread-safe: `describe` may run concurrently with everything else."""

    name = "reference"

    def __init__(self, context: MirrorContext) -> None:
        super().__init__(context)
        self.options = config.parse_options(context.settings.options)
        self.mirror = f"{context.source.name}-{context.destination.name}"
        self._processes = Processes(context, self.mirror, self.options)
        self._topics: list[str] = []
        self._seen: dict[tuple[str, int], PartitionStatus] = {}
        self._events = EventRecorder(self.mirror, destination=context.destination.name)

    def capabilities(self) -> Mapping[Capability, Support]:
        """Its capabilities with the chosen design."""
        design = self._settings.design
        yes = Support(True)
        return {
            Capability.OFFSET_IDENTITY: yes,
            Capability.TOPIC_ID: Support(False, "CreateTopics cannot set a topic ID on stock brokers"),
            Capability.IDENTITY_NAMES: yes,
            Capability.FAILOVER: yes,
            Capability.FAILBACK: yes,
            Capability.GROUP_OFFSETS: yes,
            Capability.ACL_SYNC: Support(
                design.get("acl_sync") != "off", "" if design.get("acl_sync") != "off" else "acl_sync=off"
            ),
            Capability.CONFIG_SYNC: yes,
            Capability.ABORTED_DATA: yes,
            Capability.EXACTLY_ONCE: yes,
            Capability.PID_RESET_HONOURED: Support(False, "stock brokers store the record and ignore it"),
            Capability.CUT_BY_EPOCH: Support(False, "the offsets of each cut are kept in its state topic"),
        }

    def topic_on_destination(self, topic: str) -> str:
        """Topics keep their names."""
        return topic

    def start(self, topics: Sequence[str]) -> None:
        """Mirror these topics (again). Returns when every partition is mirrored: a failback has made its cuts by then.

        Raises: MirrorError with the process's last log lines, EngineError.
        """
        with self._lock:
            self._topics += [topic for topic in topics if topic not in self._topics]
            self._processes.start(self._topics)
        self._until(
            START,
            lambda client: client.start(self.mirror, topics),
            topics,
            done=lambda row: row.state in (S.MIRRORING, S.FAILED),
        )

    def stop(self, topics: Sequence[str]) -> Cut:
        """Stop: the destination's real brokers lead and are writable. The cut is the one that the mirror recorded.

        Raises: MirrorError when it does not end in time, naming the partitions.
        """
        rows = self._until(
            STOP, lambda client: client.stop(self.mirror, topics), topics, done=lambda row: row.state == S.STOPPED
        )
        return Cut(
            {
                (row.topic, row.partition): (row.source_offset, row.destination_offset)
                for row in rows
                if row.source_offset is not None and row.destination_offset is not None
            }
        )

    def describe(self) -> Sequence[PartitionStatus]:
        """States and offsets now; UNKNOWN, with the last offsets, where no process answers."""
        rows, errors = self._processes.rows()
        found = {(row.topic, row.partition): _status(row) for row in rows}
        with self._lock:
            silent = "; ".join(errors) or "no process has it"
            for place, last in self._seen.items():
                if place not in found:
                    found[place] = PartitionStatus(
                        topic=last.topic, partition=last.partition, state=S.UNKNOWN, error=silent
                    )
            self._seen.update({place: s for place, s in found.items() if s.state is not S.UNKNOWN})
        return [status for _, status in sorted(found.items())]

    def nodes(self) -> Sequence[Node]:
        """Its containers; empty before the first start."""
        return self._processes.nodes()

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int | None]:
        """See harness.topology.mirror.Mirror. Judged by the offsets that every in-sync replica has and the source's log
        ends."""
        deadline = time.monotonic() + timeout_s
        due = self._ends(topics, deadline)
        missing: dict[tuple[str, int], int | None] = dict.fromkeys(due, None)
        while True:
            rows, _ = self._processes.rows()
            for row in rows:
                end = due.get((row.topic, row.partition))
                if end is not None and row.carried is not None:
                    missing[row.topic, row.partition] = max(0, end - row.carried)
            if not any(lag is None or lag > 0 for lag in missing.values()) or time.monotonic() >= deadline:
                return missing
            time.sleep(0.2)

    def revive(self) -> Sequence[str]:
        """See harness.topology.mirror.Mirror: start dead processes, and FAILED partitions, again."""
        notes = self._processes.start_dead()
        failed: dict[str, list[PartitionStatus]] = {}
        for status in self.describe():
            if status.state is S.FAILED:
                failed.setdefault(status.error or "", []).append(status)
        for error, partitions in failed.items():
            names = ", ".join(f"{p.topic}-{p.partition}" for p in partitions)
            notes.append(f"the mirror had given up on {names}, so it was started again there: {error}")
            self._processes.send(partial(self._start_again, topics=sorted({p.topic for p in partitions})))
        return notes

    def _start_again(self, client: AdminClient, topics: Sequence[str]) -> None:
        client.start(self.mirror, topics)

    def own_topics(self) -> Sequence[str]:
        """See harness.topology.mirror.KeepsTopics."""
        return (STATE_TOPIC,)

    def crash_at(self, step: str, *, on: bool = True) -> None:
        """See harness.topology.mirror.Crashable. It is set with the request that the step belongs to; a step of a cut
        is set at once."""
        self._processes.crash_at(step, on=on)

    def crashed_at(self, step: str) -> Sequence[Node]:
        """See harness.topology.mirror.Crashable."""
        return self._processes.crashed_at(step)

    def record_changes(self, recorder: Recorder) -> None:
        """See harness.topology.mirror.Mirror: the events of the processes' audit logs."""
        with self._lock:
            for number, client in self._processes.answering():
                with contextlib.suppress(MirrorError):
                    self._events.record(number, client, recorder)

    def close(self) -> None:
        """Drop this thread's clients."""
        self._processes.close()

    def _until(
        self,
        prefix: str,
        request: Callable[[AdminClient], object],
        topics: Sequence[str],
        *,
        done: Callable[[MirrorRow], bool],
    ) -> list[MirrorRow]:
        """Repeat a request until every partition of these topics is in its state; a process that died is started."""
        deadline = time.monotonic() + _CHANGE_S
        errors: list[str] = []
        asked_at = 0.0
        while True:
            restarted = self._processes.start_dead()
            if restarted or time.monotonic() - asked_at > (_AGAIN_S if errors else _ASK_S):
                self._processes.arm(prefix)
                errors = self._processes.send(request)
                asked_at = time.monotonic()
            rows, silent = self._processes.rows()
            wanted = [row for row in rows if row.topic in topics]
            whole = {row.topic for row in wanted} >= set(topics) and not silent
            if whole and all(done(row) for row in wanted):
                return wanted
            if time.monotonic() >= deadline:
                late = (
                    ", ".join(f"{r.topic}-{r.partition} is {r.state}" for r in wanted if not done(r))
                    or "no partition known"
                )
                raise MirrorError(
                    f"mirror {self.mirror} did not {_ASKED[prefix]} within {_CHANGE_S:g} s: "
                    + "; ".join([*errors, *silent, late])
                )
            time.sleep(0.2)

    def _ends(self, topics: Sequence[str], deadline: float) -> dict[tuple[str, int], int]:
        """The offsets to reach: the source's last stable offsets or high watermarks, whichever the design fetches
        to."""
        stable = design_from(self._settings.design).fetch_limit is FetchLimit.LAST_STABLE
        view = ClusterView(self._source.bootstrap)
        found: dict[tuple[str, int], int] = {}
        try:
            while True:
                with contextlib.suppress(WireError):
                    ends = view.leader_ends(topics, read_committed=stable)
                    found.update({place: end for place, end in ends.items() if end is not None})
                    if all(end is not None for end in ends.values()) and {t for t, _ in ends} >= set(topics):
                        return found
                if time.monotonic() >= deadline:
                    return found
                time.sleep(0.2)
        finally:
            view.close()

    def _explain(self) -> str:
        states = [f"{s.topic}-{s.partition} {s.state} {s.error or ''}".strip() for s in self.describe()]
        return f"states: {', '.join(states[:8]) or 'none'}; {self._processes.explain()}"


def _status(row: MirrorRow) -> PartitionStatus:
    return PartitionStatus(
        topic=row.topic,
        partition=row.partition,
        state=PartitionState(row.state),
        source_offset=row.source_offset,
        destination_offset=row.destination_offset,
        lag=row.lag,
        error=row.error or None,
    )
