"""The buffers of a live recording and the thread that empties them into small complete Parquet files.

Callers append under `lock`; the thread swaps the buffers out under the same lock and converts and writes
outside it. A table is written at every interval while it is busy, and less often while it is not, so that a
quiet run does not fill with tiny files. When the disk does not keep up, callers wait: memory stays bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from harness.core.errors import HistoryError, ShatterError, StorageError
from harness.history.ops import OpRecord
from harness.history.schema import TABLES
from harness.history.writer import Columns, PartWriter, fitting, to_arrow, to_columns

_BUSY_ROWS: Final = 256  # a table with this many pending rows is written at every interval
_CALM_OPS_S: Final = 1.0  # seconds that operations may wait when they are few
_CALM_S: Final = 2.0  # the same for every other table
_SLACK_S: Final = 0.05  # a wake-up this much too early counts as due
_BACKLOG: Final = 100_000  # with more pending events a caller waits for the disk
_STALL_S: Final = 60.0  # seconds it waits at most

Row = tuple[Any, ...]


class Flusher:
    """Buffers by table, and the thread that writes them.

    Hold `lock` to touch `ops`, `records` and `other`; call `mark` after an append when `dirty` is not set.
    ops: rows of table ops. records: (op_index, its records). other: table → rows.
    """

    def __init__(self, run_dir: Path, *, interval_s: float) -> None:
        self.lock = threading.Lock()
        self.ops: list[Row] = []
        self.records: list[tuple[int, Sequence[OpRecord]]] = []
        self.other: dict[str, list[Row]] = {}
        self.dirty = False
        self.unusable = False  # one flag for the hot path: failed or closed
        self._run_dir = run_dir
        self._interval = interval_s
        self._failure: ShatterError | None = None
        self._closed = False
        self._writers = {name: PartWriter(run_dir, name) for name in TABLES}
        self._write_lock = threading.Lock()  # one flush at a time
        self._wake = threading.Event()  # something is pending
        self._hurry = threading.Event()  # do not wait for the interval to end
        self._waiting_since: dict[str, float] = {}
        self._retry: list[tuple[str, Columns]] = []
        self._thread = threading.Thread(target=self._loop, name="recorder-flush", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> ShatterError | None:
        """Why nothing can be stored any more; None while storing works."""
        return self._failure

    @property
    def written(self) -> tuple[str, ...]:
        """The tables that have files of this recording."""
        return tuple(name for name, writer in self._writers.items() if writer.files_written)

    def mark(self) -> None:
        """Signal that something is pending (under `lock`)."""
        self.dirty = True
        self._wake.set()

    def raise_if_unusable(self) -> None:
        """Raise the error that ended recording (a new exception each time: many threads may raise it)."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        if self._closed:
            raise StorageError(f"the recorder of {self._run_dir} is closed: nothing more can be recorded")

    def throttle(self) -> None:
        """Block the caller while far more is pending than one flush writes. Call without `lock`."""
        if len(self.ops) <= _BACKLOG:
            return
        deadline = time.monotonic() + _STALL_S
        self._hurry.set()
        while len(self.ops) > _BACKLOG and not self.unusable:
            if time.monotonic() > deadline:
                self._fail(
                    StorageError(
                        f"waited {_STALL_S:g} s for {self._run_dir} to take {len(self.ops):,} pending events;"
                        " the disk does not keep up: free it of other work, or choose another folder with --out"
                    )
                )
            time.sleep(0.005)

    def flush(self) -> None:
        """Write everything that is pending. Raises what `raise_if_unusable` does."""
        self.raise_if_unusable()
        self._write_pending(everything=True)
        self.raise_if_unusable()

    def close(self) -> bool:
        """Stop the thread and write everything; False when it was closed already.

        After a failed write it tries once more, in case the disk was fixed. Raises StorageError when rows
        could not be stored, HistoryError when rows did not fit and were left out.
        """
        with self.lock:
            if self._closed:
                return False
            self._closed = self.unusable = True
        self._wake.set()
        self._hurry.set()
        self._thread.join(timeout=_STALL_S)
        if self._thread.is_alive():
            raise StorageError(f"waited {_STALL_S:g} s for the last write to {self._run_dir}: the disk does not answer")
        earlier, self._failure = self._failure, None
        self._write_pending(everything=True)
        if self._failure is None and isinstance(earlier, HistoryError):
            self._failure = earlier
        if self._failure is not None:
            raise self._failure
        return True

    def _fail(self, error: ShatterError) -> None:
        self._failure = error
        self.unusable = True

    def _loop(self) -> None:
        while not self._closed:
            self._wake.wait()  # an idle run costs nothing
            self._hurry.wait(self._interval)
            self._hurry.clear()
            if not self._closed:
                self._write_pending(everything=False)

    def _write_pending(self, *, everything: bool) -> None:
        with self._write_lock:
            if self._failure is not None:
                self._wake.clear()
                return
            todo, self._retry = self._retry + self._take(everything=everything), []
            for position, (table, columns) in enumerate(todo):
                try:
                    self._store(table, columns)
                except StorageError as error:
                    self._retry = todo[position:]
                    self._fail(error)
                    return

    def _store(self, table: str, columns: Columns) -> None:
        definition = TABLES[table]
        try:
            self._writers[table].write(to_arrow(definition, columns))
        except HistoryError as error:  # a caller's mistake must not cost the rows of the others
            self._writers[table].write(to_arrow(definition, fitting(definition, columns)))
            self._fail(error)

    def _take(self, *, everything: bool) -> list[tuple[str, Columns]]:
        """Swap out the buffers that are due. Records go before their events, so that no event lacks its records."""
        with self.lock:
            ops: list[Row] = []
            grouped: list[tuple[int, Sequence[OpRecord]]] = []
            if self.ops and (everything or self._is_due("ops", len(self.ops))):
                ops, self.ops = self.ops, []
                grouped, self.records = self.records, []
            due = [name for name, rows in self.other.items() if everything or self._is_due(name, len(rows))]
            taken = [(name, self.other.pop(name)) for name in due]
            if not self.ops and not self.other:
                self.dirty = False
                self._wake.clear()
        batches: list[tuple[str, Columns]] = [(name, to_columns(rows)) for name, rows in taken]
        if grouped:
            batches.append(("op_records", self._record_columns(grouped)))
        if ops:
            batches.append(("ops", to_columns(ops)))
        return batches

    def _record_columns(self, grouped: Sequence[tuple[int, Sequence[OpRecord]]]) -> Columns:
        """Columns of op_records. Built without a tuple per record: this is half of what recording costs."""
        try:
            return _flatten(grouped)
        except (TypeError, ValueError):  # an element is not an OpRecord
            self._fail(HistoryError("records of an operation must be a sequence of OpRecord; others were left out"))
            good = [
                (i, [r for r in rs if isinstance(r, OpRecord)]) for i, rs in grouped if isinstance(rs, list | tuple)
            ]
            return _flatten(good)

    def _is_due(self, table: str, pending: int) -> bool:
        """Whether to write now. A table with few rows waits longer, so that it does not fill with tiny files."""
        now = time.monotonic()
        since = self._waiting_since.setdefault(table, now - self._interval)
        calm = _CALM_OPS_S if table == "ops" else _CALM_S
        if pending < _BUSY_ROWS and now - since < calm - _SLACK_S:
            return False
        del self._waiting_since[table]
        return True


def _flatten(grouped: Sequence[tuple[int, Sequence[OpRecord]]]) -> Columns:
    index = [i for i, records in grouped for _ in records]
    position = [p for _, records in grouped for p in range(len(records))]
    return [index, position, *zip(*chain.from_iterable(records for _, records in grouped), strict=True)]
