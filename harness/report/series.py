"""Figures over time for the plots: counted from stored tables in one pass, bounded in memory.

Everything is binned into at most `BINS` buckets of the run's time. A history of more than `MAX_EVENTS` events is
sampled file by file (every k-th file, counts scaled by k), and says so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.plain import plain
from harness.history.store import read_files, whole_files

BINS = 200
MAX_EVENTS = 4_000_000
MAX_POINTS = 4_000
SECOND = 1_000_000_000
DONE = ("ok", "fail", "info")

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Rates:
    """Events per second. times: seconds at the middle of each bin; rates: (cluster, f, type) → per second."""

    times: Array
    rates: dict[tuple[str, str, str], Array]
    sampled: int = 1


@dataclass(frozen=True)
class Latencies:
    """One point per completed operation (a sample of at most MAX_POINTS per kind), and quantiles over time.

    points: (cluster, f, type) → (completion seconds, latency ms); quantiles: q → (seconds, ms) of ok sends.
    """

    points: dict[tuple[str, str, str], tuple[Array, Array]]
    quantiles: dict[float, tuple[Array, Array]]


@dataclass(frozen=True)
class Ends:
    """Log ends over time: cluster → (seconds, sum of log end offsets over the sampled partitions)."""

    ends: dict[str, tuple[Array, Array]]


@dataclass(frozen=True)
class FaultSpan:
    """One fault on the time axis, in seconds; end is None when its healing was never recorded."""

    fault_id: int
    name: str
    target: str
    start: float
    end: float | None
    bit: bool | None
    seen: str = ""
    healed: str = ""


@dataclass
class Series:
    """The data of the plots."""

    rates: Rates
    latencies: Latencies
    ends: Ends
    faults: list[FaultSpan] = field(default_factory=list)
    end_s: float = 0.0


def read_series(run: Path) -> Series:
    """Read a run's tables `ops`, `log_ends` and `faults` (each may be absent)."""
    ops, sampled = _ops(run / "ops")
    faults = fault_spans(run)
    end_s = float(ops["time_ns"].max() / SECOND) if len(ops["time_ns"]) else 0.0
    for span in faults:
        end_s = max(end_s, span.end or span.start)
    return Series(
        rates=_rates(ops, end_s, sampled),
        latencies=_latencies(ops, end_s),
        ends=_ends(run / "log_ends"),
        faults=faults,
        end_s=end_s,
    )


def read_columns(folder: Path, columns: list[str], *, every: int = 1) -> pa.Table | None:
    """These columns of every k-th whole file of a table, torn ones left out; None when there is none.

    Raises: HistoryError for a file whose columns are not those of the table, or that cannot be read.
    """
    files, _problems = whole_files(folder)
    return read_files(folder, files[::every], columns) if files else None


