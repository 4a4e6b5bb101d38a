"""How much recording costs: acknowledged send operations per second, recorded and bare, side by side in one run.

    python bench/recording.py [--seconds 8] [--rounds 3] [--processes 512] [--producers 1] [--max-records 1]

Starts 3+3 brokers (or takes `--bootstrap`), and alternates: the workload `append` at rate 0 with its recorder, and
a bare confluent-kafka producer that draws the same records from the same plan, keeps as many operations under way and
only counts its delivery reports. Prints one JSON line per round and a summary: operations per second of both, and
the share that recording costs (target: at least 10,000/s, at most 10 % slower than the bare client).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.history.ops import OpRecord, Phase
from harness.history.recorder import RunRecorder
from workloads import REGISTRY
from workloads.base import Endpoint, WorkloadContext, WorkloadOptions
from workloads.clients.kafka_config import admin_config, producer_config
from workloads.plan import SendPlan


class BareClient:
    """The same sends with the same concurrency and nothing else: no history, no error table, no rate."""

    def __init__(self, bootstrap: str, role: str, options: WorkloadOptions, topics: list[str], seed: int) -> None:
        self.acked = 0
        self._stop = False
        self._idle = deque(f"p{n}" for n in range(options.processes))
        self._producer = Producer(producer_config(bootstrap, role, options))
        self._plan = SendPlan(
            seed=seed,
            role=role,
            tag="bench",
            targets=[(t, p) for t in topics for p in range(options.partitions)],
            max_records=options.max_records,
            value_bytes=options.value_bytes,
        )
        self._plan.use_client(f"{role}#bare{seed}")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, with everything delivered."""
        self._stop = True
        self._thread.join()

    def _run(self) -> None:
        produce, delivered = self._producer.produce, self._delivered
        while not self._stop:
            for _ in range(len(self._idle)):
                process = self._idle.popleft()
                records: list[OpRecord] = self._plan.records(process)
                left = [len(records)]
                for _, topic, to, _, value, key, *_ in records:
                    produce(topic, value, key, to, on_delivery=partial(delivered, process, left))  # type: ignore[arg-type]
            self._producer.poll(0.05)
        self._producer.flush(10)

    def _delivered(self, process: str, left: list[int], error: Any, _message: Any) -> None:
        if error is not None:
            raise SystemExit(f"the bare client failed: {error}")
        left[0] -= 1
        if not left[0]:
            self.acked += 1
            self._idle.append(process)


@dataclass(frozen=True)
class Figure:
    """Acknowledged operations per second, and CPU microseconds of this whole process per operation."""

    rate: float
    cpu_us: float


def watch(count: Callable[[], int], seconds: float) -> Figure:
    """Look at the count and the CPU time now and after so many seconds."""
    before, began, cpu = count(), time.monotonic(), time.process_time()
    time.sleep(seconds)
    done, took, cpu = count() - before, time.monotonic() - began, time.process_time() - cpu
    return Figure(done / took, cpu / max(1, done) * 1e6)


def bare(bootstrap: str, options: WorkloadOptions, topics: list[str], *, seconds: float, seed: int) -> Figure:
    """The sends without recording."""
    clients = [BareClient(bootstrap, f"A-producer-{n}", options, topics, seed) for n in range(options.producers)]
    time.sleep(1.0)  # connections and metadata
    figure = watch(lambda: sum(c.acked for c in clients), seconds)
    for client in clients:
        client.stop()
    return figure


def recorded(bootstrap: str, options: WorkloadOptions, folder: Path, *, seconds: float, seed: int) -> Figure:
    """The workload, written to Parquet while it runs."""
    with RunRecorder(folder) as recorder:
        recorder.set_phase(Phase.LOAD)
        context = WorkloadContext(
            run_id="bench",
            seed=seed,
            options=options,
            endpoints={"A": Endpoint(cluster="A", bootstrap=bootstrap, topic_names={})},
            recorder=recorder,
            clock=recorder.clock,
        )
        load = REGISTRY["append"].start(context)
        time.sleep(1.0)
        figure = watch(lambda: load.counts().ok_sends, seconds)
        load.stop(timeout_s=20)
        if load.error() is not None:
            raise SystemExit(f"the load failed: {load.error()}")
    return figure


def measure(bootstrap: str, options: WorkloadOptions, *, seconds: float, rounds: int) -> dict[str, Any]:
    """Alternate both, whichever first changing by round, and sum up by medians."""
    specs = REGISTRY["append"].topics(options)
    admin = AdminClient(admin_config(bootstrap, "bench"))
    topics = [NewTopic(s.name, s.partitions, s.replication, config=dict(s.config)) for s in specs]
    for future in admin.create_topics(topics).values():
        future.result(30)
    names = [s.name for s in specs]
    bare(bootstrap, options, names, seconds=4, seed=0)  # warms up the brokers' JVMs
    figures: dict[str, list[Figure]] = {"bare": [], "recorded": []}
    folder = Path(tempfile.mkdtemp(prefix="shatter-bench-"))
    try:
        for number in range(rounds):
            for kind in ("bare", "recorded") if number % 2 == 0 else ("recorded", "bare"):
                if kind == "bare":
                    figure = bare(bootstrap, options, names, seconds=seconds, seed=number + 1)
                else:
                    figure = recorded(bootstrap, options, folder / f"run{number}", seconds=seconds, seed=number + 1)
                figures[kind].append(figure)
                line = {
                    "round": number,
                    "kind": kind,
                    "ops_per_s": round(figure.rate),
                    "cpu_us": round(figure.cpu_us, 1),
                }
                print(json.dumps(line), flush=True)
    finally:
        shutil.rmtree(folder)
    rates = {kind: statistics.median(f.rate for f in found) for kind, found in figures.items()}
    cpu = {kind: statistics.median(f.cpu_us for f in found) for kind, found in figures.items()}
    return {
        "processes": options.processes * options.producers,
        "max_records": options.max_records,
        "bare_ops_per_s": round(rates["bare"]),
        "recorded_ops_per_s": round(rates["recorded"]),
        "slower_percent": round(100 * (1 - rates["recorded"] / rates["bare"]), 1),
        "bare_cpu_us_per_op": round(cpu["bare"], 1),
        "recorded_cpu_us_per_op": round(cpu["recorded"], 1),
    }


def main() -> None:
    """Parse arguments, start clusters unless given, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--bootstrap", help="a cluster that runs already")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=512)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--max-records", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    args = parser.parse_args()
    options = WorkloadOptions(
        rate=0,
        producer="idempotent",
        producers=args.producers,
        processes=args.processes,
        consumers=0,
        max_records=args.max_records,
        topics=1,
        partitions=args.partitions,
    )
    with ExitStack() as stack:
        bootstrap = args.bootstrap
        if bootstrap is None:
            from harness.clusters.docker.clients import connect
            from harness.clusters.docker.images import ensure_images
            from harness.clusters.pair import start_topology
            from harness.clusters.plan.topology import TopologySpec

            spec = TopologySpec(run_id=f"bench-{int(time.time())}", images=ensure_images(connect()))
            topology = stack.enter_context(start_topology(spec))
            bootstrap = topology.clusters["A"].bootstrap
        print(json.dumps(measure(bootstrap, options, seconds=args.seconds, rounds=args.rounds)))


if __name__ == "__main__":
    main()
