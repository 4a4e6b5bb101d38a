"""The final reads: fresh clients read every partition of every cluster from its start to the highest known offset.

Per cluster and isolation level one consumer reads all partitions at once. The *target* of a partition is its high
watermark, queried at the start and again once everything was reached, until nothing grew meanwhile. It is the same for
both isolation levels: a read_committed read that has reached the last stable offset waits for open transactions below
the high watermark to end, and is incomplete when they do not.
Reached refers to the consumer's position, not its last record: markers and compacted offsets at the end count as read.
Whether an acknowledged offset is at or above the high watermark (so that A itself lost it) is for the checkers.

Every partition gets exactly one row per isolation level, complete or not. An absent topic, a cluster that does not
answer, and a time-out each give rows that state it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from harness.history.ops import Phase
from workloads.base import Endpoint, FinalRead, WorkloadContext, WorkloadOptions
from workloads.clients.final_reader import FinalReader, Result
from workloads.values import Names

log = logging.getLogger(__name__)

_MARGIN_S: Final = 5.0  # for closing clients after the deadline


def isolations(options: WorkloadOptions) -> tuple[str, ...]:
    """Levels to read at: always read_uncommitted; read_committed when requested or when transactions were written."""
    if options.producer == "transactional" or options.isolation == "read_committed":
        return ("read_uncommitted", "read_committed")
    return ("read_uncommitted",)


def read_everything(context: WorkloadContext, topics: Sequence[str], *, timeout_s: float) -> list[FinalRead]:
    """Read all partitions of `topics` (names on A) on all endpoints; record polls and rows of table `final_reads`."""
    recorder = context.recorder
    if recorder.phase is not Phase.FINAL:
        recorder.set_phase(Phase.FINAL)
    deadline = time.monotonic() + timeout_s
    names = Names.of(context.extra)
    jobs: list[tuple[FinalReader, threading.Thread]] = []
    for endpoint in context.endpoints.values():
        for isolation in isolations(context.options):
            reader = FinalReader(
                run_id=context.run_id,
                endpoint=endpoint,
                topics=[endpoint.topic_names.get(topic, topic) for topic in topics],
                per_topic=context.options.partitions,
                isolation=isolation,
                names=names,
                recorder=recorder,
                deadline=deadline,
            )
            thread = threading.Thread(target=reader.run, name=f"final-{endpoint.cluster}-{isolation}", daemon=True)
            jobs.append((reader, thread))
    for _, thread in jobs:
        thread.start()
    rows: list[FinalRead] = []
    failure: Exception | None = None
    for reader, thread in jobs:
        thread.join(max(0.0, deadline - time.monotonic()) + _MARGIN_S)
        late = f"the reader did not end within {timeout_s:g} s" if thread.is_alive() else None
        failure = failure or reader.failure
        rows.extend(_row(reader.endpoint, reader.isolation, result, late) for result in reader.results())
    for row in rows:
        recorder.row(
            "final_reads",
            cluster=row.cluster,
            topic=row.topic,
            partition=row.partition,
            isolation=row.isolation,
            start_offset=row.start,
            target_offset=row.target,
            position=row.position,
            complete=row.complete,
            error=row.error,
        )
    if failure is not None:
        raise failure
    return rows


def _row(endpoint: Endpoint, isolation: str, result: Result, late: str | None) -> FinalRead:
    error = result.error or late
    return FinalRead(
        cluster=endpoint.cluster,
        topic=result.topic,
        partition=result.partition,
        isolation=isolation,
        start=result.start,
        position=result.position,
        target=result.target,
        complete=result.complete and error is None,
        error=error,
    )