def _ops(folder: Path) -> tuple[dict[str, Array], int]:
    files, _problems = whole_files(folder)
    total = sum(pq.read_metadata(file).num_rows for file in files)
    every = max(1, -(-total // MAX_EVENTS))
    names = ["index", "time_ns", "type", "f", "cluster", "invoke_index"]
    table = read_columns(folder, names, every=every)
    if table is None:
        table = pa.table({name: [] for name in names})
    columns: dict[str, Array] = {}
    for name in names:
        column = table[name]
        if name in ("type", "f", "cluster"):
            columns[name] = np.array([plain(value or "") for value in column.to_pylist()], dtype=object)
        else:
            columns[name] = column.cast(pa.int64()).fill_null(-1).to_numpy()
    order = np.argsort(columns["index"], kind="stable")
    return {name: values[order] for name, values in columns.items()}, every


def _rates(ops: dict[str, Array], end_s: float, sampled: int) -> Rates:
    width = max(end_s / BINS, 0.5)
    count = max(1, int(np.ceil(end_s / width)))
    times = (np.arange(count) + 0.5) * width
    bins = np.minimum((ops["time_ns"] / SECOND / width).astype(int), count - 1)
    rates: dict[tuple[str, str, str], Array] = {}
    for kind in DONE:
        of_kind = ops["type"] == kind
        for cluster, f in sorted(set(zip(ops["cluster"][of_kind], ops["f"][of_kind], strict=True))):
            mask = of_kind & (ops["cluster"] == cluster) & (ops["f"] == f)
            rates[(cluster, f, kind)] = np.bincount(bins[mask], minlength=count) / width * sampled
    return Rates(times=times, rates=rates, sampled=sampled)


def _latencies(ops: dict[str, Array], end_s: float) -> Latencies:
    invoked = ops["type"] == "invoke"
    index, began = ops["index"][invoked], ops["time_ns"][invoked]
    points: dict[tuple[str, str, str], tuple[Array, Array]] = {}
    writes_at: list[Array] = []
    writes_ms: list[Array] = []
    if len(index):
        done = (~invoked) & (ops["invoke_index"] >= 0)
        at = np.searchsorted(index, ops["invoke_index"][done])
        at = np.minimum(at, len(index) - 1)
        found = index[at] == ops["invoke_index"][done]
        seconds = ops["time_ns"][done][found] / SECOND
        ms = (ops["time_ns"][done][found] - began[at][found]) / 1e6
        keys = list(zip(ops["cluster"][done][found], ops["f"][done][found], ops["type"][done][found], strict=True))
        groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for position, key in enumerate(keys):
            groups[key].append(position)
        for key, positions in sorted(groups.items()):
            chosen = np.array(positions)
            if key[1] in ("send", "txn") and key[2] == "ok":
                writes_at.append(seconds[chosen])
                writes_ms.append(ms[chosen])
            step = max(1, len(chosen) // MAX_POINTS)
            points[key] = (seconds[chosen][::step], ms[chosen][::step])
    return Latencies(points=points, quantiles=_quantiles(writes_at, writes_ms, end_s))


def _quantiles(at: list[Array], ms: list[Array], end_s: float) -> dict[float, tuple[Array, Array]]:
    if not at:
        return {}
    seconds, values = np.concatenate(at), np.concatenate(ms)
    width = max(end_s / BINS, 1.0)
    bins = (seconds / width).astype(int)
    order = np.argsort(bins, kind="stable")
    edges = np.flatnonzero(np.diff(bins[order])) + 1
    chunks = np.split(order, edges)
    result = {}
    for q in (0.5, 0.99):
        x = np.array([(bins[chunk[0]] + 0.5) * width for chunk in chunks])
        y = np.array([float(np.quantile(values[chunk], q)) for chunk in chunks])
        result[q] = (x, y)
    return result


def _ends(folder: Path) -> Ends:
    table = read_columns(folder, ["cluster", "broker", "time_ns", "topic", "partition", "log_end", "high_watermark"])
    if table is None:
        return Ends({})
    last: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
    series: dict[str, list[tuple[float, int]]] = defaultdict(list)
    rows = sorted(table.to_pylist(), key=lambda row: row["time_ns"] or 0)
    for row in rows:
        end = row["log_end"] if row["log_end"] is not None else row["high_watermark"]
        if end is None or row["cluster"] is None:
            continue
        cluster = plain(row["cluster"])
        last[cluster][(str(row["topic"]), int(row["partition"] or 0))] = int(end)
        moment = (row["time_ns"] or 0) / SECOND
        total = sum(last[cluster].values())
        if series[cluster] and abs(series[cluster][-1][0] - moment) < 0.25:
            series[cluster][-1] = (series[cluster][-1][0], total)
        else:
            series[cluster].append((moment, total))
    return Ends({c: (np.array([t for t, _ in v]), np.array([n for _, n in v])) for c, v in sorted(series.items())})


def fault_steps(run: Path) -> dict[int, list[dict[str, Any]]]:
    """The rows of table `faults`: number of the fault → its steps, in order of time."""
    table = read_columns(run / "faults", ["fault_id", "name", "target", "action", "time_ns", "ok", "result"])
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(table.to_pylist() if table is not None else (), key=lambda row: row["time_ns"] or 0):
        shown = {key: plain(value) if isinstance(value, str) else value for key, value in row.items()}
        steps[int(row["fault_id"])].append(shown)
    return steps


def fault_spans(run: Path) -> list[FaultSpan]:
    """The faults of a run, each from its injection to the end of its healing."""
    spans = []
    for fault_id, rows in sorted(fault_steps(run).items()):
        by_action = {row["action"]: row for row in rows}
        begin = by_action.get("inject")
        if begin is None:
            continue
        bit, heal = by_action.get("bit"), by_action.get("heal")
        spans.append(
            FaultSpan(
                fault_id=fault_id,
                name=str(begin["name"]),
                target=str((bit or begin)["target"] or begin["target"] or ""),
                start=(begin["time_ns"] or 0) / SECOND,
                end=(heal["time_ns"] or 0) / SECOND if heal else None,
                bit=None if bit is None else bool(bit["ok"]),
                seen=str((bit or {}).get("result") or ""),
                healed=str((heal or {}).get("result") or ""),
            )
        )
    return spans
