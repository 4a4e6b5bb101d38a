"""Imports a history of Jepsen's Kafka workload (`jepsen.tests.kafka`) as a run folder; streams, any size.

Operations are maps `{:index :time :type :process :f :value …}` or `#jepsen.history.Op{…}` records, one after the
other or in one vector. `:f` is `:send`, `:poll`, `:txn`, `:assign`, `:subscribe`, `:crash` or `:debug-…`;
any operation of a process that is not an integer is a nemesis's. What they become:

| EDN | tables |
|---|---|
| `[:send k v]`, `[:send k [offset v]]` | op_records `send` |
| `[:poll {k [[offset v] …]}]` | op_records `poll`, in the order of the map |
| `:assign [k …]` | op_records `assign`; `keep` of what was assigned already, which keeps its position |
| `:seek-to-beginning? true` | reset `earliest`; op_records `assign` of all |
| `:subscribe [k …]` | op_records `assign` |
| `:rebalance-log [{:keys [k …]} …]` | op_records `rebalance` |
| `:process :nemesis` | faults: the first of two equal `:f` injects, the second proves; `:stop-x` heals `:start-x` |

A key k is a partition: an integer is that partition of topic `jepsen`; `"name-3"`, `:name-3`, `["name" 3]` are
partition 3 of topic `name`. In our own exports a comment says what each key and process number stands for.
The cluster is A unless `:cluster` says otherwise. Values become text;
where they are unique per key only (Jepsen's generators count on each), TOPIC-PARTITION:VALUE.
`:time` is in nanoseconds. A process may have several operations under way: a completion belongs to the one with the
same `:op`, else to the oldest one that sent the same values, else to the oldest one of the same `:f`.

It cannot see isolation levels, transaction names or consumer groups, which such a history does not hold. Our own
exports hold them, and more than Jepsen reads: `:invoke-index`, `:records`, `:more`, `:replica` and `:retry` of an
operation, operations that only Jepsen needs (`:put-in`), and lines of `:process :beside` (events and rows of tables).
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harness.core.errors import HistoryError
from harness.history.edn.export import HEADER, export_edn
from harness.history.edn.reader import EdnError, EdnReader, Keyword, UnreadableEdnError, freeze, to_edn
from harness.history.edn.sidecar import (
    BESIDE,
    HEADS,
    BesideError,
    good_head,
    invoke_index,
    read_records,
    stated,
    with_more,
)
from harness.history.edn.sidecar import add as add_beside
from harness.history.edn.values import LOOK_AHEAD, unique_per_key
from harness.history.importing import RunBuilder, no_garbage_collection, refuse_foreign
from harness.history.jsonl.faults import FaultMapper
from harness.history.jsonl.fields import INT32, INT64
from harness.history.ops import OpRecord
from harness.history.renames import TopicNames

__all__ = ["import_edn", "export_edn"]

TOPIC: Final = "jepsen"
_TYPES: Final = frozenset({"invoke", "ok", "fail", "info"})
_DATA: Final = frozenset({"send", "poll", "txn"})
_CONTROL: Final = frozenset({"assign", "subscribe", "crash", "close", "open"})
_NAME: Final = re.compile(r"(.+)[-/](\d{1,9})")
Place = tuple[str, int | None]


def import_edn(path: Path | str, run_dir: Path | str) -> Path:
    """Read the file and make `run_dir` a stored run of it; returns `run_dir`. run.json says `source: edn`.

    Raises HistoryError that names the file, the line and what was expected; nothing is left of a failed import.
    Raises StorageError when `run_dir` cannot be written.
    """
    path = Path(path)
    refuse_foreign(path)
    with RunBuilder(run_dir, source="edn") as builder, no_garbage_collection():
        operations = _Operations(builder)
        try:
            with path.open(encoding="utf-8") as source:
                reader = EdnReader(source, on_comment=operations.comment)
                forms = iter(reader)
                first = list(itertools.islice(forms, LOOK_AHEAD))
                operations.per_key = not operations.exported and unique_per_key(first)
                for form in itertools.chain(first, forms):
                    operations.count += 1
                    operations.add(form)
        except UnreadableEdnError as error:
            raise HistoryError(f"{path}, line {error.line}: {error}") from None
        except EdnError as error:
            raise HistoryError(f"{path}, line {error.line}: not EDN: {error}") from None
        except (_BadOperationError, BesideError) as error:
            raise HistoryError(f"{path}, line {_line_of(path, operations.count)}: {error}") from None
        except UnicodeDecodeError as error:
            raise HistoryError(f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x}") from None
        except OSError as error:
            raise HistoryError(f"{path} cannot be read: {error.strerror}; give a file in EDN") from error
        if not operations.count:
            raise HistoryError(f"{path} holds no operation; expected maps like {{:type :invoke, :f :send, …}}")
        return builder.finish(run_id=path.stem, imported_from=path.name, lines=operations.count, **operations.meta())


def _line_of(path: Path, number: int) -> int:
    """The line at which the file's form of this number, from 1, ends."""
    with path.open(encoding="utf-8") as source:
        reader = EdnReader(source)
        next(itertools.islice(reader, number - 1, None), None)
        return reader.line


