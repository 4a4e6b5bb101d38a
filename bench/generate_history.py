"""Makes a clean history of any length in the stored format: `python bench/generate_history.py OUT [--lines N]`.

The mix of the benchmark: 10 processes, 8 partitions, half of the operations send 1-4 records, half poll. Every
process reads 3 or 4 partitions from start to end, so that 1,000,000 lines hold about 625,000 written records and
2.4 million read ones. The same seed gives the same history. Vectorised, block by block: memory does not grow
with the length.

The processes go in step: each round is one invoke per process and then, in another order, one completion each.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.history.runfile import ClusterInfo, RunFile, RunMeta
from harness.history.schema import TABLES
from harness.history.writer import PartWriter

_LINE_NS = 20_000  # 50,000 events a second
_BLOCK_LINES = 250_000

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What to make. lines: events, rounded to whole rounds; base_offset: first offset of every partition."""

    lines: int = 1_000_000
    partitions: int = 8
    processes: int = 10
    base_offset: int = 0
    max_records: int = 4
    readers: float = 3.875  # processes that read each partition, on average
    seed: int = 1
    cluster: str = "A"
    topic: str = "t"


@dataclass
class _State:
    """What one block leaves to the next."""

    line: int
    sent: int
    next_offset: Ints
    # partition → what some reader has not read yet: offset, value number, line of its completion
    unread: list[Ints] = field(default_factory=list)
    position: dict[tuple[int, int], int] = field(default_factory=dict)  # (process, partition) → next offset


