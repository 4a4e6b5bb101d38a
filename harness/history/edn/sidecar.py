"""The lines of an export in addition to Jepsen's operations, so that a verdict on it is the verdict on the run.

They have `:process :beside`, which Jepsen skips because it is not a client's number:

- `:f :send …, :was :ok, :by "p1", :invoke-index 4, :records [["send" "t" 0 5 "v"] …]`: an event that Jepsen does not
  get in its stored form (of another cluster, of an administrator, a step of a transaction, an offset commit);
- `:f :row, :table "faults", :row {:fault_id 0 …}`: a row of another table.

What is too large for a history of operations is left out, and the header names it (`:left-out`): tables of more than
`ROWS` rows, and the logs of replicas of our own runs, whose completeness such a file cannot state. How one of our runs
went (its floor, phases, what was not healed) is always left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.core.errors import HistoryError
from harness.history.edn.lines import Operation, records_of
from harness.history.edn.reader import Keyword, to_edn
from harness.history.importing import RunBuilder
from harness.history.jsonl.fields import INT64
from harness.history.ops import OpRecord
from harness.history.schema import TABLES
from harness.history.store import StoredRun
from harness.history.writer import check_value

ROWS: Final = 50_000
BESIDE: Final = ":beside"
LOGS: Final = ("batches", "captured_logs", "log_ends", "records")
RUN: Final = "run.json"
_OPERATIONS: Final = ("ops", "op_records")
_TYPES: Final = ("invoke", "ok", "fail", "info")
_TEXTS: Final = ("cluster", "phase", "client", "txn", "group", "isolation", "reset", "error", "error_text")
_MAPS: Final = ("topic_map", "topic_maps")
HEADS: Final = (":source", ":clusters", ":topic-map", ":topic-maps", ":left-out")


class BesideError(Exception):
    """A line that is not of the form; completes the sentence "FILE, line N: …"."""


# -- writing ----------------------------------------------------------------------------------------------------------


def divided(run: StoredRun) -> tuple[list[str], list[str]]:
    """Tables whose rows are written, and what is left out (names of tables, or run.json)."""
    own = run.meta.source == "shatter"
    size = {name: run.rows(name) for name in TABLES if name not in _OPERATIONS and run.has(name)}
    logs = sum(rows for name, rows in size.items() if name in LOGS)
    left = [n for n, rows in size.items() if rows > ROWS or (n in LOGS and (own or logs > ROWS))]
    carried = [name for name in size if name not in left]
    return carried, [*left, *([RUN] if own else [])]


def head(run: StoredRun, left: Sequence[str]) -> dict[Any, Any]:
    """The header's facts about the run."""
    meta = run.meta
    said: dict[str, Any] = {
        ":source": None if meta.source in ("shatter", "edn") else meta.source,
        ":clusters": {name: list(info.brokers) for name, info in meta.clusters.items()},
        ":topic-map": meta.topic_map,
        ":topic-maps": meta.topic_maps,
        ":left-out": list(left),
    }
    if said[":clusters"] == {"A": []}:
        del said[":clusters"]
    return {Keyword(name): value for name, value in said.items() if value}


def event_line(op: Operation) -> str:
    """An event as it was."""
    line: dict[Any, Any] = {":index": op.index, ":time": op.time_ns, ":type": Keyword(":info")}
    line |= {":process": Keyword(BESIDE), ":f": Keyword(f":{op.f.replace('_', '-')}") if _plain(op.f) else op.f}
    line |= {":was": Keyword(f":{op.type}"), ":by": op.process, ":invoke-index": op.invoke_index}
    line |= {f":{name.replace('_', '-')}": getattr(op, name) for name in (*_TEXTS, "replica", "retry")}
    line[":records"] = records_of(op) or None
    return to_edn({Keyword(key): value for key, value in line.items() if value is not None}) + "\n"


def row_lines(run: StoredRun, tables: Sequence[str], index: int, time_ns: int) -> Iterator[str]:
    """The rows of these tables, numbered from `index`."""
    for name in tables:
        for batch in run.batches(name):
            for row in batch.to_pylist():
                held = {Keyword(f":{column}"): value for column, value in row.items() if value is not None}
                line = {":index": index, ":time": time_ns, ":type": Keyword(":info"), ":process": Keyword(BESIDE)}
                line |= {":f": Keyword(":row"), ":table": name, ":row": held}
                yield to_edn({Keyword(key): value for key, value in line.items()}) + "\n"
                index += 1


def _plain(f: str) -> bool:
    return f.isascii() and f.replace("_", "").isalnum()


# -- reading ----------------------------------------------------------------------------------------------------------


def good_head(header: Mapping[str, Any]) -> bool:
    """Whether the header's facts about the run are well-formed."""

    def texts(value: Any) -> bool:
        return type(value) is dict and all(type(k) is str and type(v) is str for k, v in value.items())

    left, clusters, maps = (header.get(name) for name in (":left-out", ":clusters", ":topic-maps"))
    return (
        header.get(":source") in (None, "jsonl", "bench")
        and (left is None or (type(left) is list and all(type(name) is str for name in left)))
        and (clusters is None or (type(clusters) is dict and all(map(_is_cluster, clusters.items()))))
        and texts(header.get(":topic-map", {}))
        and (maps is None or (type(maps) is dict and all(type(k) is str and texts(v) for k, v in maps.items())))
    )


