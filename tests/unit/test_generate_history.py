"""The benchmark's generator makes clean histories: checked by plain loops, independent of its arithmetic."""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.history.store import open_run

pytestmark = pytest.mark.unit

BENCH = Path(__file__).parents[2] / "bench" / "generate_history.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_history", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate_history"] = module
    spec.loader.exec_module(module)
    return module


def tables(bench: ModuleType, folder: Path, **shape: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Any]:
    counts = bench.generate(folder, bench.Shape(**shape))
    run = open_run(folder)
    return run.read_table("ops").to_pylist(), run.read_table("op_records").to_pylist(), counts


@pytest.mark.parametrize(
    "shape",
    [
        {"lines": 20_000, "seed": 3},
        {"lines": 2_000, "seed": 4, "base_offset": 10**12, "partitions": 3, "processes": 4, "readers": 2.0},
        {"lines": 400, "seed": 5, "partitions": 1, "processes": 1, "readers": 1.0},
    ],
)
def test_a_generated_history_is_clean(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any]
) -> None:
    monkeypatch.setattr(bench, "_BLOCK_LINES", 700)  # many blocks: the state that one passes to the next matters
    ops, records, counts = tables(bench, tmp_path / "run", **shape)
    base = shape.get("base_offset", 0)
    assert [o["index"] for o in ops] == list(range(counts["lines"]))
    assert abs(counts["lines"] - shape["lines"]) <= 2 * shape.get("processes", 10)
    under_way: dict[str, int] = {}
    for op in ops:
        if op["type"] == "invoke":
            assert op["process"] not in under_way
            assert op["invoke_index"] is None
            under_way[op["process"]] = op["index"]
        else:
            assert under_way.pop(op["process"]) == op["invoke_index"]
            assert ops[op["invoke_index"]]["f"] == op["f"]
    assert not under_way
    by_op = defaultdict(list)
    for record in records:
        by_op[record["op_index"]].append(record)
    assert [r["op_index"] for r in records] == sorted(r["op_index"] for r in records)
    log: dict[tuple[int, int], str] = {}
    acked: dict[str, int] = {}
    position: dict[tuple[str, int], int] = {}
    read = 0
    for op in ops:
        mine = by_op[op["index"]]
        assert [r["position"] for r in mine] == list(range(len(mine)))
        if op["f"] == "send":
            assert 1 <= len(mine) <= 4
            if op["type"] == "invoke":
                assert all(r["offset"] is None for r in mine)
                assert [r["value"] for r in mine] == [r["value"] for r in by_op[completion(ops, op)]]
            for r in mine if op["type"] == "ok" else ():
                assert r["value"].startswith(f"{op['process']}-")
                assert r["value"] not in acked
                assert (r["partition"], r["offset"]) not in log
                log[r["partition"], r["offset"]] = r["value"]
                acked[r["value"]] = op["index"]
        elif op["type"] == "invoke":
            assert not mine
        for r in mine if op["f"] == "poll" else ():
            read += 1
            assert log[r["partition"], r["offset"]] == r["value"], "read before it was acknowledged, or another value"
            at = position.get((op["process"], r["partition"]), base)
            assert r["offset"] == at
            position[op["process"], r["partition"]] = at + 1
    sizes: dict[int, int] = defaultdict(int)
    for partition, _ in log:
        sizes[partition] += 1
    for partition, size in sizes.items():
        assert {o for p, o in log if p == partition} == set(range(base, base + size))
    assert {p for _, p in position} == set(sizes), "every partition is read"
    assert all(end == base + sizes[p] for (_, p), end in position.items()), "to its end"
    assert (counts["sent"], counts["read"]) == (len(log), read)
    finals = open_run(tmp_path / "run").read_table("final_reads").to_pylist()
    assert {(f["partition"], f["target_offset"]) for f in finals} >= {(p, base + s) for p, s in sizes.items()}
    assert all(f["complete"] for f in finals)


def completion(ops: list[dict[str, Any]], invoke: dict[str, Any]) -> int:
    return next(o["index"] for o in ops[invoke["index"] + 1 :] if o["invoke_index"] == invoke["index"])


def test_the_seed_decides_and_the_base_offset_only_shifts(bench: ModuleType, tmp_path: Path) -> None:
    first = tables(bench, tmp_path / "a", lines=3000, seed=7)
    again = tables(bench, tmp_path / "b", lines=3000, seed=7)
    other = tables(bench, tmp_path / "c", lines=3000, seed=8)
    high = tables(bench, tmp_path / "d", lines=3000, seed=7, base_offset=10**9)
    assert first == again
    assert first != other
    assert first[0] == high[0]
    shifted = [{**r, "offset": None if r["offset"] is None else r["offset"] + 10**9} for r in first[1]]
    assert shifted == high[1]


def test_the_mix_is_that_of_the_benchmark(bench: ModuleType, tmp_path: Path) -> None:
    _, records, counts = tables(bench, tmp_path / "run", lines=20_000)
    assert counts["sent"] / counts["lines"] == pytest.approx(0.625, rel=0.03)
    assert counts["read"] / counts["lines"] == pytest.approx(2.42, rel=0.03)
    assert {r["partition"] for r in records} == set(range(8))