class _BadOperationError(Exception):
    """An operation that is not of the form; completes the sentence "FILE, line N: …"."""


class _Operations:
    def __init__(self, builder: RunBuilder) -> None:
        self._builder = builder
        self._faults = FaultMapper(builder, start_stop=True)
        self._names = TopicNames()
        self._stated: dict[str, Any] = {}  # facts about the run from an export's header
        self._places: dict[Any, Place] = {}  # key → topic, partition
        self._processes: dict[int, str] = {}
        self._assigned_to: dict[str, set[Place]] = {}  # process → its last assignment
        self._last_index = -1
        self._last_time = 0
        self.count = 0
        self.exported = False
        self.per_key = False

    def comment(self, text: str) -> None:
        """A comment may say what keys and processes stand for (written by export_edn); any other is ignored."""
        header = _header(text)
        if header is None:
            return
        self.exported = True
        self._stated |= {key: value for key, value in header.items() if key in HEADS}
        self._builder.source = header.get(":source", self._builder.source)
        for letter, brokers in header.get(":clusters", {}).items():
            for broker in brokers or [None]:
                self._builder.saw(letter, broker)
        for key, (topic, partition) in header.get(":keys", {}).items():
            self._places[key] = (topic, partition)
        self._processes.update(header.get(":processes", {}))

    def meta(self) -> dict[str, Any]:
        """Keys of run.json: which topics mirror which others under another name, what an export left out."""
        return stated(self._stated) if self._stated else asdict(self._names.renames())

    def add(self, op: Any) -> None:
        """One operation. Raises _BadOperationError."""
        if type(op) is not dict:
            raise _BadOperationError(f"expected an operation as a map, found {_show(op)}")
        type_ = _name(op, ":type")
        if type_ not in _TYPES:
            raise _BadOperationError(
                f"expected :type to be :invoke, :ok, :fail or :info, found {_show(op.get(':type'))}"
            )
        f = _name(op, ":f").replace("-", "_")
        index = self._index(op)
        time_ns = self._time(op)
        process = op.get(":process")
        if op.get(":put-in") is True:
            return  # only Jepsen needs it
        if type(process) is Keyword and process == BESIDE and (":was" in op or ":table" in op):
            add_beside(self._builder, op, index, time_ns)
        elif type(process) is int:
            self._client(op, self._processes.get(process) or str(process), type_, f, index, time_ns)
        else:
            self._nemesis(op, process, type_, f, time_ns)

    def _client(self, op: dict[Any, Any], who: str, type_: str, f: str, index: int, time_ns: int) -> None:
        records = self._records(op, who, type_, f)
        cluster = _text(op, ":cluster") or "A"
        self._builder.saw(cluster)
        for record in records:
            note = self._names.sent if record.action == "send" else self._names.shown
            note(cluster, record.topic, record.value)
        error, words = _error(op)
        self._builder.op(
            *(index, time_ns, who, type_, f, self._invoked(op, index, who, type_, f, records)),
            records,
            phase=_text(op, ":phase"),
            cluster=cluster,
            client=_text(op, ":client"),
            txn=_text(op, ":txn"),
            group=_text(op, ":group"),
            isolation=_text(op, ":isolation"),
            reset="earliest" if op.get(":seek-to-beginning?") else _text(op, ":reset"),
            error=error,
            error_text=words,
            replica=_replica(op),
            retry=_retry(op),
        )

    def _records(self, op: dict[Any, Any], who: str, type_: str, f: str) -> list[OpRecord]:
        """What a client's operation sent, read or was assigned."""
        if f in _DATA:
            records = self._micro_operations(op, type_)
        elif f in _CONTROL:
            records = self._assigned(op, who, type_, f)
        elif f.startswith("debug"):
            records = []
        else:
            raise _BadOperationError(
                f"expected :f of a client to be :send, :poll, :txn, :assign, :subscribe, :crash or"
                f" :debug-…, found {_show(op.get(':f'))}"
            )
        for entry in _list(op.get(":rebalance-log"), ":rebalance-log to be a vector of maps"):
            if type(entry) is dict:
                keys = _list(entry.get(":keys"), ":keys in :rebalance-log to be a vector")
                records.extend(OpRecord("rebalance", *self._place(key)) for key in keys)
        if ":records" in op:
            records = read_records(op[":records"])
        return with_more(records, op[":more"]) if ":more" in op else records

    def _invoked(
        self, op: dict[Any, Any], index: int, who: str, type_: str, f: str, records: list[OpRecord]
    ) -> int | None:
        """The invoke that a completion belongs to: as it states itself, or by its name or values."""
        stated_index = invoke_index(op)
        found = self._builder.invoke_index(index, who, type_, f, **_named(op, records))
        return found if stated_index is None or type_ == "invoke" else stated_index

    def _micro_operations(self, op: dict[Any, Any], type_: str) -> list[OpRecord]:
        records: list[OpRecord] = []
        value = op.get(":value")
        for step in _list(value, "a vector of micro-operations"):
            name = step[0] if type(step) is list and step else None
            if name == ":send" and len(step) == 3:
                _, key, sent = step
                offset = None
                if type_ != "invoke" and type(sent) is list:
                    offset, sent = self._pair(sent)
                topic, partition = self._place(key)
                records.append(OpRecord("send", topic, partition, offset, self._value(sent, topic, partition)))
            elif name == ":poll" and len(step) <= 2:
                polled = step[1] if len(step) == 2 else None
                if polled is None:
                    continue
                if type(polled) is not dict:
                    raise _BadOperationError(f"expected [:poll {{k [[offset value] …]}}], found {_show(step)}")
                for key, pairs in polled.items():
                    topic, partition = self._place(key)
                    for pair in _list(pairs, "a vector of [offset value] pairs"):
                        offset, read = self._pair(pair)
                        records.append(OpRecord("poll", topic, partition, offset, self._value(read, topic, partition)))
            else:
                raise _BadOperationError(f"expected [:send k v] or [:poll …], found {_show(step)}")
        return records

    def _value(self, value: Any, topic: str, partition: int | None) -> str | None:
        text = _value(value)
        return f"{topic}-{partition}:{text}" if self.per_key and text is not None else text

    def _pair(self, pair: Any) -> tuple[int | None, Any]:
        if type(pair) is not list or len(pair) != 2:
            raise _BadOperationError(f"expected a pair [offset value], found {_show(pair)}")
        offset, value = pair
        return _offset(offset), value

    def _assigned(self, op: dict[Any, Any], who: str, type_: str, f: str) -> list[OpRecord]:
        """Jepsen's `assign` replaces the assignment, and a partition that was in it keeps its position. Our own
        exports name newly assigned partitions in `:keys`, and kept ones in `:keep`."""
        keys = op.get(":keys", op.get(":value"))
        records: list[OpRecord] = []
        if isinstance(keys, list):
            offsets = op.get(":offsets") or {}
            if type(offsets) is not dict:
                raise _BadOperationError(f"expected :offsets to be a map {{k offset}}, found {_show(offsets)}")
            records = [OpRecord("assign", *self._place(key), _offset(offsets.get(freeze(key)))) for key in keys]
        kept = _list(op.get(":keep"), ":keep to be a vector")
        if f == "assign" and ":keys" not in op and not op.get(":seek-to-beginning?"):
            held = self._assigned_to.get(who, set())
            records = [
                r._replace(action="keep") if r.offset is None and (r.topic, r.partition) in held else r for r in records
            ]
        records += [OpRecord("keep", *self._place(key)) for key in kept]
        if type_ not in ("invoke", "fail"):
            known = f == "assign" and type_ == "ok"
            self._assigned_to[who] = {(r.topic, r.partition) for r in records} if known else set()
        return records

    def _place(self, key: Any) -> Place:
        key = freeze(key)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _place_of(key)
        return place

    def _index(self, op: dict[Any, Any]) -> int:
        index = op.get(":index")
        if index is None:
            index = self._last_index + 1
        if type(index) is not int or not -INT64 <= index < INT64:
            raise _BadOperationError(f"expected :index to be an integer, found {_show(index)}")
        if index <= self._last_index:
            raise _BadOperationError(f"expected :index to be greater than {self._last_index}, found {index}")
        self._last_index = index
        return index

    def _time(self, op: dict[Any, Any]) -> int:
        time = op.get(":time")
        if time is None:
            return self._last_time
        if type(time) not in (int, float) or not -INT64 <= time < INT64:
            raise _BadOperationError(f"expected :time to be nanoseconds, found {_show(time)}")
        self._last_time = int(time)
        return self._last_time

    def _nemesis(self, op: dict[Any, Any], process: Any, type_: str, f: str, time_ns: int) -> None:
        if type(process) is not Keyword and type(process) is not str:
            raise _BadOperationError(f"expected :process to be an integer or a keyword, found {_show(process)}")
        value = op.get(":value")
        fields = {"f": f} if value is None else {"f": f, "value": to_edn(value)}
        error, words = _error(op)
        if error is not None:
            fields["error"] = f"{error} {words or ''}".strip()
        self._faults.event(fields, Keyword(process).name, type_, f, time_ns)