def generate(run_dir: Path, shape: Shape) -> dict[str, int]:
    """Write the run folder. Returns counts: lines, sent (records), read (records)."""
    rng = np.random.default_rng(shape.seed)
    meta = RunMeta(run_id=run_dir.name, source="bench", status="finished", clusters={shape.cluster: ClusterInfo()})
    RunFile.create(run_dir, meta)
    ops, records = PartWriter(run_dir, "ops"), PartWriter(run_dir, "op_records")
    first = np.full(shape.partitions, shape.base_offset, np.int64)
    state = _State(0, 0, first, [np.zeros((3, 0), np.int64) for _ in range(shape.partitions)])
    readers = _readers(shape)
    rounds = max(2, round(shape.lines / (2 * shape.processes)))
    per_block = max(1, _BLOCK_LINES // (2 * shape.processes))
    read = 0
    for start in range(0, rounds, per_block):
        count = min(per_block, rounds - start)
        read += _block(state, shape, rng, readers, count, start + count == rounds, ops, records)
    _final_reads(run_dir, shape, state)
    return {"lines": state.line, "sent": state.sent, "read": read}


def _readers(shape: Shape) -> list[tuple[int, int]]:
    """(process, partition) pairs, spread evenly over both."""
    wanted = round(shape.readers * shape.partitions)
    pairs: dict[tuple[int, int], None] = {}
    step = 0
    while len(pairs) < min(wanted, shape.processes * shape.partitions):
        lap, process = divmod(step, shape.processes)
        pairs[process, (process + lap) % shape.partitions] = None
        step += 1
    return list(pairs)


def _block(
    state: _State,
    shape: Shape,
    rng: np.random.Generator,
    readers: list[tuple[int, int]],
    rounds: int,
    last: bool,
    ops: PartWriter,
    records: PartWriter,
) -> int:
    """Some rounds: write their events and records; returns the number of records read."""
    n = shape.processes
    process = rng.permuted(np.tile(np.arange(n), (rounds, 1)), axis=1)
    base = state.line + 2 * n * np.arange(rounds)[:, None]
    invoke = (base + np.arange(n)).ravel()
    ok = (base + n + rng.permuted(np.tile(np.arange(n), (rounds, 1)), axis=1)).ravel()
    sends = rng.random((rounds, n)) < 0.5
    if last:
        sends[-1] = False  # everybody polls once more, to the end
    process, sends = process.ravel(), sends.ravel()
    sent = _send(state, shape, rng, invoke[sends], ok[sends], process[sends])
    polled = _poll(state, readers, {c: ok[~sends & (process == c)] for c in range(n)})
    state.line += 2 * n * rounds
    _write_ops(ops, shape, invoke, ok, process, sends)
    _write_records(records, shape, sent, polled)
    return int(polled.shape[1])


def _send(state: _State, shape: Shape, rng: np.random.Generator, invoke: Ints, ok: Ints, process: Ints) -> Ints:
    """Rows: invoke line, ok line, position, partition, offset, value number × processes + process."""
    order = np.argsort(ok)
    invoke, ok, process = invoke[order], ok[order], process[order]
    size = rng.integers(1, shape.max_records + 1, len(ok))
    total = int(size.sum())
    position = np.arange(total) - np.repeat(np.cumsum(size) - size, size)
    partition = rng.integers(0, shape.partitions, total)
    lines = np.repeat(ok, size)
    number = (state.sent + np.arange(total)) * shape.processes + np.repeat(process, size)
    offset = np.empty(total, np.int64)
    for p in range(shape.partitions):
        mine = partition == p
        count = int(mine.sum())
        offset[mine] = state.next_offset[p] + np.arange(count)
        state.next_offset[p] += count
        fresh = np.stack([offset[mine], number[mine], lines[mine]])
        state.unread[p] = np.concatenate([state.unread[p], fresh], axis=1)
    state.sent += total
    return np.stack([np.repeat(invoke, size), lines, position, partition, offset, number])


def _poll(state: _State, readers: list[tuple[int, int]], polls: dict[int, Ints]) -> Ints:
    """Rows: line of the poll's completion, position, partition, offset, value number; in order of line.

    A record is read by a reader's first poll that completes after the send did.
    """
    found: list[Ints] = []
    for process, p in readers:
        unread = state.unread[p]
        begin = state.position.get((process, p))
        mine = unread if begin is None else unread[:, unread[0] >= begin]
        lines = polls[process]
        which = np.searchsorted(lines, mine[2], side="right")
        seen = int(np.searchsorted(which, len(lines)))  # which is ascending
        read = mine[:, :seen]
        if seen:
            state.position[process, p] = int(read[0, -1]) + 1
            found.append(np.stack([lines[which[:seen]], np.full(seen, p), read[0], read[1]]))
    for p, unread in enumerate(state.unread):
        marks = [state.position.get((c, q), -1) for c, q in readers if q == p]
        state.unread[p] = unread[:, unread[0] >= min(marks)] if marks else unread[:, :0]
    if not found:
        return np.zeros((5, 0), np.int64)
    flat = np.concatenate(found, axis=1)
    flat = flat[:, np.lexsort((flat[2], flat[1], flat[0]))]
    starts = np.flatnonzero(np.diff(flat[0], prepend=-1))
    position = np.arange(flat.shape[1]) - np.repeat(starts, np.diff(starts, append=flat.shape[1]))
    return np.stack([flat[0], position, flat[1], flat[2], flat[3]])


def _write_ops(writer: PartWriter, shape: Shape, invoke: Ints, ok: Ints, process: Ints, sends: Any) -> None:
    index = np.concatenate([invoke, ok])
    order = np.argsort(index)
    count = len(invoke)
    is_ok = order >= count
    of = order % count
    columns = {
        "index": pa.array(index[order]),
        "time_ns": pa.array(index[order] * _LINE_NS),
        "process": pc.cast(pa.array(process[of]), pa.string()),
        "type": _choose(is_ok, "ok", "invoke"),
        "f": _choose(sends[of], "send", "poll"),
        "invoke_index": pa.array(invoke[of], mask=~is_ok),
        "phase": _constant("load", 2 * count),
        "cluster": _constant(shape.cluster, 2 * count),
    }
    writer.write(_table("ops", columns, 2 * count))


def _write_records(writer: PartWriter, shape: Shape, sent: Ints, polled: Ints) -> None:
    count = sent.shape[1]
    index = np.concatenate([sent[0], sent[1], polled[0]])
    order = np.argsort(index, kind="stable")
    total = len(index)

    def column(sends: Ints, polls: Ints) -> Ints:
        return np.concatenate([sends, sends, polls])[order]

    number = column(sent[5], polled[4])
    values = [pc.cast(pa.array(part), pa.string()) for part in (number % shape.processes, number // shape.processes)]
    columns = {
        "op_index": pa.array(index[order]),
        "position": pa.array(column(sent[2], polled[1]).astype(np.int32)),
        "action": _choose(order < 2 * count, "send", "poll"),
        "topic": _constant(shape.topic, total),
        "partition": pa.array(column(sent[3], polled[2]).astype(np.int32)),
        "offset": pa.array(column(sent[4], polled[3]), mask=order < count),
        "value": pc.binary_join_element_wise(*values, "-"),
    }
    writer.write(_table("op_records", columns, total))


def _final_reads(run_dir: Path, shape: Shape, state: _State) -> None:
    now = state.line * _LINE_NS
    end = [int(o) for o in state.next_offset]
    rows = [
        (shape.cluster, shape.topic, p, now, "read_uncommitted", shape.base_offset, end[p], end[p], True, None)
        for p in range(shape.partitions)
    ]
    PartWriter(run_dir, "final_reads").write_rows(rows)


def _choose(where: Any, yes: str, no: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.where(where, 1, 0).astype(np.int8)), [no, yes]).cast(pa.string())


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(value, count)


def _table(name: str, columns: dict[str, pa.Array], count: int) -> pa.Table:
    schema = TABLES[name].schema
    return pa.Table.from_arrays([columns.get(f.name, pa.nulls(count, f.type)) for f in schema], schema=schema)


def main() -> None:
    """Parse the arguments, write, and print the counts as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--base-offset", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shape = Shape(
        lines=options.lines,
        partitions=options.partitions,
        processes=options.processes,
        base_offset=options.base_offset,
        seed=options.seed,
    )
    began = time.monotonic()
    counts = generate(options.out, shape)
    print(json.dumps({**counts, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
