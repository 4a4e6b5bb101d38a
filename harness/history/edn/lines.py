"""One operation as one line of EDN, in the shape of `jepsen.tests.kafka`.

What that shape cannot express is under keys that Jepsen ignores, so that our importer restores the operation:
`:invoke-index` (of the invoke that a completion belongs to), `:replica`, `:retry`; `:more {:column [v …]}`,
columns of op_records in the order of the records, or one value for all; `:records`, all records, where they do not
follow from `:value`. `:put-in true`: only Jepsen needs this operation, and we skip it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.core.errors import HistoryError
from harness.history.edn.reader import Keyword, quote, to_edn
from harness.history.ops import OpRecord

Place = tuple[str, int | None]
MORE: Final = ("key", "leader_epoch", "producer_id", "producer_epoch", "sequence", "processed")
"""Columns of op_records that Jepsen has no place for."""
_TELLS: Final = {
    **dict.fromkeys(("send", "poll", "txn"), ("send", "poll")),
    **dict.fromkeys(("assign", "subscribe"), ("assign",)),
}
"""f → actions of records that a line's value expresses."""
_EXTRA: Final = (
    ("phase", ":phase"),
    ("client", ":client"),
    ("txn", ":txn"),
    ("group", ":group"),
    ("isolation", ":isolation"),
    ("reset", ":reset"),
    ("error", ":error"),
    ("error_text", ":error-text"),
)


@dataclass(slots=True)
class Operation:
    """One event of an operation: the columns of `ops` that are exported, and its records."""

    index: int
    time_ns: int
    process: str
    type: str
    f: str
    phase: str | None = None
    cluster: str | None = None
    client: str | None = None
    txn: str | None = None
    group: str | None = None
    isolation: str | None = None
    reset: str | None = None
    error: str | None = None
    error_text: str | None = None
    invoke_index: int | None = None
    replica: int | None = None
    retry: bool | None = None
    records: list[OpRecord] = field(default_factory=list)


class Names:
    """How partitions, processes and values are written. Keys and processes are integers, as Jepsen requires."""

    def __init__(
        self,
        *,
        places: Sequence[Place],
        processes: Sequence[str],
        integers: bool,
        found: Mapping[str, tuple[str, int]],
    ) -> None:
        self._integers = integers
        self._found = found
        self._assigned: dict[str, set[int]] = {}
        plain = all(topic == "jepsen" and partition is not None for topic, partition in places)
        ordered = sorted(places, key=lambda p: (p[0], -1 if p[1] is None else p[1]))
        self._keys: dict[Place, int] = {}
        for number, place in enumerate(ordered):
            self._keys[place] = place[1] if plain and place[1] is not None else number
        self._plain_keys = plain
        named = sorted({p for p in processes if not _is_number(p)})
        taken = [int(p) for p in processes if _is_number(p)]
        first = max(taken, default=-1) + 1
        self._named = {name: first + i for i, name in enumerate(named)}
        self._lanes: dict[tuple[str, int], int] = {}
        self._next = first + len(named)

    def header(self) -> dict[Any, Any]:
        """The meaning of the keys and processes; empty when they stand for themselves."""
        header: dict[Any, Any] = {}
        if not self._plain_keys:
            header[Keyword(":keys")] = {k: [topic, partition] for (topic, partition), k in self._keys.items()}
        if self._named:
            header[Keyword(":processes")] = {n: name for name, n in self._named.items()}
        return header

    def process(self, name: str, lane: int = 0) -> int:
        """The number of a process; of its further lanes, see `lane`."""
        if lane:
            return self._lanes[name, lane]
        number = self._named.get(name)
        return int(name) if number is None else number

    def new_lane(self, name: str, lane: int) -> dict[Any, Any]:
        """The meaning of a lane's number, where it is new; a header like `header`."""
        if not lane or (name, lane) in self._lanes:
            return {}
        number = self._lanes[name, lane] = self._next
        self._next += 1
        return {Keyword(":processes"): {number: name}}

    def key(self, record: OpRecord) -> int:
        """The key of a record's partition; of a send to an unknown partition, the one where its value was read."""
        place: Place = (record.topic, record.partition)
        if record.partition is None and record.value is not None:
            place = self._found.get(record.value, place)
        key = self._keys.get(place)
        if key is None:
            raise HistoryError(
                f"table op_records: column topic is null in a record of action {record.action} (value {record.value}),"
                " so it has no key; name its topic"
            )
        return key

    def value(self, value: str | None) -> str:
        """A record's value."""
        if value is None:
            return "nil"
        return value if self._integers else quote(value)

    def assign(self, process: str, keys: Sequence[int]) -> Sequence[int]:
        """What Jepsen is to believe assigned after this `assign` of ours.

        Ours adds partitions, or moves a consumer within one; Jepsen's replaces the assignment, and a partition
        that stays is expected to be read on where it was. So: all but those that move.
        """
        before = self._assigned.setdefault(process, set())
        stay = [k for k in sorted(before) if k not in keys] + [k for k in dict.fromkeys(keys) if k not in before]
        before.update(keys)
        return stay


