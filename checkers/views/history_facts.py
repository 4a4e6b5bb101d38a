"""Which events a history contains, from one pass over `ops`: views and checkers skip what cannot be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from checkers.spark.stored import Stored
from harness.history.schema import TABLES
from harness.history.store import naming_damaged

_COLUMNS = ("type", "f", "invoke_index", "txn", "cluster", "error", "phase")
_CODED = ("type", "f", "cluster", "error", "phase")
_PART_ROWS = 1_000_000
AT_A_GLANCE = 5_000_000
"""Up to this many events are read in this process, in a second or two; more are a Spark job."""
_FLAGS = ("unpaired", "txn", "epoch_error", "out_of_range", "final")
_FOUND = "f string, type string, cluster string, events bigint, " + ", ".join(f"{flag} boolean" for flag in _FLAGS)
MOVES = ("assign", "subscribe", "crash")
OUT_OF_RANGE = "(?i)out[_ -]?of[_ -]?range|offset[_ -]?reset|log[_ -]?truncation|no[_ -]?offset"
"""Errors of polls that mean: the consumer's position is not in the log (any more). For RE2 and Java alike."""


@dataclass(frozen=True)
class Facts:
    """counts: (f, type) → events. The rest: whether at least one such event is there.

    unpaired: a completion without `invoke_index`. txn_ops: transactions as one operation (`f` = txn).
    txn_steps: events that name a transaction. moves: assign, subscribe or crash. deletes: a request to delete a
    topic. epoch_errors: an error names a leader epoch. out_of_range: an error says that a position is outside the log.
    clusters: letters seen in `ops`. final_polls: clusters with polls of the phase final. actions: of `op_records`.
    """

    counts: Mapping[tuple[str, str], int]
    unpaired: bool
    txn_ops: bool
    txn_steps: bool
    moves: bool
    deletes: bool
    epoch_errors: bool
    out_of_range: bool
    clusters: frozenset[str]
    final_polls: frozenset[str]
    actions: frozenset[str]

    @property
    def transactional(self) -> bool:
        """Whether there are transactions of either kind."""
        return self.txn_ops or self.txn_steps

    def any(self, *functions: str) -> bool:
        """Whether there are events of one of these functions."""
        return any(f in functions for f, _ in self.counts)


def learn(stored: Stored) -> Facts:
    """Scan all events."""
    rows = _rows(stored, "ops", _found, _FOUND)
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row["f"], row["type"]] += row["events"]
    functions = {f for f, _ in counts}
    return Facts(
        counts=dict(counts),
        unpaired=any(row["unpaired"] for row in rows),
        txn_ops="txn" in functions,
        txn_steps=any(row["txn"] for row in rows),
        moves=not functions.isdisjoint(MOVES),
        deletes="delete_topic" in functions,
        epoch_errors=any(row["epoch_error"] for row in rows),
        out_of_range=any(row["out_of_range"] for row in rows),
        clusters=frozenset(row["cluster"] for row in rows if row["cluster"] is not None),
        final_polls=frozenset(row["cluster"] for row in rows if row["f"] == "poll" and row["final"] and row["cluster"]),
        actions=frozenset(row["action"] for row in _rows(stored, "op_records", _actions, "action string")),
    )


def _rows(stored: Stored, table: str, scan: Callable[[Sequence[str]], pa.Table], schema: str) -> list[dict[str, Any]]:
    """The results of `scan` on the files of a table, part by part."""
    files = [str(file) for file in stored.run.files.get(table, ())]
    if stored.run.rows(table) <= AT_A_GLANCE:
        return list(scan(files).to_pylist())
    parts = max(1, min(len(files), stored.run.rows(table) // _PART_ROWS))

    def scanned(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some.column("id").to_pylist():
                yield from scan(files[number::parts]).to_batches()

    numbers = stored.spark.range(0, parts, 1, parts)
    return [row.asDict() for row in numbers.mapInArrow(scanned, schema).collect()]


def _opened(files: Sequence[str], table: str, columns: Sequence[str], coded: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns, repeated strings as dictionaries."""
    if not files:
        return
    types = {name: TABLES[table].schema.field(name).type for name in columns}
    types |= {name: pa.dictionary(pa.int32(), pa.string()) for name in coded}
    parquet = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=list(coded)))
    with naming_damaged(files):
        held = ds.dataset(list(files), schema=pa.schema(list(types.items())), format=parquet)
        yield from (b for b in held.to_batches(batch_size=_PART_ROWS, use_threads=False) if len(b))


def _actions(files: Sequence[str]) -> pa.Table:
    """The distinct actions of records: one column."""
    found = {
        name for b in _opened(files, "op_records", ["action"], ["action"]) for name in b.column(0).unique().to_pylist()
    }
    return pa.table({"action": pa.array(sorted(found), pa.string())})


def _found(files: Sequence[str]) -> pa.Table:
    """One row per function, type and cluster."""
    schema = pa.schema([(n, pa.string()) for n in ("f", "type", "cluster")] + [("events", pa.int64())])
    schema = pa.schema([*schema, *((n, pa.bool_()) for n in _FLAGS)])
    found = [_of(batch) for batch in _opened(files, "ops", _COLUMNS, _CODED)]
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in found)])


def _of(batch: pa.RecordBatch) -> pa.Table:
    f, kind, cluster, error = (batch.column(name) for name in ("f", "type", "cluster", "error"))
    epochs = pc.match_substring(error.dictionary, "LEADER_EPOCH", ignore_case=True)
    outside = pc.match_substring_regex(error.dictionary, OUT_OF_RANGE)
    columns = {
        "f": f.cast(pa.string()),
        "type": kind.cast(pa.string()),
        "cluster": cluster.cast(pa.string()),
        "unpaired": pc.and_(pc.not_equal(kind, "invoke"), batch.column("invoke_index").is_null()),
        "txn": pc.and_(batch.column("txn").is_valid(), pc.not_equal(f, "txn")),
        "epoch_error": epochs.take(error.indices).fill_null(False),
        "final": pc.equal(batch.column("phase"), "final").fill_null(False),
        "out_of_range": outside.take(error.indices).fill_null(False),
    }
    keys = ["f", "type", "cluster"]
    grouped = pa.table(columns).group_by(keys).aggregate([([], "count_all"), *((flag, "max") for flag in _FLAGS)])
    renamed = {"count_all": "events", **{f"{flag}_max": flag for flag in _FLAGS}}
    grouped = grouped.rename_columns([renamed.get(name, name) for name in grouped.column_names])
    return grouped.select([*keys, "events", *_FLAGS])
