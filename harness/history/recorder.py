"""The recorder of a live run: many threads append, one thread writes small complete Parquet files.

The hot path is one lock, one clock reading and one tuple per event; index and time are taken under the same
lock, so that order by index is order by time. A process that is killed loses what was recorded since the last
flush: `flush_interval_s` of a busy table; of a calm one, up to one second of operations and two of other rows.

It cannot see whether the disk keeps what it confirmed (it relies on fsync).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from harness.core.clock import Clock, MonotonicClock
from harness.core.errors import HistoryError, ShatterError
from harness.history.flusher import Flusher
from harness.history.merging import merge_files
from harness.history.ops import OpRecord, OpType, Phase
from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES
from harness.history.writer import check_value, clean_leftovers, table_named

_NO_RECORDS: Final[tuple[OpRecord, ...]] = ()
_NOTHING: Final = (None, None, None, None)  # error, error_text, replica, retry of an invoke
_PLACES: Final = {name: {c.name: i for i, c in enumerate(t.columns)} for name, t in TABLES.items()}


class RunRecorder:
    """Implements harness.history.recording.Recorder on a run folder. Use it as a context manager.

    run_dir: created when absent; HistoryError when it already holds a run. meta: the first contents of run.json
    (change them later through `run_file.update`). clock: the run's clock.
    After a failed write every call raises the same StorageError; complete files stay readable, and `close`
    tries once more to store pending rows, in case the disk was fixed meanwhile.
    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        clock: Clock | None = None,
        flush_interval_s: float = 0.5,
        meta: RunMeta | None = None,
        phase: Phase = Phase.PROVISION,
    ) -> None:
        self.run_dir = Path(run_dir)
        self._clock: Clock = clock or MonotonicClock()
        self.run_file = RunFile.create(self.run_dir, meta or RunMeta(run_id=self.run_dir.resolve().name))
        clean_leftovers(self.run_dir)
        self._next = 0
        self._open: dict[int, tuple[str, str, tuple[Any, ...]]] = {}
        self._phase = phase
        self.run_file.start_phase(phase, self._clock.now_ns())
        self._flusher = Flusher(self.run_dir, interval_s=flush_interval_s)

    @property
    def clock(self) -> Clock:
        """The run's clock."""
        return self._clock

    @property
    def phase(self) -> Phase:
        """The phase that new events are stamped with."""
        return self._phase

    @property
    def failure(self) -> ShatterError | None:
        """Why nothing can be recorded any more; None while recording works."""
        return self._flusher.failure

    def set_phase(self, phase: Phase) -> None:
        """Move to another phase; its start and the end of the last one go into run.json."""
        self._flusher.raise_if_unusable()
        with self._flusher.lock:
            self._phase = phase
            now = self._clock.now_ns()
        self.run_file.start_phase(phase, now)

    def invoke(
        self,
        process: str,
        f: str,
        *,
        cluster: str,
        client: str | None = None,
        txn: str | None = None,
        group: str | None = None,
        isolation: str | None = None,
        reset: str | None = None,
        records: Sequence[OpRecord] = _NO_RECORDS,
    ) -> int:
        """Record that an operation begins; returns its index, to be given to `complete`.

        `records` is kept as it is: do not change it afterwards.
        """
        buffers = self._flusher
        with buffers.lock:
            if buffers.unusable:
                buffers.raise_if_unusable()
            index = self._next
            self._next = index + 1
            what = (cluster, client, txn, group, isolation, reset)
            buffers.ops.append((index, self._clock.now_ns(), process, "invoke", f, None, self._phase, *what, *_NOTHING))
            self._open[index] = (process, f, what)
            if records:
                buffers.records.append((index, records))
            if not buffers.dirty:
                buffers.mark()
        return index

    def complete(
        self,
        invoke_index: int,
        type: OpType,  # noqa: A002 (the field's own word)
        *,
        records: Sequence[OpRecord] = _NO_RECORDS,
        error: str | None = None,
        error_text: str | None = None,
    ) -> int:
        """Record how it ended; process, f, cluster, client, txn, group come from the invoke. Returns its index.

        Raises HistoryError when no operation with that index is under way (never begun, or completed already).
        """
        buffers = self._flusher
        with buffers.lock:
            if buffers.unusable:
                buffers.raise_if_unusable()
            try:
                process, f, what = self._open.pop(invoke_index)
            except KeyError:
                raise HistoryError(f"operation {invoke_index} is not under way: it cannot complete") from None
            index = self._next
            self._next = index + 1
            buffers.ops.append(
                (
                    index,
                    self._clock.now_ns(),
                    process,
                    type,
                    f,
                    invoke_index,
                    self._phase,
                    *what,
                    error,
                    error_text,
                    None,
                    None,
                )
            )
            if records:
                buffers.records.append((index, records))
            if not buffers.dirty:
                buffers.mark()
        buffers.throttle()
        return index

    def fault(
        self,
        *,
        fault_id: int,
        name: str,
        action: str,
        cluster: str | None = None,
        target: str | None = None,
        ok: bool | None = None,
        result: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Record one step of one fault (table `faults`). `params` may hold anything that JSON or str can show."""
        self.row(
            "faults",
            fault_id=fault_id,
            name=name,
            action=action,
            cluster=cluster,
            target=target,
            ok=ok,
            result=result,
            params=None if params is None else json.dumps(dict(params), default=str),
        )

    def row(self, table: str, **columns: Any) -> None:
        """Record one row of any table of harness.history.schema; `time_ns` is filled in when absent.

        Raises HistoryError for a table, column or type that does not exist, or a required column that is absent.
        """
        definition = table_named(table)
        if table in ("ops", "op_records"):
            raise HistoryError(f"rows of {table} are recorded by invoke and complete, which give them their index")
        places = _PLACES[table]
        row: list[Any] = [None] * len(places)
        for name, value in columns.items():
            if name not in places:
                raise HistoryError(f"table {table} has no column {name!r}; it has {', '.join(places)}")
            row[places[name]] = value
        time_at = places.get("time_ns")
        stamp = time_at is not None and row[time_at] is None
        for place, column in enumerate(definition.columns):
            if not (stamp and place == time_at):
                check_value(table, column.name, column.type, column.nullable, row[place])
        buffers = self._flusher
        with buffers.lock:
            buffers.raise_if_unusable()
            if stamp and time_at is not None:
                row[time_at] = self._clock.now_ns()
            buffers.other.setdefault(table, []).append(tuple(row))
            if not buffers.dirty:
                buffers.mark()

    def flush(self) -> None:
        """Write everything recorded so far to complete files. Raises StorageError."""
        self._flusher.flush()

    def close(self) -> None:
        """Store what is pending, end the last phase in run.json, join small files. Safe to call twice.

        Raises StorageError (or HistoryError) when something could not be stored.
        """
        if self._flusher.close():
            self.run_file.end_phase(self._clock.now_ns())
            merge_files(self.run_dir, self._flusher.written)

    def __enter__(self) -> RunRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ShatterError:
            if error is None:  # else the error under way says more, or is the same
                raise