def operation_line(op: Operation, names: Names, *, lane: int = 0, put_in: bool = False) -> str:
    """The line, with its line feed. lane: which of the numbers of its process; put_in: for Jepsen alone."""
    f = op.f.replace("_", "-")
    head = (
        f"{{:index {op.index}, :time {op.time_ns}, :type :{op.type}, :process {names.process(op.process, lane)},"
        f" :f :{f}, :value {_value(op, names)}"
    )
    for name, keyword in _EXTRA:
        text = getattr(op, name)
        if text is not None:
            head += f", {keyword} {quote(text)}"
    if op.cluster not in (None, "A"):
        head += f", :cluster {quote(op.cluster or '')}"
    moved = [names.key(r) for r in op.records if r.action == "rebalance"]
    if moved:
        head += f", :rebalance-log [{{:keys [{' '.join(map(str, moved))}]}}]"
    if op.f == "assign":
        head += _assignment(op, names)
    return head + (", :put-in true" if put_in else _exactly(op)) + "}\n"


def _exactly(op: Operation) -> str:
    """The keys that are needed to read the operation back as it was."""
    head = "" if op.invoke_index is None else f", :invoke-index {op.invoke_index}"
    if op.replica is not None:
        head += f", :replica {op.replica}"
    if op.retry is not None:
        head += f", :retry {to_edn(op.retry)}"
    if not _is_plain(op):
        return f"{head}, :records {to_edn(records_of(op))}"
    more = {Keyword(f":{name}"): _column([getattr(r, name) for r in op.records]) for name in MORE}
    more = {name: column for name, column in more.items() if column is not None}
    return f"{head}, :more {to_edn(more)}" if more else head


def records_of(op: Operation) -> list[list[Any]]:
    """Its records, columns in their order, without nulls at their ends."""
    found = []
    for record in op.records:
        columns = list(record)
        while columns[-1] is None:
            columns.pop()
        found.append(columns)
    return found


def _column(values: list[Any]) -> Any:
    """None: nothing but nulls; one value: the same for all."""
    if not values or all(v is None for v in values):
        return None
    return values[0] if all(v == values[0] for v in values) else values


def _is_plain(op: Operation) -> bool:
    """Whether the importer makes these records of the line's value."""
    actions = _TELLS.get(op.f, ())
    polled: set[Place] = set()
    last: OpRecord | None = None
    for r in op.records:
        place = (r.topic, r.partition)
        if r.action == "rebalance":
            last = r
            continue
        if r.action not in actions or (last is not None and last.action == "rebalance"):
            return False
        if r.action == "send":
            polled.clear()
            if r.partition is None or (op.type == "invoke" and r.offset is not None):
                return False
        elif last is None or last.action != r.action or (last.topic, last.partition) != place or r.action == "assign":
            if place in polled or (op.f == "subscribe" and r.offset is not None):
                return False
            polled.add(place)
        last = r
    return True


def _value(op: Operation, names: Names) -> str:
    if op.f in ("send", "poll", "txn"):
        return _micro_operations(op, names)
    if op.f in ("assign", "subscribe"):
        keys: Sequence[int] = [names.key(r) for r in op.records if r.action == "assign"]
        if op.f == "assign" and op.type == "ok":
            keys = names.assign(op.process, keys)
        return f"[{' '.join(map(str, keys))}]"
    return "nil"


def _assignment(op: Operation, names: Names) -> str:
    assigned = [(names.key(r), r.offset) for r in op.records if r.action == "assign"]
    offsets = " ".join(f"{k} {o}" for k, o in assigned if o is not None)
    text = f", :keys [{' '.join(str(k) for k, _ in assigned)}]" + (f", :offsets {{{offsets}}}" if offsets else "")
    kept = " ".join(str(names.key(r)) for r in op.records if r.action == "keep")
    return text + (f", :keep [{kept}]" if kept else "")


def _micro_operations(op: Operation, names: Names) -> str:
    """Sends one by one, and neighbouring polled records together; at least `[:poll]` for an empty poll."""
    steps: list[str] = []
    polled: dict[int, list[str]] = {}
    invoke = op.type == "invoke"
    for record in op.records:
        if record.action == "send":
            if polled:
                steps.append(_poll(polled))
                polled = {}
            key, value = names.key(record), names.value(record.value)
            offset = "nil" if record.offset is None else record.offset
            if invoke or (record.offset is None and op.type != "ok"):
                steps.append(f"[:send {key} {value}]")
            else:
                steps.append(f"[:send {key} [{offset} {value}]]")
        elif record.action == "poll":
            offset = "nil" if record.offset is None else record.offset
            polled.setdefault(names.key(record), []).append(f"[{offset} {names.value(record.value)}]")
    if polled:
        steps.append(_poll(polled))
    elif op.f == "poll" and not steps:
        steps.append("[:poll]" if invoke else "[:poll {}]")
    return f"[{' '.join(steps)}]"


def _poll(polled: Mapping[int, Sequence[str]]) -> str:
    return "[:poll {" + ", ".join(f"{key} [{' '.join(pairs)}]" for key, pairs in polled.items()) + "}]"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name