def _header(text: str) -> dict[str, Any] | None:
    """The contents of a comment of export_edn; None for any other comment."""
    if not text.startswith(HEADER):
        return None
    try:
        forms = list(EdnReader(io.StringIO(text.removeprefix(HEADER))))
    except EdnError:
        return None
    header = forms[0] if len(forms) == 1 else None
    if type(header) is not dict or not header or not header.keys() <= {":keys", ":processes", *HEADS}:
        return None
    if not good_head(header):
        return None
    keys, processes = header.get(":keys", {}), header.get(":processes", {})
    if type(keys) is not dict or type(processes) is not dict:
        return None
    good = all(type(number) is int and _is_place(place) for number, place in keys.items())
    return header if good and all(type(n) is int and type(p) is str for n, p in processes.items()) else None


def _is_place(place: Any) -> bool:
    if type(place) is not list or len(place) != 2 or type(place[0]) is not str:
        return False
    return place[1] is None or (type(place[1]) is int and -INT32 <= place[1] < INT32)


def _replica(op: dict[Any, Any]) -> int | None:
    broker = op.get(":replica")
    if broker is not None and (type(broker) is not int or not -INT32 <= broker < INT32):
        raise _BadOperationError(f"expected :replica to be a broker id, found {_show(broker)}")
    return broker


