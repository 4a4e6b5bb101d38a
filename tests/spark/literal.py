"""Helpers for literal histories: every line of a test's history is one call, in time order.

Times are 10 ns apart, indices count from 0. Defaults describe the commonest case, so that a test shows only
what matters to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES

Rows = list[dict[str, Any]]


class History:
    """Rows of the stored tables, and `write`, which makes a run folder of them.

    `source="jsonl"` (an imported history, maybe without final_reads) or "shatter" (a run of Shatterproof).
    """

    def __init__(self, *, source: str = "jsonl", **meta: Any) -> None:
        self.meta = RunMeta(run_id="literal", source=source, status="finished", **meta)
        self.tables: dict[str, Rows] = {}
        self._index = -1

    @property
    def now(self) -> int:
        """Time of the last event."""
        return (self._index + 1) * 10

    def row(self, table: str, **columns: Any) -> None:
        """One row of any table; `time_ns` is filled in where the table has it."""
        names = {c.name for c in TABLES[table].columns}
        if "time_ns" in names:
            columns.setdefault("time_ns", self.now)
        unknown = set(columns) - names
        assert not unknown, f"table {table} has no column {unknown}"
        self.tables.setdefault(table, []).append(columns)

    def event(self, process: str, type_: str, f: str, records: Iterable[dict[str, Any]] = (), **columns: Any) -> int:
        """One event of an operation with its records; returns its index."""
        self._index += 1
        index = columns.pop("index", self._index)
        self.row("ops", index=index, process=process, type=type_, f=f, **columns)
        for position, record in enumerate(records):
            self.row("op_records", op_index=index, **{"position": position, **record})
        return int(index)

    def send(
        self,
        process: str,
        cluster: str,
        topic: str,
        partition: int,
        *values: str,
        offset: int | None = None,
        end: str | None = "ok",
        txn: str | None = None,
        phase: str = "load",
        client: str | None = None,
        **record: Any,
    ) -> int:
        """Invoke and complete a send of `values` at consecutive offsets from `offset`; returns the invoke's index.

        `end`: ok, fail, info, or None for an operation that never completes.
        """
        place = {"action": "send", "topic": topic, "partition": partition, **record}
        columns = {"cluster": cluster, "txn": txn, "phase": phase, "client": client}
        invoke = self.event(process, "invoke", "send", [{**place, "value": v} for v in values], **columns)
        if end is not None:
            done = [
                {**place, "value": v, "offset": None if offset is None else offset + i} for i, v in enumerate(values)
            ]
            self.event(process, end, "send", done, invoke_index=invoke, **columns)
        return invoke

    def step(self, process: str, f: str, cluster: str, txn: str, *, end: str | None = "ok") -> None:
        """A step of a transaction: txn_begin, txn_commit, txn_abort."""
        invoke = self.event(process, "invoke", f, cluster=cluster, txn=txn)
        if end is not None:
            self.event(process, end, f, cluster=cluster, txn=txn, invoke_index=invoke)

    def poll(
        self,
        process: str,
        cluster: str,
        topic: str,
        partition: int,
        *read: tuple[int, str],
        isolation: str = "read_uncommitted",
        phase: str = "load",
        end: str = "ok",
        **columns: Any,
    ) -> int:
        """Invoke and complete a poll that returns (offset, value) pairs; returns the completion's index."""
        columns = {"cluster": cluster, "isolation": isolation, "phase": phase, **columns}
        invoke = self.event(process, "invoke", "poll", **columns)
        records = [{"action": "poll", "topic": topic, "partition": partition, "offset": o, "value": v} for o, v in read]
        return self.event(process, end, "poll", records, invoke_index=invoke, **columns)

    def log(
        self,
        cluster: str,
        topic: str,
        partition: int,
        *records: tuple[int, str | None] | tuple[int, str | None, dict[str, Any]],
        broker: int = -1,
        look: int = 0,
        log_start: int | None = None,
        log_end: int | None = None,
        hw: int | None = None,
        lso: int | None = None,
        leader: int | None = None,
    ) -> None:
        """One snapshot of one replica's log: (offset, value) or (offset, value, other columns of `records`).

        `control_type` in the columns makes a control record. One batch per record is written to `batches`.
        """
        self._index += 1
        place = {"cluster": cluster, "topic": topic, "partition": partition, "broker": broker, "look": look}
        offsets = [r[0] for r in records]
        end = (max(offsets) + 1 if offsets else 0) if log_end is None else log_end
        self.row(
            "log_ends",
            **place,
            log_start=(min(offsets) if offsets else end) if log_start is None else log_start,
            log_end=end,
            high_watermark=end if hw is None else hw,
            last_stable=end if lso is None else lso,
            leader=leader,
        )
        for record in records:
            extra: dict[str, Any] = dict(record[2]) if len(record) == 3 else {}
            producer = {
                "leader_epoch": extra.pop("leader_epoch", 0),
                "producer_id": extra.pop("producer_id", -1),
                "producer_epoch": extra.pop("producer_epoch", -1),
                "transactional": extra.pop("transactional", False),
                "control_type": extra.pop("control_type", None),
                "txn": extra.pop("txn", None),
            }
            sequence = extra.pop("sequence", -1)
            batch = {k: extra.pop(k) for k in list(extra) if k in {"crc", "crc_ok", "coordinator_epoch", "topic_id"}}
            if "timestamp" in extra:
                batch["timestamp"] = extra["timestamp"]
            self.row(
                "records",
                **place,
                offset=record[0],
                value=record[1],
                sequence=sequence,
                base_offset=record[0],
                **producer,
                **extra,
            )
            self.row(
                "batches",
                **place,
                base_offset=record[0],
                last_offset=record[0],
                base_sequence=sequence,
                records_count=1,
                control=producer["control_type"] is not None,
                **producer,
                **{"crc": hash(record[1]) & 0xFFFFFFFF, "crc_ok": True, **batch},
            )

    def final_read(
        self,
        cluster: str,
        topic: str,
        partition: int,
        end: int,
        *,
        complete: bool = True,
        start: int = 0,
        **columns: Any,
    ) -> None:
        """A fresh client's final read of a partition (its polled records are polls of phase `final`)."""
        self.row(
            "final_reads",
            cluster=cluster,
            topic=topic,
            partition=partition,
            start_offset=start,
            target_offset=end,
            position=end if complete else start,
            complete=complete,
            **{"isolation": "read_uncommitted", **columns},
        )

    def write(self, folder: Path) -> Path:
        """Make a run folder of the rows."""
        RunFile.create(folder, self.meta)
        for name, rows in self.tables.items():
            (folder / name).mkdir()
            table = pa.Table.from_pylist(rows, schema=TABLES[name].schema)
            pq.write_table(table, folder / name / "part-000000.parquet")
        return folder


def values(rows: Sequence[dict[str, Any]]) -> set[Any]:
    """The `value` column of anomaly rows."""
    return {r["value"] for r in rows}
