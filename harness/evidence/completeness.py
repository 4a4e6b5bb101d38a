"""The table `captured_logs`: which replicas' logs had to be captured, and which are complete.

Every replica that the last snapshot of its cluster found assigned to a partition had to be captured. Its log is
complete when its folder was copied and decoded without a hole up to the log end that was seen. Absence from an
incomplete log proves nothing, so checkers leave such logs out and say so (`checkers.views.completeness`).

It cannot see: replicas of a cluster of which no snapshot could be taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.dataset as ds

from harness.evidence.log_dirs import EVIDENCE, MANIFEST, ReplicaLog
from harness.history.runmeta import RunMeta
from harness.history.schema import TABLES

_TORN: Final = "truncated_batch"  # a batch that was being written
_TAIL: Final = frozenset({"zero_tail", _TORN})  # or preallocated space
Replica = tuple[str, str, int, int]
"""cluster, topic, partition, broker."""


@dataclass
class Decoded:
    """The decoded content of one replica's log."""

    batches: int = 0
    records: int = 0
    end: int = 0
    holes: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    torn: bool = False
    """Whether its last batch is cut off."""


def expected_replicas(run_dir: Path, meta: RunMeta) -> dict[Replica, tuple[int | None, int | None]]:
    """Replica → (log start, log end) from the cluster's last snapshot, null where that replica did not answer.

    Brokers without a log of their own (a mirror process that leads partitions) are not among them.
    """
    files = sorted(str(p) for p in (run_dir / "log_ends").glob("*.parquet"))
    if not files:
        return {}
    columns = ["cluster", "topic", "partition", "broker", "look", "log_start", "log_end", "replicas"]
    table = ds.dataset(files, schema=TABLES["log_ends"].schema).to_table(columns=columns)
    table = table.filter(pc.is_valid(table["partition"]))
    newest = {
        row["cluster"]: row["look_max"] for row in table.group_by("cluster").aggregate([("look", "max")]).to_pylist()
    }
    found: dict[Replica, tuple[int | None, int | None]] = {}
    for cluster, look in newest.items():
        own = meta.clusters.get(cluster)
        brokers = set(own.brokers) if own is not None else set()
        rows = table.filter(pc.equal(table["cluster"], cluster))
        rows = rows if look is None else rows.filter(pc.equal(rows["look"], look))
        for row in rows.to_pylist():
            place = (cluster, row["topic"], row["partition"])
            for broker in row["replicas"] or ():
                if not brokers or broker in brokers:
                    found.setdefault((*place, broker), (None, None))
            if (*place, row["broker"]) in found and row["log_end"] is not None:
                found[(*place, row["broker"])] = (row["log_start"], row["log_end"])
    return found


def capture_failures(run_dir: Path) -> dict[tuple[str, int], str]:
    """(cluster, broker) → why nothing of it was captured, from the manifest; empty where there is none to read."""
    try:
        failures = json.loads((run_dir / EVIDENCE / MANIFEST).read_text(encoding="utf-8")).get("failures", {})
        return {(cluster, int(broker)): str(why) for cluster, of in failures.items() for broker, why in of.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def by_replica(logs: Iterable[ReplicaLog], results: Sequence[Mapping[str, Any]]) -> dict[Replica, Decoded]:
    """The decoded content of every replica's log. results: rows of `segment_task.RESULT`."""
    said = {result["path"]: result for result in results}
    found: dict[Replica, Decoded] = {}
    for log in logs:
        whole = found.setdefault((log.cluster, log.topic, log.partition, log.broker), Decoded())
        for segment in log.segments:
            result = said.get(str(segment.path))
            if result is None:
                whole.holes.append(f"{segment.path.name} was not decoded")
                continue
            whole.batches += result["batches"]
            whole.records += result["records"]
            whole.end = max(whole.end, segment.base_offset, result["end_offset"] or 0)
            for problem in json.loads(result["problems"] or "[]"):
                tail = problem["kind"] in _TAIL and segment.last
                (whole.tails if tail else whole.holes).append(f"{segment.path.name}: {problem['text']}")
                whole.torn = whole.torn or problem["kind"] == _TORN
    return found


def rows(
    expected: Mapping[Replica, tuple[int | None, int | None]],
    decoded: Mapping[Replica, Decoded],
    failures: Mapping[tuple[str, int], str],
    *,
    look: int,
) -> list[dict[str, Any]]:
    """Rows of `captured_logs`: one for each replica that was captured or had to be."""
    found = []
    for replica in sorted({*expected, *decoded}):
        cluster, topic, partition, broker = replica
        came = decoded.get(replica)
        why = _why(replica, expected.get(replica, (None, None)), came, failures.get((cluster, broker)))
        found.append(
            {
                "cluster": cluster,
                "broker": broker,
                "look": look,
                "topic": topic,
                "partition": partition,
                "complete": why is None,
                "why": why,
                "batches": came.batches if came else 0,
                "records": came.records if came else 0,
            }
        )
    return found


def _why(
    replica: Replica, ends: tuple[int | None, int | None], came: Decoded | None, failure: str | None
) -> str | None:
    """Why a replica's log is not complete; None when it is."""
    cluster, topic, partition, broker = replica
    start, end = ends
    if came is None:
        if failure is None and end is not None and start == end:
            return None  # an empty log: nothing is absent from it
        return failure or f"no log of {topic}-{partition} was captured from broker {broker} of {cluster}"
    if came.holes:
        more = f" (and {len(came.holes) - 1} more)" if len(came.holes) > 1 else ""
        return f"the log of {topic}-{partition} on broker {broker} of {cluster} has a hole: {came.holes[0]}{more}"
    if end is None and came.torn:
        return (
            f"the log of {topic}-{partition} on broker {broker} of {cluster} is cut off, and no snapshot shows its log"
            f" end: {came.tails[0]}"
        )
    if end is not None and came.end < end:
        return (
            f"the log of {topic}-{partition} on broker {broker} of {cluster} was decoded up to {came.end},"
            f" its log end was {end}: {came.tails[0] if came.tails else 'the offsets between are not in its files'}"
        )
    return None
