"""Writes one cluster's operations in the form that Jepsen's Kafka checker (`jepsen.tests.kafka`) reads.

One operation a line. Integer keys stand for partitions and integer processes for ours; a first comment line says
which is which, so that our importer gives the same names back. What Jepsen has no word for is left out (offset
commits, mirror and administrator operations, evidence); phase, client, txn, group, isolation, reset and error go
along as further keys, which Jepsen ignores.

Transactions recorded in steps (begin, sends, commit) become one `:txn` operation, from the begin to the step that
decided it: committed `:ok`, aborted `:fail`, otherwise `:info`. Where a process's events are not invocation and
completion in turn, what is missing is put in (harness.history.edn_pairs). In both cases operations are numbered anew.

Jepsen's checker throws on a value that was read and never sent, e.g. on a mirror's destination: export cluster A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from harness.beside import refuse_target, written_beside
from harness.errors import HistoryError
from harness.history.edn_lines import Names, Operation, operation_line
from harness.history.edn_pairs import is_paired, paired
from harness.history.edn_reader import to_edn
from harness.history.edn_steps import merge_steps
from harness.history.ops import OpRecord
from harness.history.store import StoredRun, open_run

HEADER: Final = ";; shatterproof "
_OPS: Final = [
    *("index", "time_ns", "process", "type", "f", "phase", "cluster", "client", "txn", "group"),
    *("isolation", "reset", "error", "error_text"),
]
_RECORDS: Final = ["op_index", "position", "action", "topic", "partition", "offset", "value"]
_CARRYING: Final = ("send", "txn")  # operations that are nothing without their records
_STEPS: Final = ("txn_begin", "txn_commit", "txn_abort")
_ACTIONS: Final = ["send", "poll", "assign", "keep", "rebalance"]
_INTEGER: Final = r"^(0|-?[1-9]\d{0,17})$"
_EXPORTED: Final = frozenset({"send", "poll", "txn", "assign", "subscribe", "crash", *_STEPS})


@dataclass(frozen=True)
class Exported:
    """What was written: the file, its operations, and operations that Jepsen has no word for."""

    path: Path
    operations: int
    left_out: int


def export_edn(run_dir: Path | str, out: Path | str, *, cluster: str = "A") -> Exported:
    """Write the operations of one cluster as EDN; streams when the files are in order of index (ours are).

    Raises HistoryError when the run cannot be read or has no operation on that cluster, StorageError when `out`
    cannot be written or something else than a regular file lies there. `out` appears only when it is whole.
    """
    out = Path(out)
    refuse_target(out)
    run = open_run(run_dir)
    names, steps = _names(run)
    with written_beside(out) as sink:
        exported = _write(run, sink, names, steps, cluster)
        if not exported[0]:
            raise HistoryError(f"{run.path} holds no operation on cluster {cluster}; choose one that it has")
    return Exported(out, *exported)


def _write(run: StoredRun, sink: IO[str], names: Names, steps: bool, cluster: str) -> tuple[int, int]:
    left_out = 0

    def wanted() -> Iterator[Operation]:
        nonlocal left_out
        for operation in _operations(run):
            if (operation.cluster or "A") != cluster or operation.process.startswith("nemesis"):
                continue
            if _is_exported(operation.f):
                yield operation
            else:
                left_out += 1

    header: dict[str, Any] = names.header()
    if header:
        sink.write(HEADER + to_edn(header) + "\n")
    written = 0
    operations = merge_steps(wanted()) if steps else wanted()
    for operation in operations if not steps and _well_formed(run, cluster) else paired(operations):
        sink.write(operation_line(operation, names))
        written += 1
    return written, left_out


def _is_exported(f: str) -> bool:
    return f in _EXPORTED or f.startswith("debug")


def _well_formed(run: StoredRun, cluster: str) -> bool:
    rows = _rows(run, "ops", "index", ["index", "process", "type", "f", "cluster"])
    mine = ((p, t, f) for _, p, t, f, c in rows if (c or "A") == cluster and not p.startswith("nemesis"))
    return is_paired((process, type_) for process, type_, f in mine if _is_exported(f))


def _names(run: StoredRun) -> tuple[Names, bool]:
    """How partitions, processes and values are written, from one look at the columns concerned, batch by batch."""
    ops: set[tuple[str, str]] = set()
    for batch in run.batches("ops", ["process", "f"]):
        ops |= _distinct(batch, ["process", "f"])
    if not run.has("op_records") and any(f in _CARRYING for _, f in ops):
        raise HistoryError(f"table op_records is missing in {run.path}, which says what was sent and read; restore it")
    places: set[tuple[str | None, int | None]] = set()
    unplaced: set[str] = set()
    integers = True
    for batch in run.batches("op_records", ["action", "topic", "partition", "value"]):
        records = pa.table(batch).filter(pc.field("action").isin(_ACTIONS))
        places |= _distinct(records, ["topic", "partition"])
        if integers:
            integers = bool(pc.all(pc.match_substring_regex(records["value"], _INTEGER), min_count=0).as_py())
        lost = records.filter(pc.field("partition").is_null() & (pc.field("action") == "send"))
        unplaced.update(value for value in lost["value"].to_pylist() if value is not None)
    names = Names(
        places=[(topic, partition) for topic, partition in places if topic is not None],
        processes=[process for process, _ in ops],
        integers=integers,
        found=_found(run, unplaced),
    )
    return names, any(f in _STEPS for _, f in ops)


def _distinct(rows: pa.RecordBatch | pa.Table, columns: list[str]) -> set[tuple[Any, ...]]:
    groups = pa.table(rows).group_by(columns).aggregate([])
    return set(zip(*(groups[c].to_pylist() for c in columns), strict=True))


def _found(run: StoredRun, unplaced: set[str]) -> dict[str, tuple[str, int]]:
    """Where the values were read that were sent to a partition nobody knows (value → topic, partition)."""
    found: dict[str, tuple[str, int]] = {}
    if unplaced:
        wanted = pa.array(sorted(unplaced))
        for batch in run.batches("op_records", ["action", "topic", "partition", "value"]):
            read = pa.table(batch).filter((pc.field("action") == "poll") & pc.field("value").isin(wanted))
            found.update({r["value"]: (r["topic"], r["partition"]) for r in read.to_pylist()})
    return found


def _operations(run: StoredRun) -> Iterator[Operation]:
    """The events with their records, in order of index."""
    records = _rows(run, "op_records", "op_index", _RECORDS)
    ahead = next(records, None)
    for row in _rows(run, "ops", "index", _OPS):
        mine: list[tuple[Any, ...]] = []
        while ahead is not None and ahead[0] <= row[0]:
            if ahead[0] == row[0]:
                mine.append(ahead)
            ahead = next(records, None)
        mine.sort(key=itemgetter(1))  # by position: one operation's records may lie in several files
        yield Operation(*(*row, [OpRecord(*record[2:]) for record in mine]))


def _rows(run: StoredRun, table: str, order: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples in ascending order of a column; a table that is not in that order is sorted in memory."""
    if run.sorted_by(table, order):
        batches = run.batches(table, columns)
    else:
        batches = iter(run.read_table(table, columns).sort_by(order).to_batches())
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