def _retry(op: dict[Any, Any]) -> bool | None:
    again = op.get(":retry")
    if again is not None and type(again) is not bool:
        raise _BadOperationError(f"expected :retry to be true or false, found {_show(again)}")
    return again


def _offset(offset: Any) -> int | None:
    if offset is not None and (type(offset) is not int or not -INT64 <= offset < INT64):
        raise _BadOperationError(f"expected an offset to be an integer or nil, found {_show(offset)}")
    return offset


def _place_of(key: Any) -> Place:
    if type(key) is int:
        return (TOPIC, key) if 0 <= key < INT32 else (str(key), 0)
    if type(key) is tuple and len(key) == 2 and type(key[1]) is int and 0 <= key[1] < INT32:
        return Keyword(key[0]).name if isinstance(key[0], str) else to_edn(key[0]), key[1]
    name = Keyword(key).name if isinstance(key, str) else to_edn(key)
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def _named(op: dict[Any, Any], records: Iterable[OpRecord]) -> dict[str, Any]:
    """The facts by which an event is paired with others: the values sent, and a name `:op` where it has one."""
    return {"what": tuple(r.value for r in records if r.action == "send") or None, "op": freeze(op.get(":op"))}


def _value(value: Any) -> str | None:
    if type(value) is int:
        return str(value)
    if value is None or type(value) is str:
        return value
    return Keyword(value).name if type(value) is Keyword else to_edn(value)


def _name(op: dict[Any, Any], key: str) -> str:
    value = op.get(key)
    if type(value) is Keyword:
        return value.name
    if type(value) is str:
        return value
    raise _BadOperationError(f"expected {key} to be a keyword, found {_show(value)}")


def _text(op: dict[Any, Any], key: str) -> str | None:
    value = op.get(key)
    return None if value is None else _value(value)


def _error(op: dict[Any, Any]) -> tuple[str | None, str | None]:
    error = op.get(":error")
    words = _text(op, ":error-text")
    if error is None:
        return None, words
    if type(error) is list and error and type(error[0]) is Keyword:
        return error[0].name, words or (to_edn(error[1:])[1:-1] or None)
    return _value(error), words


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if type(value) is not list:
        raise _BadOperationError(f"expected {what}, found {_show(value)}")
    return value


def _show(value: Any) -> str:
    shown = to_edn(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
