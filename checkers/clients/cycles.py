"""`cycle_G0` and `cycle_G1c`: transactions that depend on each other in a cycle.

Proves: in the graph of `dependencies`, a strongly connected component with only ww edges (`cycle_G0`), or one
with wr edges in it (`cycle_G1c`): form `wr` when wr edges alone close a cycle, so that each transaction read records
that the next had not committed yet; form `mixed` when ww edges are needed. One row per component, with a shortest
cycle.

Kafka appends records of open transactions to the log as they arrive, so `cycle_G0` is allowed, and `cycle_G1c/mixed`
too: a transaction may write, be overtaken in that partition by another that commits, and then read that one's records.
Read_committed isolation, under which a reader sees only what was committed before, forbids only `wr`.

Process and real-time order are not edges. Nor are anti-dependencies (rw): a consumer's position is not a predicate.

The graph stays on Spark: workers process its parts (`graph.partitioning`) in bundles. One part must fit a worker;
above `MOST_EDGES` the checker gives no answer, and the verdict is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from checkers.base import AnomalyKind, Checker, Severity, anomalies, union
from checkers.graph.components import graph_of, shortest_cycle, strong_components, within
from checkers.graph.dependencies import EDGE, SHIFT, WR, WW, dependencies
from checkers.graph.partitioning import cyclic_parts
from checkers.spark.scratch import empty_frame
from checkers.views.tables import Tables

_SOURCES = (
    "Adya: Weak Consistency (1999), G0 and G1c",
    "Kingsbury and Alvaro: Elle (VLDB 2020)",
    "Jepsen: jepsen.tests.kafka",
)
_BLIND = (
    "polls in a transaction that do not name it; transactions of unknown end that no one read; anti-dependencies; "
    "process and real-time order"
)
G0 = AnomalyKind(
    name="cycle_G0",
    severity=Severity.S2,
    violation="let transactions overwrite each other in a cycle",
    section=1,
    what="transactions write in one order in every partition",
    limitations=_BLIND,
    sources=(*_SOURCES, "KIP-98"),
)
G1C = AnomalyKind(
    name="cycle_G1c",
    severity=Severity.S2,
    violation="let transactions depend on each other in a cycle",
    section=1,
    what="no transaction depends, by what it read and wrote, on one that depends on it",
    limitations=_BLIND,
    sources=_SOURCES,
    forms=("wr", "mixed"),
)
MOST_EDGES = 5_000_000
"""Most edges of one part: a worker needs some 500 MiB for a million."""
BUNDLE_EDGES = 200_000
"""Edges per task, where parts allow it."""
NAMED_EDGES = 6
"""Most edges that a witness's sentence names."""
_FOUND = pa.schema(
    [
        ("kind", pa.string()),
        ("form", pa.string()),
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ops", pa.list_(pa.int64())),
        ("length", pa.int64()),
        ("explain", pa.string()),
    ]
)
_FOUND_SPARK = (
    "kind string, form string, cluster string, topic string, partition int, offset bigint, ops array<bigint>, "
    "length bigint, explain string"
)
Edge = dict[str, Any]
Edges = dict[tuple[int, int], int]


