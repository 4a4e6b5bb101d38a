"""Writes one cluster's operations in the form that Jepsen's Kafka checker (`jepsen.tests.kafka`) reads.

One operation a line. Integer keys stand for partitions, integer processes for the run's processes; a first comment line
lists them, so that our importer restores the names. phase, client, txn, group, isolation, reset and error are
written as further keys, which Jepsen ignores.

Transactions recorded in steps (begin, sends, commit) become one `:txn` operation, from the begin to the step that
decided it: committed `:ok`, aborted `:fail`, otherwise `:info`. Where a process's events do not alternate between
invocation and completion, the missing ones are added (harness.history.edn.pairs). In both cases operations are
renumbered.

What Jepsen cannot express, or gets in another form, is written on lines that it skips (harness.history.edn.sidecar), so
that our importer restores the run, except for what is left out as too large, which is named.

Jepsen's checker throws on a value that was read and never sent, e.g. on a mirror's destination: export cluster A.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from harness.core.atomic_files import refuse_target, written_beside
from harness.core.errors import HistoryError
from harness.history.edn.lines import Names, Operation, operation_line
from harness.history.edn.pairs import Completions, Pairs, Put, is_paired, resolved
from harness.history.edn.reader import to_edn
from harness.history.edn.sidecar import divided, event_line, head, row_lines
from harness.history.edn.transactions import WholeTransactions
from harness.history.ops import OpRecord
from harness.history.pairing import DONE_AT_MOST
from harness.history.store import StoredRun, open_run

HEADER: Final = ";; shatterproof "
_OPS: Final = [
    *("index", "time_ns", "process", "type", "f", "phase", "cluster", "client", "txn", "group"),
    *("isolation", "reset", "error", "error_text", "invoke_index", "replica", "retry"),
]
_RECORDS: Final = ["op_index", "position", *OpRecord._fields]
_CARRYING: Final = ("send", "txn")  # operations that mean nothing without their records
_STEPS: Final = ("txn_begin", "txn_commit", "txn_abort")
_ACTIONS: Final = ["send", "poll", "assign", "keep", "rebalance"]
_INTEGER: Final = r"^(0|-?[1-9]\d{0,17})$"
_EXPORTED: Final = frozenset({"send", "poll", "txn", "assign", "subscribe", "crash", *_STEPS})


@dataclass(frozen=True)
class Exported:
    """The result: the file, its operations, how many events of the cluster Jepsen cannot express (they are on lines
    that it skips), and what was left out: names of tables, or run.json."""

    path: Path
    operations: int
    left_out: int
    tables_left_out: tuple[str, ...] = ()


def export_edn(run_dir: Path | str, out: Path | str, *, cluster: str = "A") -> Exported:
    """Write the operations of one cluster as EDN; streams when the files are in order of index (ours are).

    Raises HistoryError when the run cannot be read or has no operation on that cluster, StorageError when `out`
    cannot be written or is not a regular file. `out` appears only when it is whole.
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


class _Writer:
    """Writes events as lines: Jepsen's operations, and sidecar lines for what these cannot express."""

    def __init__(self, sink: IO[str], names: Names, *, steps: bool, renumber: bool, completions: Completions) -> None:
        self._sink = sink
        self._names = names
        self._steps = WholeTransactions() if steps else None
        self._pairs = Pairs(completions, steps=steps) if renumber else None
        self._numbers: OrderedDict[int, int] = OrderedDict()  # index of an invoke → its number in the file
        self.next = 0
        self.last_ns = 0
        self.operations = 0

    def event(self, op: Operation, *, for_jepsen: bool) -> None:
        """One event of the run."""
        puts = self._puts([op] if self._steps is None else self._steps.event(op)) if for_jepsen else []
        for put in puts:
            self._jepsen(put, event=op)
        if all(put.operation is not op for put in puts):
            self._sink.write(event_line(self._numbered(op)))

    def end(self) -> None:
        """After the last event."""
        for put in self._puts([] if self._steps is None else self._steps.end()):
            self._jepsen(put, event=None)

    def rows(self, run: StoredRun, tables: Sequence[str]) -> None:
        """The rows of other tables."""
        self._sink.writelines(row_lines(run, tables, self.next, self.last_ns))

    def _puts(self, operations: Sequence[Operation]) -> list[Put]:
        if self._pairs is None:
            return [Put(op) for op in operations]
        return [put for op in operations for put in self._pairs.event(op)]

    def _jepsen(self, put: Put, *, event: Operation | None) -> None:
        own = put.operation is event
        lane = self._names.new_lane(put.operation.process, put.lane)
        if lane:
            self._sink.write(HEADER + to_edn(lane) + "\n")
        op = self._numbered(put.operation) if own else self._number(put.operation)
        self._sink.write(operation_line(op, self._names, lane=put.lane, put_in=not own))
        self.operations += 1

    def _number(self, op: Operation) -> Operation:
        number = op.index if self._pairs is None else self.next
        self.next, self.last_ns = number + 1, op.time_ns
        return replace(op, index=number)

    def _numbered(self, op: Operation) -> Operation:
        """The event itself, and its invoke, as they are numbered in the file."""
        numbered = self._number(op)
        if op.type == "invoke":
            self._numbers[op.index] = numbered.index
            if len(self._numbers) > DONE_AT_MOST:
                self._numbers.popitem(last=False)
            return numbered
        invoked = -1 if op.invoke_index is None else op.invoke_index
        return replace(numbered, invoke_index=self._numbers.get(invoked, numbered.index))


def _write(run: StoredRun, sink: IO[str], names: Names, steps: bool, cluster: str) -> tuple[int, int, tuple[str, ...]]:
    carried, left = divided(run)
    header = {**names.header(), **head(run, left)}
    if header:
        sink.write(HEADER + to_edn(header) + "\n")
    renumber = steps or not _well_formed(run, cluster)
    every = Completions(resolved(_operations(run)) if renumber else ())
    writer = _Writer(sink, names, steps=steps, renumber=renumber, completions=every)
    wordless = 0
    for op in resolved(_operations(run)):
        here = (op.cluster or "A") == cluster and not op.process.startswith("nemesis")
        for_jepsen = here and _is_exported(op.f)
        wordless += here and not for_jepsen
        writer.event(op, for_jepsen=for_jepsen)
    writer.end()
    writer.rows(run, carried)
    return writer.operations, wordless, tuple(left)


def _is_exported(f: str) -> bool:
    return f in _EXPORTED or f.startswith("debug")


def _well_formed(run: StoredRun, cluster: str) -> bool:
    rows = _rows(run, "ops", "index", ["index", "process", "type", "invoke_index", "f", "cluster"])
    mine = (row for row in rows if (row[5] or "A") == cluster and not row[1].startswith("nemesis"))
    return is_paired(row[:4] for row in mine if _is_exported(row[4]))


def _names(run: StoredRun) -> tuple[Names, bool]:
    """How partitions, processes and values are written, from one scan of the columns concerned, batch by batch."""
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
    """Where values were read that were sent to an unknown partition (value → topic, partition)."""
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
