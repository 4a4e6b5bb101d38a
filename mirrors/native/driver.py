"""The authors' own Cluster Mirroring under test: part of the destination's brokers, administered over the wire.

The brokers of the destination fetch from the source themselves, through the link's proxies. There is no process of the
mirror's own: what breaks it are faults of the destination's brokers and of the link to the source.
What a partition goes through between two looks is in the brokers' state topic; group offsets, configurations and ACLs
that they change are in no log of theirs.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.core.errors import MirrorError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.history.recording import Recorder
from harness.topology.clusters import Node
from harness.topology.mirror import Capability, Cut, PartitionState, PartitionStatus, Support
from harness.wire.cluster_mirror_api import STATE_TOPIC
from harness.wire.frames import WireError
from harness.wire.view import ClusterView
from mirrors.driven import DrivenMirror
from mirrors.native import config
from mirrors.native.abilities import Found, capabilities, check_brokers
from mirrors.native.administration import Administration
from mirrors.native.brokers import Brokers
from mirrors.native.changes import StartedTopics, begin, reached, repeated, stopped
from mirrors.native.filters import UNCLEAN, set_filters, set_on_topics
from mirrors.native.looks import TIMEOUT_S as LOOK_TIMEOUT_S
from mirrors.native.looks import Looks
from mirrors.native.requests import Refusal
from mirrors.native.rows import Partition, shown
from mirrors.native.state_log import StateLog
from mirrors.site import MirrorContext

_CHANGE_TIMEOUT_S: Final = 15.0  # of a request that changes something
_STATE_S: Final = 60.0  # until the topic of the mirrors' states can be used
_ANSWER_S: Final = 30.0  # of a cluster that has just come back
_STARTED_S: Final = 60.0
_CUT_S: Final = 20.0
_POLL_S: Final = 0.3

S = PartitionState


class NativeMirror(DrivenMirror):
    """Implements harness.topology.mirror.Mirror. Thread-safe: `describe` may run concurrently with everything else."""

    name = "native"

    def __init__(self, context: MirrorContext) -> None:
        super().__init__(context)
        self.options = config.parse_options(context.settings.options)
        self.mirror = f"{context.source.name}-{context.destination.name}"
        self._image = context.image
        self._changes = self._administration(_CHANGE_TIMEOUT_S)
        self._looks = Looks(context.source.bootstrap, lambda: self._administration(LOOK_TIMEOUT_S))
        self._found = Found()
        self._topics: list[str] = []
        self._ids: dict[str, tuple[uuid.UUID, ...]] = {}
        self._cuts: dict[Partition, tuple[int, int]] = {}
        self._unclean_why = ""
        self._state_log = StateLog(context.destination.bootstrap, mirror=self.mirror, destination=self.destination)

    def _administration(self, timeout_s: float) -> Administration:
        brokers = Brokers(self._destination.bootstrap, timeout_s=timeout_s)
        return Administration(self.mirror, brokers, source_id=self._source.cluster_id)

    def capabilities(self) -> Mapping[Capability, Support]:
        """As they were found at the first start."""
        return capabilities(self._found)

    def topic_on_destination(self, topic: str) -> str:
        """Topics keep their names."""
        return topic

    def start(self, topics: Sequence[str]) -> None:
        """Mirror these topics (again), creating the mirror if there is none. Returns when every partition is MIRRORING,
        or after a minute: a start that hangs shows in `describe`, and no probe record is mirrored.

        Raises: RequestRefusedError with code and text when the brokers refuse; MirrorError when they have no Cluster
        Mirroring, or do not answer.
        """
        with self._lock:
            self._probe()
            there = self._source_topics(topics)
            self._create()
            self._topics += [topic for topic in topics if topic not in self._topics]
            self._ids |= {name: (topic_id,) for name, (topic_id, _) in there.items()}
            self._set_filters(topics)
            begin(self._changes, there)
            self._cuts = {place: cut for place, cut in self._cuts.items() if place[0] not in topics}
            reached(self._changes, topics, lambda row: row.state is S.MIRRORING, limit_s=_STARTED_S)
            self._learn(there)

    def stop(self, topics: Sequence[str]) -> Cut:
        """Stop: the destination's brokers end what is open and accept writes. The cut is where the last mirrored epoch
        ends in the log of the destination's leader, partitions for which that is not known left out.

        Raises: RequestRefusedError when the stop is refused, with code and states; MirrorError when it does not end in
        time.
        """
        with self._lock:
            rows = stopped(self._changes, topics)
            found = self._read_cut([(row.topic, row.partition) for row in rows])
            self._cuts |= found
            return Cut(found)

    def pause(self, topics: Sequence[str]) -> None:
        """Mirror nothing until `resume`; the topics stay read-only. Raises: MirrorError."""
        with self._lock:
            repeated(lambda: self._changes.pause(topics), f"mirror {self.mirror} cannot be paused")
            self._demand(topics, S.PAUSED)

    def resume(self, topics: Sequence[str]) -> None:
        """End a pause. Raises: MirrorError."""
        with self._lock:
            repeated(lambda: self._changes.resume(topics), f"mirror {self.mirror} cannot be resumed")
            self._demand(topics, S.MIRRORING)

    def describe(self) -> Sequence[PartitionStatus]:
        """States and offsets now, as each partition's leader gives them; UNKNOWN where it does not answer.

        `lag` is 0 only if the destination has what the source's leader had when the look began: what the brokers
        themselves report is as old as their last fetch.
        """
        return self._looks.statuses(list(self._topics), self._cuts)

    def nodes(self) -> Sequence[Node]:
        """None: faults of a mirror's own containers are refused; faults of the destination's brokers hit it."""
        return ()

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[Partition, int | None]:
        """See harness.topology.mirror.Mirror. Judged by the high watermarks of both clusters."""
        return self._looks.await_caught_up(topics, timeout_s=timeout_s)

    def revive(self) -> Sequence[str]:
        """See harness.topology.mirror.Mirror: partitions that FAILED are started again, as an operator would."""
        with self._lock:
            failed = [status for status in self.describe() if status.state is S.FAILED]
            notes = []
            for error in dict.fromkeys(status.error or "" for status in failed):
                parts = [status for status in failed if (status.error or "") == error]
                names = ", ".join(f"{status.topic}-{status.partition}" for status in parts)
                try:
                    refused = self._changes.start(self._source_topics(sorted({status.topic for status in parts})))
                    result = "; ".join(map(str, refused)) or "accepted"
                except (WireError, MirrorError) as problem:
                    result = str(problem)
                notes.append(f"the mirror had given up on {names} ({error}), so it was asked to start there: {result}")
            return notes

    def own_topics(self) -> Sequence[str]:
        """See harness.topology.mirror.KeepsTopics."""
        return (STATE_TOPIC,)

    def record_changes(self, recorder: Recorder) -> None:
        """See harness.topology.mirror.Mirror: the states that the brokers stored. They report nothing of what they
        sync."""
        known = dict(self._ids)  # without the lock: a stop that takes its time must not hold up the snapshots
        names = {topic_id: topic for topic, both in known.items() for topic_id in both}
        if names:
            self._state_log.record(recorder, names)

    def close(self) -> None:
        """Drop the connections."""
        self._looks.close()
        with self._lock:
            self._changes.close()
        self._state_log.close()

    def _probe(self) -> None:
        """Find out what the brokers have. Raises: MirrorError when they have no Cluster Mirroring, or do not answer."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                found, silent = self._changes.brokers.abilities()
            except WireError as error:
                found, silent = {}, {-1: str(error)}
            if time.monotonic() >= deadline or not silent or any(not one.missing for one in found.values()):
                check_brokers(found, silent, cluster=self.destination, image=self._image)
                self._found = replace(self._found, brokers=found)
                return
            time.sleep(_POLL_S)

    def _source_topics(self, topics: Sequence[str]) -> StartedTopics:
        """Raises: MirrorError when the source does not answer or lacks one."""
        with contextlib.closing(ClusterView(self._source.bootstrap)) as source:
            try:
                found = wait_until(
                    lambda: source.metadata(topics),
                    timeout_s=_ANSWER_S,
                    what=f"the topics of cluster {self.source}",
                    swallow=(WireError,),
                ).topics
            except WaitTimeoutError as error:
                raise MirrorError(str(error)) from error
        missing = sorted(set(topics) - set(found))
        if missing:
            raise MirrorError(f"cluster {self.source} has no topic {', '.join(missing)} to mirror")
        return {name: (topic.topic_id, len(topic.partitions)) for name, topic in found.items()}

    def _create(self) -> None:
        """Raises: MirrorError."""

        def ask() -> Sequence[Refusal]:
            refused = None if self._changes.exists() else self._changes.create(self._source.link_bootstrap)
            return () if refused is None else (refused,)

        repeated(ask, f"cluster {self.destination} does not create mirror {self.mirror}")
        try:
            wait_until(
                self._changes.state_is_led,
                timeout_s=_STATE_S,
                what=f"every partition of {STATE_TOPIC} on cluster {self.destination} to have a leader",
                swallow=(WireError,),
            )
        except WaitTimeoutError as error:
            raise MirrorError(str(error)) from error

    def _set_filters(self, topics: Sequence[str]) -> None:
        """Where following unclean elections belongs to topics, it is set on those that are mirrored from the start, and
        synced from there: a topic that was failed over is not changed."""
        found = set_filters(self._changes.brokers.view, self.mirror, config.mirror_settings(self.options))
        self._found = replace(self._found, filters=found)
        if UNCLEAN in found.refused and f"{self.source}->{self.destination}" in self._settings.flows:
            with contextlib.closing(ClusterView(self._source.bootstrap)) as source:
                self._unclean_why = set_on_topics(source, topics, UNCLEAN, self.options.unclean)

    def _learn(self, there: StartedTopics) -> None:
        """What is known only of topics that are mirrored."""
        with contextlib.suppress(WireError, MirrorError):
            own = self._changes.topic_ids(there)
            self._ids |= {name: (topic_id, own.get(name, topic_id)) for name, (topic_id, _) in there.items()}
            same = all(topic_id == own.get(name) for name, (topic_id, _) in there.items())
            places = [(name, number) for name, (_, count) in there.items() for number in range(count)]
            _, told = self._changes.last_epochs(self._ids, places)
            self._found = replace(self._found, same_ids=same, epochs_told=told)

    def _demand(self, topics: Sequence[str], state: PartitionState) -> None:
        rows, done = reached(self._changes, topics, lambda row: row.state is state, limit_s=_STARTED_S)
        if not done:
            raise MirrorError(
                f"mirror {self.mirror} accepted a request and was not {state} within {_STARTED_S:g} s: {shown(rows)}"
            )

    def _read_cut(self, places: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """The cut of every partition, or of those for which it is known when the time is over."""
        deadline = time.monotonic() + _CUT_S
        found: dict[Partition, tuple[int, int]] = {}
        while True:
            with contextlib.suppress(WireError, MirrorError):
                found |= self._changes.cut(self._ids, places)
            if set(found) == set(places) or time.monotonic() >= deadline:
                return found
            time.sleep(_POLL_S)

    def _explain(self) -> str:
        rows = [str(status.state) + (f" ({status.error})" if status.error else "") for status in self.describe()]
        counted = [f"{rows.count(row)} × {row}" for row in dict.fromkeys(rows)]
        filters = self._found.filters
        refused = [why for setting, why in filters.refused.items() if setting != UNCLEAN]
        notes = [*refused, filters.unreadable, self._unclean_why]
        return "; ".join([f"partitions: {', '.join(counted) or 'none known'}", *filter(None, notes)])