def check(t: Tables) -> DataFrame | None:
    """One row per component, with a shortest cycle."""
    if not t.facts.transactional:
        return None
    known = t.cache(dependencies(t))
    if known.where("source > target").isEmpty():
        return t.no_anomalies  # nothing leads back, so there is no cycle
    edges = t.cache(cyclic_parts(known))
    sizes = edges.groupBy("part").count().agg(F.max("count").alias("most"), F.sum("count").alias("all")).first()
    if sizes is None or not sizes.all:
        return _rows(empty_frame(t.spark, cast("StructType", StructType.fromDDL(_FOUND_SPARK))))
    if sizes.most > MOST_EDGES:
        raise ValueError(
            f"{sizes.most} dependencies of transactions are connected, more than the {MOST_EDGES} that one worker"
            " can process: check a shorter history"
        )
    bundles = max(1, sizes.all // BUNDLE_EDGES)
    return _rows(edges.select(*EDGE).repartition(bundles, edges["part"]).mapInArrow(_taken_apart, _FOUND_SPARK))


def _rows(found: DataFrame) -> DataFrame:
    kinds = [
        anomalies(
            found.where(F.col("kind") == kind.name),
            kind.name,
            form=F.col("form"),
            value=None,
            ops=F.col("ops"),
            rank="length",
            explain=F.col("explain"),
        )
        for kind in (G0, G1C)
    ]
    both = union(kinds)
    assert both is not None
    return both


def _taken_apart(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the components of a bundle's edges, on a worker."""
    held = list(batches)
    if held:
        edges = pa.Table.from_batches(held).combine_chunks()  # rows are read from it one by one
        yield from pa.Table.from_pylist(list(cycles(edges)), schema=_FOUND).to_batches()


def cycles(edges: pa.Table) -> Iterator[dict[str, Any]]:
    """The components of a graph (`EDGE`), as rows of anomalies."""
    sources, targets, kinds = (edges.column(name).to_pylist() for name in ("source", "target", "kind"))
    by_kind: dict[str, Edges] = {WW: {}, WR: {}}
    for number, (source, target, kind) in enumerate(zip(sources, targets, kinds, strict=True)):
        by_kind[kind][source, target] = number
    ww, wr = graph_of(by_kind[WW]), graph_of(by_kind[WR])
    both = graph_of([*by_kind[WW], *by_kind[WR]])
    for component in strong_components(both):
        yield from _of_component(within(both, component), within(ww, component), within(wr, component), by_kind, edges)


def _of_component(
    both: dict[int, list[int]],
    ww: dict[int, list[int]],
    wr: dict[int, list[int]],
    by_kind: dict[str, Edges],
    edges: pa.Table,
) -> Iterator[dict[str, Any]]:
    for writers in strong_components(ww):
        cycle = shortest_cycle(within(ww, writers))
        yield _row(G0.name, None, _along(cycle, by_kind, (WW,), edges))
    readers = strong_components(wr)
    for component in readers:
        cycle = shortest_cycle(within(wr, component))
        yield _row(G1C.name, "wr", _along(cycle, by_kind, (WR,), edges))
    if not readers and any(wr.values()):
        cycle = shortest_cycle(both, through=wr)
        yield _row(G1C.name, "mixed", _along(cycle, by_kind, (WR, WW), edges))


def _along(cycle: Sequence[int], by_kind: dict[str, Edges], kinds: Sequence[str], edges: pa.Table) -> list[Edge]:
    """The edges from each node to the next, and from the last to the first."""
    pairs = zip(cycle, [*cycle[1:], *cycle[:1]], strict=True)
    numbers = [next(by_kind[kind][pair] for kind in kinds if pair in by_kind[kind]) for pair in pairs]
    found: list[Edge] = edges.take(numbers).to_pylist()
    return found


def _row(kind: str, form: str | None, path: Sequence[Edge]) -> dict[str, Any]:
    ops = [edge["source"] >> SHIFT for edge in path]
    shown = next((edge for edge in path if edge["kind"] == WR), path[0])
    more = f"; and {len(path) - NAMED_EDGES} more steps back to {ops[0]}" if len(path) > NAMED_EDGES else ""
    return {
        "kind": kind,
        "form": form,
        "cluster": shown["cluster"],
        "topic": shown["topic"],
        "partition": shown["partition"],
        "offset": shown["offset"],
        "ops": sorted(set(ops)),
        "length": len(path),
        "explain": f"{len(path)} transactions, named by the events that ended them, depend on each other in a cycle: "
        + "; ".join(_described(edge) for edge in path[:NAMED_EDGES])
        + more,
    }


def _described(edge: Edge) -> str:
    source, target = edge["source"] >> SHIFT, edge["target"] >> SHIFT
    record = f"{source} wrote offset {edge['offset']} of {edge['topic']}-{edge['partition']} on {edge['cluster']}"
    if edge["kind"] == WR:
        return f"{record}, which {target} read"
    return f"{record} before {target} wrote offset {edge['next_offset']}"


CHECKER = Checker(name="cycles", kinds=(G0, G1C), check=check)
