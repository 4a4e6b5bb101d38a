"""Copies of one clean generated history of 10,000 lines, each with one row of the reference table's faults planted.

Every copy has a topic, processes and values of its own, so that all are judged as one run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.generate_history import Shape, generate
from harness.history.runfile import ClusterInfo, RunFile, RunMeta
from harness.history.schema import TABLES
from harness.history.store import open_run

Row = dict[str, Any]
LINES = 10_000


class Copy:
    """One copy of the history: its events by index, and the records of each event."""

    def __init__(self, source: Path, name: str, first_index: int) -> None:
        run = open_run(source)
        self.name = name
        self.ops: dict[int, Row] = {}
        self.records: dict[int, list[Row]] = {}
        for op in run.read_table("ops").to_pylist():
            op["index"] += first_index
            op["invoke_index"] = None if op["invoke_index"] is None else op["invoke_index"] + first_index
            op["process"] = f"{name}-{op['process']}"
            self.ops[op["index"]] = op
        for record in run.read_table("op_records").to_pylist():
            record["op_index"] += first_index
            record |= {"topic": name, "value": f"{name}-{record['value']}"}
            self.records.setdefault(record["op_index"], []).append(record)
        self.finals = [{**row, "topic": name} for row in run.read_table("final_reads").to_pylist()]
        self._ends = {row["partition"]: row["position"] for row in self.finals}

    def sends(self) -> list[list[Row]]:
        """The records of each acknowledged send, from the middle of the history, far apart."""
        done = [i for i, op in self.ops.items() if op["f"] == "send" and op["type"] == "ok"]
        return [self.records[i] for i in done[len(done) // 4 :: 97]]

    def unread(self, value: str) -> None:
        """Remove this value from every poll."""
        for index, rows in self.records.items():
            self.records[index] = [r for r in rows if r["action"] != "poll" or r["value"] != value]

    def last_polls(self, partition: int) -> dict[str, int]:
        """Reader of a partition → index of its last poll of it."""
        last: dict[str, int] = {}
        for index, rows in sorted(self.records.items()):
            if any(r["action"] == "poll" and r["partition"] == partition for r in rows):
                last[self.ops[index]["process"]] = index
        return last

    def read_at_the_end(self, index: int, partition: int, value: str) -> None:
        """Let the poll of this index also return a value at the partition's end."""
        rows = self.records[index]
        own = [i for i, r in enumerate(rows) if r["partition"] == partition and r["action"] == "poll"]
        extra = {**rows[own[-1]], "offset": self._ends[partition], "value": value}
        rows.insert(own[-1] + 1, extra)
        for position, row in enumerate(rows):
            row["position"] = position


def clean(copy: Copy) -> int:
    """Nothing is planted."""
    return 0


def lost(copy: Copy) -> int:
    """Three acknowledged records that no poll returns, though later ones are read."""
    for rows in copy.sends()[:3]:
        copy.unread(rows[0]["value"])
    return 3


def duplicated(copy: Copy) -> int:
    """Three records that every reader of their partitions is given again at the partition's end."""
    chosen: dict[int, str] = {}
    for rows in copy.sends():
        chosen.setdefault(rows[0]["partition"], rows[0]["value"])
    for partition, value in list(chosen.items())[:3]:
        for index in copy.last_polls(partition).values():
            copy.read_at_the_end(index, partition, value)
    return 3


def aborted(copy: Copy) -> int:
    """Three definitely failed operations whose records are read; returns the number of these records."""
    records = 0
    for rows in copy.sends()[:3]:
        copy.ops[rows[0]["op_index"]]["type"] = "fail"
        records += len(rows)
    return records


def precommitted(copy: Copy) -> int:
    """Three operations that send a record and read it themselves."""
    planted = 0
    for rows in copy.sends():
        op, own = copy.ops[rows[0]["op_index"]], rows[0]
        if planted < 3 and op["process"] not in copy.last_polls(own["partition"]):
            copy.ops[op["invoke_index"]]["f"] = op["f"] = "txn"
            rows.append({**own, "action": "poll", "position": len(rows)})
            planted += 1
    return planted


def one_offset_for_two(copy: Copy) -> int:
    """Three records that were acknowledged at the offset of the record before, which another process sent; unread."""
    at = {
        (r["partition"], r["offset"]): (index, r["value"])
        for index, rows in copy.records.items()
        for r in rows
        if r["action"] == "send" and r["offset"] is not None
    }
    planted = 0
    for rows in copy.sends():
        mine = rows[0]
        index, before = at.get((mine["partition"], mine["offset"] - 1), (mine["op_index"], ""))
        if planted < 3 and before and copy.ops[index]["process"] != copy.ops[mine["op_index"]]["process"]:
            mine["offset"] -= 1
            copy.unread(mine["value"])
            planted += 1
    return planted


def phantom(copy: Copy) -> int:
    """One reader is given a value at the end of a partition that no client sent."""
    copy.read_at_the_end(next(iter(copy.last_polls(0).values())), 0, f"{copy.name}-ghost")
    return 1


PLANTED: dict[str, Callable[[Copy], int]] = {
    f.__name__: f for f in (clean, lost, duplicated, aborted, precommitted, one_offset_for_two, phantom)
}


def build(folder: Path) -> tuple[Path, dict[str, int]]:
    """The run folder of all copies, and how much was planted in each."""
    source = folder / "clean"
    generate(source, Shape(lines=LINES, seed=7))
    tables: dict[str, list[Row]] = {"ops": [], "op_records": [], "final_reads": []}
    planted = {}
    for name, plant in PLANTED.items():
        copy = Copy(source, name, len(tables["ops"]))
        planted[name] = plant(copy)
        tables["ops"] += copy.ops.values()
        tables["op_records"] += [r for index in sorted(copy.records) for r in copy.records[index]]
        tables["final_reads"] += copy.finals
    run = folder / "planted"
    meta = RunMeta(run_id="planted", source="bench", status="finished", clusters={"A": ClusterInfo()})
    RunFile.create(run, meta)
    for name, rows in tables.items():
        (run / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[name].schema), run / name / "part-000000.parquet")
    return run, planted
