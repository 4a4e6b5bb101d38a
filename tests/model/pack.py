"""Many examples as one stored run, judged once: Spark spends its time on planning, and more rows add little.

Every name in an example begins with its prefix, so that each anomaly names its example.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from checkers.base import ANOMALY_COLUMNS
from checkers.catalogue import CATALOGUE
from checkers.judge.judge import Judgement, judge
from harness.core import contracts
from harness.core.contracts import Level
from harness.history.runfile import RunFile, RunMeta
from harness.history.schema import TABLES
from model.book import SECOND, SPANS, Row, Rows
from model.example import Example

PREFIX = re.compile(r"\b[a-z]\d{4}-")
Anomalies = dict[str, list[Row]]
CAPABILITIES = {
    "cluster": ("offset_identity", "topic_id", "group_offsets", "acl_sync", "aborted_data"),
    "mm2": ("group_offsets", "aborted_data"),
    "eos": ("group_offsets", "exactly_once"),
}
CONTRACTS = {
    "cluster": "cluster-mirror/strict",
    "mm2": "mm2-at-least-once",
    "eos": "mm2-exactly-once",
    "unclean": "cluster-mirror/strict+unclean-a",
    "unhealed": "cluster-mirror/strict",
}
FLOOR = {"acl_bound_s": 5, "epoch_bound_s": 5, "stuck_bound_s": 8, "orphan_grace_s": 5, "ok_sends": 1}
FLOOR |= {"carried_under_fault": 0, "partitions_under_faults": 0}  # an example has a handful of records


def merged(examples: Iterable[Example]) -> Rows:
    """The tables of all examples as those of one run: events in time order, indices and fault numbers made unique."""
    tables: Rows = defaultdict(list)
    events: list[tuple[int, int, int, Row]] = []
    faults = 0
    for n, example in enumerate(examples):
        for name, rows in example.tables.items():
            if name == "ops":
                events += [(r["time_ns"], n, r["index"], r) for r in rows]
            elif name == "faults":
                tables[name] += [{**r, "fault_id": faults + r["fault_id"]} for r in rows]
                faults += 1 + max((r["fault_id"] for r in rows), default=0)
            elif name != "op_records":
                tables[name] += rows
    events.sort(key=lambda e: e[:3])
    index = {(n, own): i for i, (_, n, own, _) in enumerate(events)}
    for i, (_, n, _, row) in enumerate(events):
        invoke = row.get("invoke_index")
        named = {} if invoke is None else {"invoke_index": index[n, invoke]}
        tables["ops"].append({**row, "index": i, **named})
    for n, example in enumerate(examples):
        tables["op_records"] += [
            {**r, "op_index": index[n, r["op_index"]]} for r in example.tables.get("op_records", ())
        ]
    return tables


def store(examples: Sequence[Example], folder: Path, *, contract: str) -> Path:
    """Write the examples as one stored run. All must be of one sort."""
    assert len({e.plan.sort for e in examples}) == 1
    plan = examples[0].plan
    mirror, able = plan.mirror, CAPABILITIES.get(plan.sort, CAPABILITIES[plan.mirror])
    prefixes = [e.prefix for e in examples]
    assert len(set(prefixes)) == len(prefixes), "prefixes must be unique"
    meta = RunMeta(
        run_id="model",
        status="finished",
        test={
            "contract": contract,
            "mirror": "mm2" if mirror == "mm2" else "reference",
            "mirror_options": {"groups.exclude": ".*-internal"},
        },
        clusters={letter: {"brokers": [1, 2, 3]} for letter in "AB"},
        topic_map={e.world.a.topic: e.world.b.topic for e in examples},
        capabilities={name: {"yes": True} for name in able},
        phases=[{"name": str(p), "start_ns": a * SECOND, "end_ns": b * SECOND} for p, a, b in SPANS],
        floor=FLOOR,
        unhealed=sorted({f"{e.plan.unhealed} of {e.prefix}" for e in examples if e.plan.unhealed}),
    )
    RunFile.create(folder, meta)
    for name, rows in merged(examples).items():
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[name].schema), folder / name / "part-000000.parquet")
    return folder


def judged(
    examples: Sequence[Example], folder: Path, spark: SparkSession, *, contract: str
) -> tuple[Judgement, Anomalies]:
    """The judgement of all examples together, and each one's anomalies by its prefix."""
    judgement = judge(store(examples, folder, contract=contract), None, spark)
    return judgement, attributed(folder)


def attributed(folder: Path) -> Anomalies:
    """Prefix → anomaly rows. An anomaly that names no example, or several, has their prefixes joined by +."""
    found: Anomalies = defaultdict(list)
    stored = folder / "results" / "anomalies"
    if stored.exists():
        columns = [name for name, _ in ANOMALY_COLUMNS]
        for row in ds.dataset(stored, format="parquet").to_table(columns=columns).to_pylist():
            text = " ".join(str(row[c]) for c in ("topic", "value", "explain"))
            found["+".join(sorted(set(PREFIX.findall(text))))].append(row)
    return found


def never_allowed(rows: Sequence[Row], example: Example) -> list[Row]:
    """Anomalies that the contract never allows, except missing records after a failed healing; and `cross_partition`
    where the stop split no transaction."""
    contract = contracts.load(CONTRACTS[example.plan.sort])
    never = [r for r in rows if contract.clause(r["kind"], form=r["form"], cluster=r["cluster"]).level is Level.NEVER]
    if example.plan.unhealed:
        never = [r for r in never if not CATALOGUE[r["kind"]].after_healing]
    split = [r for r in rows if r["kind"] == "cross_partition"]
    return [r for r in never + [r for r in split if r not in never] if r["kind"] not in example.tolerated]


def told(rows: Iterable[dict[str, Any]], most: int = 5) -> str:
    """Some anomalies as lines."""
    return "\n".join(f"  {r['kind']}/{r['form']} on {r['cluster']}: {r['explain']}" for r in list(rows)[:most])
