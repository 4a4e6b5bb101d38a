"""Shared by the importers: buffers of rows by table, stored in large complete files, and the run.json at the end.

A folder becomes a run only when everything was read: on an error nothing that was begun is left behind.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from harness.core.errors import HistoryError
from harness.core.owners import REMEMBERED, release
from harness.history.ops import OpRecord
from harness.history.pairing import Pairing, Place
from harness.history.runfile import RUN_FILE, ClusterInfo, RunFile, RunMeta
from harness.history.writer import PartWriter

_ROWS_PER_FILE: Final = 200_000
_FOREIGN: Final = {
    b"\x1f\x8b": "is compressed with gzip; unpack it with gunzip first",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it with unzstd first",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\xef\xbb\xbf": "begins with a byte order mark; save it as UTF-8 without one",
    b"\xff\xfe": "begins with a byte order mark of UTF-16; save it as UTF-8 without one",
    b"\xfe\xff": "begins with a byte order mark of UTF-16; save it as UTF-8 without one",
}  # a file's first bytes → what it is, and how to fix it


class RunBuilder:
    """Collects the rows of an imported history. Use it as a context manager; call `finish` at the end.

    Raises HistoryError when `run_dir` already holds a run or tables, StorageError when it cannot be written.
    """

    def __init__(self, run_dir: Path | str, *, source: str) -> None:
        self.run_dir = Path(run_dir)
        self.source = source
        self._buffers: dict[str, list[tuple[Any, ...]]] = {"ops": [], "op_records": []}
        self._writers: dict[str, PartWriter] = {}
        self._ops = self._buffers["ops"]
        self._records = self._buffers["op_records"]
        self._pairing = Pairing()
        self.brokers: dict[str, set[int]] = {}
        self._finished = False
        if (self.run_dir / RUN_FILE).exists() or any(self.run_dir.glob("*/*.parquet")):
            raise HistoryError(f"{self.run_dir} already holds a run; choose another folder, or delete it")

    def __enter__(self) -> RunBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            for writer in self._writers.values():
                release(writer.folder)

    def saw(self, cluster: str | None, broker: int | None = None) -> None:
        """Note that the history mentions a cluster, and a broker of it."""
        if cluster is not None:
            brokers = self.brokers.setdefault(cluster, set())
            if broker is not None and broker >= 0:
                brokers.add(broker)

    def invoke_index(
        self,
        index: int,
        process: str,
        type_: str,
        f: str,
        *,
        what: Hashable = None,
        place: Place = (),
        op: Hashable = None,
    ) -> int | None:
        """The ops.invoke_index of this event (None on an invoke): see `pairing`."""
        if type_ == "invoke":
            self._pairing.invoked(index, process, f, what, place, op)
            return None
        return self._pairing.completed(index, process, f, what, place, op)

    @staticmethod
    def happened(index: int, type_: str, invoke_index: int | None) -> bool:
        """Whether an event says that something was done: ok, or an info without an invoke (a mere report).

        The info of an operation that was invoked means that its outcome is unknown.
        """
        return type_ == "ok" or (type_ == "info" and invoke_index == index)

    def op(
        self,
        index: int,
        time_ns: int,
        process: str,
        type_: str,
        f: str,
        invoke_index: int | None,
        records: Sequence[OpRecord] = (),
        *,
        phase: str | None = None,
        cluster: str | None = None,
        client: str | None = None,
        txn: str | None = None,
        group: str | None = None,
        isolation: str | None = None,
        reset: str | None = None,
        error: str | None = None,
        error_text: str | None = None,
        replica: int | None = None,
        retry: bool | None = None,
    ) -> None:
        """One event of an operation, with its records."""
        row = (index, time_ns, process, type_, f, invoke_index, phase, cluster, client, txn)
        self._ops.append((*row, group, isolation, reset, error, error_text, replica, retry))
        position = 0
        for record in records:
            self._records.append((index, position) + record)  # noqa: RUF005 (twice as fast as unpacking)
            position += 1  # noqa: SIM113 (so is counting by hand)
        if len(self._ops) >= _ROWS_PER_FILE or len(self._records) >= _ROWS_PER_FILE:
            self._write("op_records")
            self._write("ops")

    def row(self, table: str, *values: Any) -> None:
        """One row of another table: values in the order of its columns."""
        rows = self._buffers.setdefault(table, [])
        rows.append(values)
        if len(rows) >= _ROWS_PER_FILE:
            self._write(table)

    def finish(self, **meta: Any) -> Path:
        """Store pending rows and write run.json; `meta` are further keys of it. Returns the run folder."""
        for table in list(self._buffers):
            self._write(table)
        clusters = {
            name: ClusterInfo(brokers=sorted(brokers)) for name, brokers in sorted(self.brokers.items()) if name
        }
        run_id = meta.pop("run_id", None) or self.run_dir.resolve().name
        RunFile.create(
            self.run_dir, RunMeta(run_id=run_id, source=self.source, status="finished", clusters=clusters, **meta)
        )
        self._finished = True
        for writer in self._writers.values():
            REMEMBERED.drop(writer.folder)
        return self.run_dir

    def _write(self, table: str) -> None:
        rows = self._buffers[table]
        if not rows:
            return
        writer = self._writers.get(table)
        if writer is None:
            writer = self._writers[table] = PartWriter(self.run_dir, table)
            REMEMBERED.add(writer.folder)
        writer.write_rows(rows)
        rows.clear()


def refuse_foreign(path: Path) -> None:
    """Raise HistoryError for a file whose first bytes say that it is not plain text. A file that cannot be opened is
    left to its reader, and so is a pipe, whose first bytes can be read only once."""
    if not path.is_file():
        return
    try:
        with path.open("rb") as source:
            head = source.read(4)
    except OSError:
        return
    for begin, what in _FOREIGN.items():
        if head.startswith(begin):
            raise HistoryError(f"{path} {what}")


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Importers make millions of rows and no reference cycles: the cycle collector would scan them for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
