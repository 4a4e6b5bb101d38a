"""The mirror's events in a JSONL history: rows of `mirror_states`, and the operations that caused them.

A statement about a whole topic, or about the whole mirror, becomes one row per partition that the history mentions
anywhere (also later), so that checkers can join on the partition; with no partition mentioned, one row without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.history.importing import RunBuilder
from harness.history.jsonl.evidence import note_mirror
from harness.history.jsonl.fields import (
    CLUSTERS,
    INT32,
    Line,
    check_cluster,
    missing,
    operation,
    text,
    valid_text,
    whole,
    wrong,
)
from harness.history.ops import OpRecord
from harness.history.renames import TopicNames

_STATES = {
    "start": "PREPARING",
    "stop": "STOPPED",
    "failover": "STOPPED",
    "pause": "PAUSED",
    "resume": "MIRRORING",
    "failback": "PREPARING",
}
_DESTINATION = "B"


@dataclass(frozen=True, kw_only=True)
class _Statement:
    time_ns: int
    event: str
    state: str | None
    cluster: str
    topic: str | None
    partition: int | None
    mirror: str | None
    source_offset: int | None = None
    destination_offset: int | None = None
    lag: int | None = None
    error: str | None = None


class MirrorMapper:
    """Handlers for mirror events. `places`: cluster → partitions the history mentions, complete at `finish`."""

    def __init__(self, builder: RunBuilder, places: Mapping[str, set[tuple[str, int]]], names: TopicNames) -> None:
        self._builder = builder
        self._places = places
        self._names = names
        self._waiting: list[_Statement] = []

    @property
    def handlers(self) -> Mapping[str, Callable[[Line, int, str, str, str, int], None]]:
        """f → handler."""
        steps = ("mirror_start", "mirror_stop", "mirror_pause", "mirror_resume", "mirror_failback", "failover")
        return {"mirror_state": self._event, **dict.fromkeys(steps, self._event), "topic_map": self._topic_map}

    def nemesis(self, line: Line, time_ns: int, event: str) -> None:
        """A nemesis stopped or started the mirror's processes: PAUSED, MIRRORING."""
        self._state(line, time_ns, event, _cluster(line), text(line, "mirror"))

    def finish(self) -> None:
        """Write the statements that had to wait until every partition was known."""
        for statement in self._waiting:
            for topic, partition in self._partitions(statement):
                self._write(statement, topic, partition)
        self._waiting.clear()

    def _event(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        event = "look" if f == "mirror_state" else f.removeprefix("mirror_")
        cluster = _cluster(line)
        topic, partition = text(line, "topic"), whole(line, "partition", INT32)
        state = text(line, "state")
        self._builder.saw(cluster)
        original = text(line, "source_topic")
        if original is not None:
            if topic is None:
                raise missing(line, "topic", "a string: the name on its cluster of what source_topic names")
            source = text(line, "source")
            note_mirror(self._names, source if source in CLUSTERS else None, original, cluster, topic)
        place = (topic, partition)
        what = None if topic is None else place
        done = self._builder.invoke_index(index, process, type_, f, what=what, place=place, op=operation(line))
        if not process.startswith("nemesis"):
            records = [] if topic is None else [OpRecord("target", topic, partition, value=state)]
            error = text(line, "error")
            self._builder.op(index, time_ns, process, type_, f, done, records, cluster=cluster, error=error)
        if self._builder.happened(index, type_, done):
            self._state(line, time_ns, event, cluster, _mirror(line, process))

    def _topic_map(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        """Names on `cluster` of the topics of `source`."""
        check_cluster(line, "source")
        cluster = _cluster(line)
        names = line.get("value")
        if type(names) is not dict:
            raise missing(line, "value", "an object of name on the source: name on the cluster")
        self._builder.saw(cluster)
        for original, topic in names.items() if type_ in ("ok", "info") else ():
            if type(topic) is not str:
                raise wrong(line, "value", "an object of name on the source: name on the cluster, both strings")
            note_mirror(
                self._names,
                text(line, "source"),
                valid_text(original, "a topic"),
                cluster,
                valid_text(topic, "a topic"),
            )

    def _state(self, line: Line, time_ns: int, event: str, cluster: str, mirror: str | None) -> None:
        given = text(line, "state")
        statement = _Statement(
            time_ns=time_ns,
            event=event,
            state=_STATES.get(event) if given is None else given.upper(),
            cluster=cluster,
            topic=text(line, "topic"),
            partition=whole(line, "partition", INT32),
            mirror=mirror,
            source_offset=whole(line, "source_offset"),
            destination_offset=whole(line, "destination_offset"),
            lag=whole(line, "lag"),
            error=text(line, "error"),
        )
        if statement.topic is None or statement.partition is None:
            self._waiting.append(statement)
        else:
            self._write(statement, statement.topic, statement.partition)

    def _partitions(self, statement: _Statement) -> list[tuple[str | None, int | None]]:
        everywhere = set().union(*self._places.values())
        there = self._places.get(statement.cluster, set()) if statement.topic is None else everywhere
        found = {p for p in (there or everywhere) if statement.topic in (None, p[0])}
        return [*sorted(found)] or [(statement.topic, statement.partition)]

    def _write(self, s: _Statement, topic: str | None, partition: int | None) -> None:
        offsets = (s.source_offset, s.destination_offset, s.lag)
        place = (s.mirror, s.cluster, topic, partition, s.state)
        self._builder.row("mirror_states", *place, *offsets, s.error, s.time_ns, s.event)


def _cluster(line: Line) -> str:
    check_cluster(line, "to" if line.get("cluster") is None else "cluster")
    return text(line, "cluster") or text(line, "to") or _DESTINATION


def _mirror(line: Line, process: str) -> str | None:
    source = text(line, "source")
    named = text(line, "mirror") or (source and f"{source}->{_cluster(line)}")
    return named or (process if process.startswith(("mm2", "mirror")) else None)
