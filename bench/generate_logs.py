"""Makes a run folder with the logs of two mirrored clusters, for measuring the log checkers.

    python -m bench.generate_logs FOLDER [--records 10000000] [--partitions 8] [--base-offset 0]

Two clusters with three replicas each hold `records` stored records together, clean: B is a mirror of A that keeps
offsets, producer ids and sequences. Half of the producers are transactional (every transaction has a marker), batches
hold twenty records. `ops` and `op_records` hold the acknowledged sends.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES

PER_BATCH = 20
BATCHES_PER_TXN = 4
PRODUCERS = 10
Arrays = dict[str, Any]


def partition_log(partition: int, records: int, base: int) -> tuple[Arrays, Arrays]:
    """Columns of batches and of records of one partition's log, without cluster and broker."""
    batches = records // PER_BATCH
    producer = np.arange(batches) % PRODUCERS
    nth = np.arange(batches) // PRODUCERS  # number of the batch within its producer
    transactional = producer % 2 == 0
    ends = transactional & (nth % BATCHES_PER_TXN == BATCHES_PER_TXN - 1)
    # One offset more after each batch that ends a transaction: its marker.
    start = base + np.arange(batches) * PER_BATCH + np.concatenate([[0], np.cumsum(ends)[:-1]])
    last_open = transactional & (nth >= (nth.max() // BATCHES_PER_TXN) * BATCHES_PER_TXN)
    transactional &= ~last_open  # what would stay open is written outside a transaction
    ends &= transactional
    pid = producer + 1000 * partition
    of_record = np.repeat(np.arange(batches), PER_BATCH)
    within = np.tile(np.arange(PER_BATCH), batches)
    data = {
        "offset": start[of_record] + within,
        "value": pa.array([f"{partition}:{p}:{i}" for i, p in enumerate(producer[of_record].tolist())]),
        "value_hash": np.arange(len(of_record)) * 2654435761 + partition,
        "base_offset": start[of_record],
        "producer_id": pid[of_record],
        "sequence": (nth[of_record] * PER_BATCH + within),
        "transactional": transactional[of_record],
        "control_type": pa.nulls(len(of_record), pa.string()),
    }
    at = np.flatnonzero(ends)
    marker = start[at] + PER_BATCH
    marks = {
        "offset": marker,
        "value": pa.nulls(len(at), pa.string()),
        "value_hash": np.zeros(len(at), dtype=np.int64),
        "base_offset": marker,
        "producer_id": pid[at],
        "sequence": np.full(len(at), -1),
        "transactional": np.full(len(at), True),
        "control_type": pa.array(["COMMIT"] * len(at), pa.string()),
    }
    rows = {k: pa.concat_arrays([pa.array(data[k]), pa.array(marks[k])]) for k in data}
    heads = {
        "base_offset": np.concatenate([start, marker]),
        "last_offset": np.concatenate([start + PER_BATCH - 1, marker]),
        "crc": (np.concatenate([start, marker]) * 40503 + partition) & 0xFFFFFFFF,
        "producer_id": np.concatenate([pid, pid[at]]),
        "base_sequence": np.concatenate([nth * PER_BATCH, np.full(len(at), -1)]),
        "records_count": np.concatenate([np.full(batches, PER_BATCH), np.full(len(at), 1)]),
        "transactional": np.concatenate([transactional, np.full(len(at), True)]),
        "control": np.concatenate([np.full(batches, False), np.full(len(at), True)]),
        "control_type": pa.concat_arrays([pa.nulls(batches, pa.string()), pa.array(["COMMIT"] * len(at), pa.string())]),
    }
    return heads, rows


def store(run_dir: Path, table: str, name: str, columns: Arrays) -> None:
    """One Parquet file; a column is an array, or one value for all rows; what is not given is null."""
    rows = max(len(c) for c in columns.values() if isinstance(c, np.ndarray | pa.Array | pa.ChunkedArray))
    arrays = []
    for field in TABLES[table].schema:
        value = columns.get(field.name)
        if isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray):
            arrays.append(pa.array(value).cast(field.type) if isinstance(value, np.ndarray) else value.cast(field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    folder = run_dir / table
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=TABLES[table].schema), folder / f"part-{name}.parquet")


def sends(run_dir: Path, partition: int, rows: Arrays, first_index: int) -> int:
    """The operations that wrote a partition's log, one per batch; returns the next free index."""
    data = rows["control_type"].is_null()
    value, offset, pid = (rows[k].filter(data) for k in ("value", "offset", "producer_id"))
    count = len(value)
    ops = count // PER_BATCH
    invoke = first_index + 2 * np.arange(ops)
    process = pa.array([f"p{p}" for p in pid.to_numpy()[::PER_BATCH].tolist()])
    common = {"process": process, "f": "send", "phase": "load", "cluster": "A", "client": process}
    for step, kind in enumerate(("invoke", "ok")):
        index = invoke + step
        extra = {} if kind == "invoke" else {"invoke_index": invoke}
        store(
            run_dir, "ops", f"{partition}-{kind}", {"index": index, "time_ns": index, "type": kind, **common, **extra}
        )
        told = {} if kind == "invoke" else {"offset": offset}
        store(
            run_dir,
            "op_records",
            f"{partition}-{kind}",
            {
                "op_index": np.repeat(index, PER_BATCH),
                "position": np.tile(np.arange(PER_BATCH), ops),
                "action": "send",
                "topic": "t",
                "partition": partition,
                "value": value,
                **told,
            },
        )
    return first_index + 2 * ops


def generate(run_dir: Path, *, records: int, partitions: int = 8, base: int = 0) -> int:
    """Write the run; returns how many records it stores."""
    meta = {
        "run_id": "bench-logs",
        "source": "shatter",
        "status": "finished",
        "clusters": {"A": {}, "B": {}},
        "topic_map": {"t": "t"},
        "test": {"contract": "cluster-mirror/strict"},
        "phases": [{"name": "settle", "start_ns": 0, "end_ns": 1}],
    }
    RunFile.create(run_dir, RunMeta.model_validate(meta))
    index = total = 0
    per_log = records // (6 * partitions)
    for partition in range(partitions):
        heads, rows = partition_log(partition, per_log, base)
        index = sends(run_dir, partition, rows, index)
        end = int(heads["base_offset"].max()) + PER_BATCH
        for cluster in "AB":
            for broker in (1, 2, 3):
                place = {"cluster": cluster, "broker": broker, "look": 1, "topic": "t", "partition": partition}
                name = f"{cluster}{broker}-{partition}"
                store(run_dir, "records", name, {**place, **rows, "producer_epoch": 0, "leader_epoch": 0})
                store(
                    run_dir,
                    "batches",
                    name,
                    {**place, **heads, "producer_epoch": 0, "leader_epoch": 0, "crc_ok": True, "topic_id": "x"},
                )
                total += len(rows["offset"])
                ends = {"log_start": base, "log_end": end, "high_watermark": end, "last_stable": end, "leader": 1}
                store(run_dir, "log_ends", name, {**place, **ends, "time_ns": np.array([index])})
    return total


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--base-offset", type=int, default=0)
    asked = parser.parse_args()
    total = generate(asked.folder, records=asked.records, partitions=asked.partitions, base=asked.base_offset)
    print(f"{asked.folder}: {total} stored records")


if __name__ == "__main__":
    main()
