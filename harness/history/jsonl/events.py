"""Maps each event of a JSONL history to rows of the stored tables (harness.history.jsonl.forms has the table).

Evidence is taken from events of type ok and info; an invoke or a fail of the same f leaves no evidence. Events of
clients and administrators also become rows of `ops`; what an administrator acted on is an op_record of action
`target`. Events of process `nemesis` go to `faults` (harness.history.jsonl.faults), and also to the tables
below when their f is one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.history.importing import RunBuilder
from harness.history.jsonl.evidence import EvidenceMapper
from harness.history.jsonl.faults import FaultMapper
from harness.history.jsonl.fields import (
    INT16,
    INT32,
    INT64,
    BadLineError,
    Line,
    check_cluster,
    flag,
    need_text,
    operation,
    rows,
    scalar,
    show,
    text,
    whole,
    wrong,
)
from harness.history.jsonl.mirrors import MirrorMapper
from harness.history.ops import OpRecord
from harness.history.renames import Renames, TopicNames

Handler = Callable[[Line, int, str, str, str, int], None]


MIRRORS: Final = ("mirror", "mm2")
"""Prefixes of names of processes that belong to a mirror, not to a client."""
_CLIENT: Final = ("txn_begin", "txn_commit", "txn_abort")
MIRROR_FAULTS: Final = {
    "stop_mm2": "pause",
    "start_mm2": "resume",
    "stop_mirror": "pause",
    "start_mirror": "resume",
    "kill_mm2": "pause",
    "kill_mirror": "pause",
}
"""Function of a nemesis that stops or starts a mirror's processes → the mirror's event that it shows."""


class EventMapper:
    """Turns the lines of one history into rows."""

    def __init__(self, builder: RunBuilder) -> None:
        self._builder = builder
        self._faults = FaultMapper(builder)
        self._places: dict[str, set[tuple[str, int]]] = {}  # cluster → partitions the history mentions
        self._names = TopicNames()
        self._mirrors = MirrorMapper(builder, self._places, self._names)
        evidence = EvidenceMapper(builder, self._places, self._names)
        self._handlers: dict[str, Handler] = {
            "send": self._send,
            "poll": self._poll,
            **dict.fromkeys(_CLIENT, self._step),
            **dict.fromkeys(("commit_offset", "fetch_offset", "assign", "subscribe", "crash"), self._offset),
            **evidence.handlers,
            **self._mirrors.handlers,
        }

    @property
    def known(self) -> list[str]:
        """Every f that clients and administrators may have."""
        return sorted(self._handlers)

    def event(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        """One line. Raises BadLineError."""
        if process.startswith("nemesis"):
            self._faults.event(line, process, type_, f, time_ns)
            if f in MIRROR_FAULTS and type_ != "fail":
                self._mirrors.nemesis(line, time_ns, MIRROR_FAULTS[f])
            if f not in self._handlers:
                return
        handler = self._handlers.get(f)
        if handler is None:
            known = ", ".join(self.known)
            raise BadLineError(f'expected a known f, found "{f}"; known are {known}, and any f of process nemesis')
        check_cluster(line)
        handler(line, index, process, type_, f, time_ns)

    def finish(self) -> None:
        """After the last line: write the rows that had to wait until all partitions are known."""
        self._mirrors.finish()

    def renames(self) -> Renames:
        """After the last line: which topics mirror which others under another name."""
        return self._names.renames()

    def _send(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        topic = need_text(line, "topic")
        partition = whole(line, "partition", INT32)
        cluster = text(line, "cluster")
        value = line.get("value")
        value = scalar(value, 'field "value" of f "send"')
        key = line.get("key")
        record = OpRecord(
            "send",
            topic,
            partition,
            whole(line, "offset"),
            value,
            None if key is None else scalar(key, 'field "key" of f "send"'),
            whole(line, "leader_epoch", INT32),
            whole(line, "pid"),
            whole(line, "epoch", INT16),
            whole(line, "seq", INT32),
        )
        self._mention(cluster, topic, partition)
        if not process.startswith(MIRRORS):
            self._names.sent(cluster or "A", topic, value)
        error, words = self._error(line)
        self._builder.op(
            index,
            time_ns,
            process,
            type_,
            f,
            self._builder.invoke_index(
                *(index, process, type_, f), what=value, place=(topic, partition), op=operation(line)
            ),
            (record,),
            cluster=cluster,
            client=text(line, "client"),
            txn=text(line, "txn"),
            error=error,
            error_text=words,
            retry=flag(line, "retry"),
        )

    def _poll(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        read = rows(line, "value")
        topic = need_text(line, "topic") if read else text(line, "topic")
        partition = whole(line, "partition", INT32)
        if read and partition is None:
            raise BadLineError('expected f "poll" to have a field "partition" (an integer), found none')
        cluster = text(line, "cluster")
        there = cluster or "A"
        records: list[OpRecord] = []
        for pair in read:
            if type(pair) is not list or len(pair) != 2:
                raise wrong(line, "value", f"a list of [offset, value] pairs (this one holds {show(pair)})")
            offset, value = pair
            if offset is not None and (type(offset) is not int or not -INT64 <= offset < INT64):
                raise BadLineError(f"expected the offset of a polled record to be an integer, found {show(offset)}")
            if type(value) is not str or not value.isascii():
                value = scalar(value, "the value of a polled record")
            records.append(OpRecord("poll", topic, partition, offset, value))  # type: ignore[arg-type]
            self._names.shown(there, topic, value)  # type: ignore[arg-type]
        position = whole(line, "position")
        if topic is not None and type_ != "invoke" and (position is not None or not read):
            records.append(OpRecord("position", topic, partition, position))
        self._mention(cluster, topic, partition)
        error, words = self._error(line)
        self._builder.op(
            index,
            time_ns,
            process,
            type_,
            f,
            self._builder.invoke_index(index, process, type_, f, place=(topic, partition), op=operation(line)),
            records,
            cluster=cluster,
            client=text(line, "client"),
            txn=text(line, "txn"),
            group=text(line, "group"),
            isolation=text(line, "isolation"),
            reset=text(line, "reset"),
            error=error,
            error_text=words,
            replica=whole(line, "replica", INT32),
        )

    def _step(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster = text(line, "cluster")
        txn = need_text(line, "txn")
        self._mention(cluster, None, None)
        error, words = self._error(line)
        done = self._builder.invoke_index(index, process, type_, f, what=txn, op=operation(line))
        self._builder.op(
            *(index, time_ns, process, type_, f, done), cluster=cluster, txn=txn, error=error, error_text=words
        )

    def _offset(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        offsets = f in ("commit_offset", "fetch_offset")
        topic = need_text(line, "topic") if offsets else text(line, "topic")
        partition = whole(line, "partition", INT32)
        action = {"commit_offset": "commit", "fetch_offset": "fetch"}.get(f, "assign")
        epoch = whole(line, "offset_epoch", INT32)
        records = (
            [
                OpRecord(
                    *(action, topic, partition, whole(line, "offset")),
                    leader_epoch=epoch,
                    processed=whole(line, "processed"),
                )
            ]
            if topic is not None
            else []
        )
        cluster = text(line, "cluster")
        self._mention(cluster, topic, partition)
        error, words = self._error(line)
        group = need_text(line, "group") if offsets else text(line, "group")
        place, offset = (group, topic, partition), whole(line, "offset")
        # The result of a fetch is not known when it is invoked.
        what = (*place, offset) if offset is not None and f != "fetch_offset" else None
        done = self._builder.invoke_index(index, process, type_, f, what=what, place=place, op=operation(line))
        self._builder.op(
            *(index, time_ns, process, type_, f, done, records),
            cluster=cluster,
            client=text(line, "client"),
            txn=text(line, "txn"),
            group=group,
            reset=text(line, "reset"),
            error=error,
            error_text=words,
        )

    def _mention(self, cluster: str | None, topic: str | None, partition: int | None) -> None:
        self._builder.saw(cluster)
        if topic is not None and partition is not None:
            places = self._places.setdefault(cluster or "A", set())
            if (topic, partition) not in places:
                places.add((topic, partition))
                self._names.mentioned(cluster or "A", topic)

    def _error(self, line: Line) -> tuple[str | None, str | None]:
        error = line.get("error")
        if error is None:
            return None, text(line, "error_text")
        if type(error) is str:
            return error, text(line, "error_text")
        return scalar(error, 'field "error"'), text(line, "error_text")
