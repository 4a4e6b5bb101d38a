"""Evidence and administration in a JSONL history: log dumps, snapshots of offsets, ACLs, topics and retention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.core.errors import HistoryError
from harness.history.importing import RunBuilder
from harness.history.jsonl.fields import (
    INT16,
    INT32,
    INT64,
    BadLineError,
    Line,
    check_cluster,
    flag,
    missing,
    need_text,
    need_whole,
    operation,
    rows,
    scalar,
    show,
    text,
    valid_text,
    whole,
    wrong,
)
from harness.history.ops import OpRecord
from harness.history.renames import RenameError, TopicNames
from harness.history.schema import TABLES
from harness.history.writer import check_value

_NOT_BY_ROW = ("ops", "op_records", "batches", "records")  # these must agree with one another
_OTHER_CLUSTERS = ("faults", "metrics")  # these may also name a mirror or a link
_CONTROL_NAMES = {"MIRROR_PID_RESET": "PID_RESET"}
_MARKERS = ("COMMIT", "ABORT")
_SEEN = ("ok", "info")  # events of other types are no evidence
SOURCES = {"A": "B", "B": "A", "C": "B"}
"""Cluster → its source by default."""


class EvidenceMapper:
    """Handlers for snapshots and administration. `places` collects cluster → partitions mentioned."""

    def __init__(self, builder: RunBuilder, places: dict[str, set[tuple[str, int]]], names: TopicNames) -> None:
        self._builder = builder
        self._places = places
        self._names = names
        self._snapshots: dict[tuple[Any, ...], int] = {}

    @property
    def handlers(self) -> Mapping[str, Callable[[Line, int, str, str, str, int], None]]:
        """f → handler."""
        return {
            "log_dump": self._log_dump,
            "epochs": self._epochs,
            "sync_group_offset": self._group_offset,
            "checkpoint": self._group_offset,
            "acl_create": self._acl_change,
            "acl_delete": self._acl_change,
            "acl_list": self._acl_list,
            "create_topic": self._topic,
            "delete_topic": self._topic,
            "retention": self._retention,
            "alter_config": self._topic,
            "config_list": self._config_list,
            "row": self._row,
        }

    def _log_dump(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster, topic, partition = self._place(line)
        if type_ not in _SEEN:
            return
        if "value" not in line:
            raise missing(line, "value", "a list of records")
        check_cluster(line, "mirror_of")
        original = text(line, "source_topic")
        if original is not None:
            note_mirror(self._names, text(line, "mirror_of"), original, cluster, topic)
        broker = whole(line, "replica", INT32)
        broker = -1 if broker is None else broker
        look = self._snapshot_number("log", cluster, topic, partition, broker)
        self._builder.saw(cluster, broker)
        last = -1
        dumped = rows(line, "value")
        ends = _last_markers(dumped)
        shared = {"f": "log_dump", "topic_id": line.get("topic_id")}
        for record in dumped:
            if type(record) is not dict:
                raise wrong(line, "value", f"a list of objects (this one holds {show(record)})")
            last = max(last, self._record((cluster, broker, look, topic), partition, {**shared, **record}, ends))
        log_start = whole(line, "log_start")
        leo = whole(line, "leo")
        self._builder.row(
            "log_ends",
            *(cluster, broker, look, time_ns, topic, partition, log_start),
            last + 1 if leo is None and last >= 0 else leo,
            *(whole(line, "hw"), whole(line, "lso"), whole(line, "leader", INT32)),
            *(whole(line, "leader_epoch", INT32), _brokers(line, "isr"), _brokers(line, "replicas")),
            text(line, "mirror_of"),
        )

    def _record(self, replica: tuple[str, int, int, str], partition: int, record: Line, ends: Mapping[Any, int]) -> int:
        offset = need_whole(record, "offset")
        if offset == INT64 - 1:  # the log would end beyond it
            raise wrong(record, "offset", f"less than {offset}")
        epoch, txn, key = whole(record, "lepoch", INT32), text(record, "txn"), record.get("key")
        control = text(record, "ctl")
        control = None if control is None else _CONTROL_NAMES.get(control.upper(), control.upper())
        pid = _or(whole(record, "pid"), -1)
        producer = (pid, _or(whole(record, "pepoch", INT16), -1))
        sequence = _or(whole(record, "seq", INT32), -1)
        transactional = txn is not None or control in _MARKERS or offset < ends.get(pid, offset)
        timestamp = whole(record, "timestamp")
        value = scalar(record.get("value"), "the value of a dumped record")
        self._names.shown(replica[0], replica[3], value)
        self._builder.row(
            "records",
            *(*replica, partition, offset, None if key is None else scalar(key, "the key of a dumped record")),
            *(value, None, None, timestamp, offset, epoch, *producer, sequence, transactional, control, txn),
        )
        crc, crc_ok = whole(record, "crc"), flag(record, "crc_ok")
        self._builder.row(
            "batches",
            *(*replica, text(record, "topic_id"), partition, offset, offset, epoch, crc, crc_ok, *producer, sequence),
            *(1, transactional, control is not None, control, whole(record, "coordinator_epoch", INT32), timestamp),
            *(None, None, None, None, txn),
        )
        return offset

    def _epochs(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster, topic, partition = self._place(line)
        epoch = need_whole(line, "leader_epoch", INT32)
        if type_ in _SEEN:
            ends = (None, None, None, None, whole(line, "leader", INT32), epoch)
            isr = _brokers(line, "isr")
            self._builder.row("log_ends", cluster, None, None, time_ns, topic, partition, *ends, isr, None, None)

    def _group_offset(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster, topic, partition = self._place(line)
        group = need_text(line, "group")
        offset = whole(line, "offset")
        if type_ in _SEEN:
            event = "sync" if f == "sync_group_offset" else "checkpoint"
            self._builder.row(
                "group_offsets",
                *(cluster, time_ns, group, text(line, "kind") or "consumer", event, text(line, "state")),
                *(whole(line, "members", INT32), topic, partition, offset, whole(line, "source_offset")),
                *(whole(line, "leader_epoch", INT32), None, None),
            )

    def _acl_change(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster, acl = need_text(line, "cluster"), need_text(line, "acl")
        target = OpRecord("target", None, None, value=acl)  # type: ignore[arg-type]
        if self._admin(line, index, process, type_, f, time_ns, target):
            self._builder.row("acls", cluster, time_ns, None, f.removeprefix("acl_"), process, acl)

    def _acl_list(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster = need_text(line, "cluster")
        if type_ not in _SEEN:
            return
        if "value" not in line:
            raise missing(line, "value", "a list of ACL bindings")
        look = self._snapshot_number("acl", cluster)
        self._builder.saw(cluster)
        bindings = rows(line, "value")
        for binding in bindings:
            if type(binding) is not str:
                raise wrong(line, "value", f"a list of strings (this one holds {show(binding)})")
            self._builder.row("acls", cluster, time_ns, look, "look", None, valid_text(binding, "an ACL binding"))
        if not bindings:
            self._builder.row("acls", cluster, time_ns, look, "look", None, None)

    def _topic(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster, topic, partition = text(line, "cluster"), need_text(line, "topic"), whole(line, "partition", INT32)
        config = line.get("config")
        if config is not None and type(config) is not dict:
            raise wrong(line, "config", "an object of name: value")
        if self._admin(line, index, process, type_, f, time_ns, OpRecord("target", topic, partition)):
            event = f.removesuffix("_topic").removesuffix("_config")
            for name, value in (config or {None: None}).items():
                shown = scalar(value, f"the value of config {name}")
                self._builder.row("configs", cluster, time_ns, None, event, process, topic, name, shown)

    def _config_list(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        cluster, topic = need_text(line, "cluster"), need_text(line, "topic")
        config = line.get("config")
        if type(config) is not dict:
            raise missing(line, "config", "an object of name: value")
        if type_ in _SEEN:
            look = self._snapshot_number("config", cluster, topic)
            self._builder.saw(cluster)
            for name, value in config.items():
                shown = scalar(value, f"the value of config {name}")
                self._builder.row(
                    "configs", cluster, time_ns, look, "look", None, topic, valid_text(name, "a config"), shown
                )

    def _row(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        """A row of a stored table as it is; its time is the line's unless it has one of its own."""
        name = need_text(line, "table")
        if name not in TABLES or name in _NOT_BY_ROW:
            raise wrong(line, "table", "one of " + ", ".join(t for t in TABLES if t not in _NOT_BY_ROW))
        given = line.get("row")
        if type(given) is not dict:
            raise missing(line, "row", "an object of column: value")
        columns = TABLES[name].columns
        unknown = sorted(set(given) - {c.name for c in columns})
        if unknown:
            known = ", ".join(c.name for c in columns)
            raise BadLineError(f"expected columns of table {name} ({known}), found {show(unknown[0])}")
        values = {**({"time_ns": time_ns} if any(c.name == "time_ns" for c in columns) else {}), **given}
        for column in columns:
            try:
                check_value(name, column.name, column.type, column.nullable, values.get(column.name))
            except HistoryError as error:
                raise BadLineError(f"expected a row that can be stored, but {error}") from None
            if isinstance(values.get(column.name), str):
                valid_text(values[column.name], f"column {column.name}")
        if name not in _OTHER_CLUSTERS:
            check_cluster({"f": "row", **given})
        if type_ in _SEEN:
            self._builder.saw(text(given, "cluster") if name != "faults" else None)
            self._builder.row(name, *(values.get(c.name) for c in columns))

    def _retention(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int) -> None:
        topic, partition = need_text(line, "topic"), whole(line, "partition", INT32)
        cluster, start = text(line, "cluster"), whole(line, "log_start")
        if self._admin(line, index, process, type_, f, time_ns, OpRecord("target", topic, partition, start)):
            value = None if start is None else str(start)
            self._builder.row("configs", cluster, time_ns, None, "retention", process, topic, "log_start", value)
            ends = (start, *[None] * 8)
            self._builder.row("log_ends", cluster, None, None, time_ns, topic, partition, *ends)

    def _admin(self, line: Line, index: int, process: str, type_: str, f: str, time_ns: int, target: OpRecord) -> bool:
        """The event as an operation; returns whether it was done."""
        cluster = text(line, "cluster")
        self._builder.saw(cluster)
        if target.topic is not None:
            self._names.mentioned(cluster or "A", target.topic)
        if target.topic is not None and target.partition is not None:
            self._places.setdefault(cluster or "A", set()).add((target.topic, target.partition))
        what = (target.topic, target.value) if any((target.topic, target.value)) else None
        place = (target.topic, target.partition, target.offset)
        done = self._builder.invoke_index(index, process, type_, f, what=what, place=place, op=operation(line))
        error = text(line, "error")
        self._builder.op(index, time_ns, process, type_, f, done, (target,), cluster=cluster, error=error)
        return self._builder.happened(index, type_, done)

    def _place(self, line: Line) -> tuple[str, str, int]:
        cluster, topic = need_text(line, "cluster"), need_text(line, "topic")
        partition = need_whole(line, "partition", INT32)
        self._builder.saw(cluster)
        self._places.setdefault(cluster, set()).add((topic, partition))
        self._names.mentioned(cluster, topic)
        return cluster, topic, partition

    def _snapshot_number(self, *what: Any) -> int:
        number = self._snapshots.get(what, 0)
        if number >= INT32:
            raise BadLineError("expected fewer than 2^31 snapshots of one replica")
        self._snapshots[what] = number + 1
        return number


def note_mirror(names: TopicNames, source: str | None, original: str, cluster: str, topic: str) -> None:
    """A line says that `topic` on `cluster` mirrors `original` on `source` (by default the cluster before it in the
    chain). Raises BadLineError."""
    try:
        names.note_mirror(source or SOURCES[cluster], original, cluster, topic)
    except RenameError as error:
        raise BadLineError(str(error)) from None


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _last_markers(dumped: list[Any]) -> dict[Any, int]:
    """Producer id → offset of its last marker in a dump. Its records before that belong to transactions, also where
    these are unnamed: a producer without transactions never gets a marker."""
    ends: dict[Any, int] = {}
    for record in dumped:
        if type(record) is dict and record.get("ctl") and type(record.get("offset")) is int:
            pid = record.get("pid")
            if type(pid) is int and pid != -1 and str(record["ctl"]).upper() in _MARKERS:
                ends[pid] = max(record["offset"], ends.get(pid, record["offset"]))
    return ends


def _brokers(line: Line, name: str) -> list[int] | None:
    value = line.get(name)
    if value is None:
        return None
    if type(value) is not list or not all(type(v) is int and -INT32 <= v < INT32 for v in value):
        raise wrong(line, name, "a list of broker ids")
    return value
