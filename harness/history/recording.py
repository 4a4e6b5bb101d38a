"""The protocol to which workloads, nemeses and the runner record during a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.core.clock import Clock
from harness.history.ops import OpRecord, OpType, Phase


class Recorder(Protocol):
    """Thread-safe. Rows reach the disk in small complete Parquet files, at most a second or so late.

    Raises StorageError from any call once the folder can no longer be written; what was stored before is kept.
    """

    @property
    def clock(self) -> Clock:
        """The run's clock."""
        ...

    @property
    def phase(self) -> Phase:
        """The phase that new events are stamped with."""
        ...

    def set_phase(self, phase: Phase) -> None:
        """Move to another phase; its start and the end of the last one go into run.json."""
        ...

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
        records: Sequence[OpRecord] = (),
    ) -> int:
        """Record that an operation begins; returns its index, to be given to `complete`."""
        ...

    def complete(
        self,
        invoke_index: int,
        type: OpType,  # noqa: A002 (the field's own word)
        *,
        records: Sequence[OpRecord] = (),
        error: str | None = None,
        error_text: str | None = None,
    ) -> int:
        """Record how it ended; process, f, cluster, client, txn, group come from the invoke."""
        ...

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
        """Record one step of one fault (table `faults`)."""
        ...

    def row(self, table: str, **columns: Any) -> None:
        """Record one row of any table of harness.history.schema; `time_ns` is filled in when absent."""
        ...

    def flush(self) -> None:
        """Write everything recorded so far to complete files."""
        ...