def _is_cluster(cluster: tuple[Any, Any]) -> bool:
    name, brokers = cluster
    return type(name) is str and type(brokers) is list and all(type(b) is int for b in brokers)


def stated(header: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of run.json that the header states."""
    found = {name: header.get(f":{name.replace('_', '-')}", {}) for name in _MAPS}
    return {**found, "left_out": header.get(":left-out", [])}


def add(builder: RunBuilder, line: Mapping[Any, Any], index: int, time_ns: int) -> None:
    """One sidecar line: an event, or a row. Raises BesideError."""
    f = line.get(":f")
    if f == ":row":
        table = line.get(":table")
        if type(table) is not str or table not in TABLES or table in _OPERATIONS:
            raise BesideError(f"expected :table to be a table of rows, found {to_edn(table)}")
        builder.row(table, *_row(table, line.get(":row")))
        return
    type_, process = line.get(":was"), line.get(":by")
    if type(f) not in (str, Keyword) or type(process) is not str or type(type_) is not Keyword:
        raise BesideError("expected an event of :process :beside to have :f, :was and :by")
    if type_.name not in _TYPES:
        raise BesideError(f"expected :was to be :invoke, :ok, :fail or :info, found {to_edn(type_)}")
    values = {name: line.get(f":{name.replace('_', '-')}") for name in (*_TEXTS, "replica", "retry")}
    invoked = invoke_index(line)
    name = f.name.replace("-", "_") if type(f) is Keyword else str(f)
    row = {"index": index, "time_ns": time_ns, "process": process, "type": type_.name, "f": name, **values}
    _check("ops", row)
    records = read_records(line.get(":records", []))
    builder.op(index, time_ns, process, type_.name, name, invoked, records, **values)


def invoke_index(line: Mapping[Any, Any]) -> int | None:
    """The invoke that a completion names as its own. Raises BesideError."""
    found = line.get(":invoke-index")
    if found is not None and (type(found) is not int or not -INT64 <= found < INT64):
        raise BesideError(f"expected :invoke-index to be an integer, found {to_edn(found)}")
    return found


def read_records(records: Any) -> list[OpRecord]:
    """Records of `:records`. Raises BesideError."""
    if type(records) is not list:
        raise BesideError(f"expected :records to be a vector, found {to_edn(records)}")
    found = []
    for columns in records:
        if type(columns) is not list or not columns or len(columns) > len(OpRecord._fields):
            raise BesideError(f"expected a record as a vector of its columns, found {to_edn(columns)}")
        record = OpRecord(*[*columns, *[None] * (len(OpRecord._fields) - len(columns))])
        _check("op_records", {"op_index": 0, "position": 0, **record._asdict()})
        found.append(record)
    return found


def with_more(records: list[OpRecord], more: Any) -> list[OpRecord]:
    """The records with the columns of `:more`. Raises BesideError."""
    if type(more) is not dict:
        raise BesideError(f"expected :more to be a map, found {to_edn(more)}")
    for key, column in more.items():
        name = Keyword(key).name if isinstance(key, str) else ""
        values = column if type(column) is list else [column] * len(records)
        if name not in OpRecord._fields or len(values) != len(records):
            raise BesideError(f"expected :more to hold one value for each record, found {to_edn({key: column})}")
        records = [record._replace(**{name: value}) for record, value in zip(records, values, strict=True)]
    for record in records:
        _check("op_records", {"op_index": 0, "position": 0, **record._asdict()})
    return records


def _row(table: str, row: Any) -> list[Any]:
    if type(row) is not dict:
        raise BesideError(f"expected :row to be a map, found {to_edn(row)}")
    values = {Keyword(key).name if isinstance(key, str) else to_edn(key): value for key, value in row.items()}
    _check(table, values)
    return [values.get(column.name) for column in TABLES[table].columns]


def _check(table: str, row: Mapping[str, Any]) -> None:
    known = {column.name: column for column in TABLES[table].columns}
    unknown = sorted(set(row) - set(known))
    if unknown:
        raise BesideError(f"expected columns of table {table}, found {unknown[0]}")
    for name, column in known.items():
        try:
            check_value(table, name, column.type, column.nullable, row.get(name))
        except HistoryError as error:
            raise BesideError(f"expected what can be stored, but {error}") from None


def sentence(left: Sequence[str]) -> str:
    """What an export left out, as a warning before it is judged; empty when nothing was."""
    if not left:
        return ""
    logs = [name for name in left if name in LOGS]
    parts = [f"the logs of replicas (tables {', '.join(logs)})"] if logs else []
    parts += [f"table {name}" for name in left if name not in (*LOGS, RUN)]
    parts += ["how the run went (run.json)"] if RUN in left else []
    return f"the export to EDN left out {', '.join(parts)}, so what they would show is not known; check the run itself"
