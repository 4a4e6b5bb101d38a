"""Decodes MirrorMaker 2's internal topics on the destination. Pure.

Kafka Connect stores, as JSON without schemas:
- `mm2-offsets.A.internal`: key [connector, {cluster, topic, partition}], value {offset: last source offset copied};
- `mm2-status.A.internal`: key `status-task-CONNECTOR-N`, value {state, trace, worker_id, generation};
- `mm2-configs.A.internal`: key `task-CONNECTOR-N`, value {properties: {task.assigned.partitions: "topic-0,topic-1"}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SOURCE_CONNECTOR: Final = "MirrorSourceConnector"

Compacted = Mapping[bytes, bytes | None]


@dataclass(frozen=True)
class TaskState:
    """One task of the source connector: RUNNING, FAILED, UNASSIGNED, …, and the first line of its error."""

    state: str
    error: str | None


def internal_topic(kind: str, source: str) -> str:
    """Name of an internal topic on the destination. kind: offsets, status or configs."""
    return f"mm2-{kind}.{source}.internal"


def positions(entries: Compacted, source: str) -> dict[tuple[str, int], int]:
    """Offsets topic → (topic on the source, partition) → next source offset to be copied."""
    found = {}
    for key, value in entries.items():
        parsed = _json(key)
        if not (isinstance(parsed, list) and len(parsed) == 2 and parsed[0] == SOURCE_CONNECTOR):
            continue
        where, offset = parsed[1], _json(value)
        if isinstance(where, dict) and where.get("cluster") == source and isinstance(offset, dict):
            found[(str(where["topic"]), int(where["partition"]))] = int(offset["offset"]) + 1
    return found


def task_states(entries: Compacted) -> dict[int, TaskState]:
    """Status topic → task number of the source connector → its state. Tasks that were removed are left out."""
    prefix = f"status-task-{SOURCE_CONNECTOR}-"
    found = {}
    for key, value in entries.items():
        name, status = key.decode(errors="replace"), _json(value)
        if name.startswith(prefix) and name[len(prefix) :].isdigit() and isinstance(status, dict):
            trace = status.get("trace")
            found[int(name[len(prefix) :])] = TaskState(
                state=str(status.get("state")), error=_first_cause(trace) if trace else None
            )
    return found


def task_partitions(entries: Compacted) -> dict[tuple[str, int], int]:
    """Configs topic → (topic, partition) → number of the task that copies it."""
    prefix = f"task-{SOURCE_CONNECTOR}-"
    commit = _json(entries.get(f"commit-{SOURCE_CONNECTOR}".encode()))
    tasks = int(commit["tasks"]) if isinstance(commit, dict) and "tasks" in commit else None
    found = {}
    for key, value in entries.items():
        name, config = key.decode(errors="replace"), _json(value)
        if not (name.startswith(prefix) and name[len(prefix) :].isdigit() and isinstance(config, dict)):
            continue
        task = int(name[len(prefix) :])
        if tasks is not None and task >= tasks:  # left over from when there were more tasks
            continue
        for part in str(config.get("properties", {}).get("task.assigned.partitions", "")).split(","):
            topic, dash, number = part.rpartition("-")
            if dash and number.isdigit():
                found[(topic, int(number))] = task
    return found


def _first_cause(trace: str) -> str:
    """The error itself and the innermost cause: one line each of a Java stack trace."""
    lines = trace.strip().splitlines()
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return lines[0] if not causes else f"{lines[0]}; {causes[-1][len('Caused by: ') :]}"


def _json(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return None
