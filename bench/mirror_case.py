"""One mirror, one number of partitions: how fast it catches up, what it costs idle, how late records are at a pace.

Catching up is timed from the last look that saw nothing on B to the first one that saw everything: from the moment when
records flow. A mirror that makes all partitions first has most of their cost before that moment, one that begins with
those that are there has it behind, so the same is told from the start of the mirror's process, too. Everything is there
when B's last stable offsets have stood still for some seconds and count at least as many records as were written (an
exactly-once MirrorMaker 2 adds its own markers).

Latency at a pace is told from the send on A to a reader on B; beside it stands how much of that A itself took.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bench.mirror_load import LatencyReader, PacedWriter, fill
from bench.usage import Usage, usage
from harness.clusters.kafka.nodes import ContainerNode
from harness.clusters.pair import RunningTopology
from harness.core.errors import ClusterError, MirrorError
from harness.core.wait import wait_until
from harness.topology.mirror import Mirror
from harness.wire.client import WireError
from harness.wire.view import ClusterView

STILL_S = 3.0
_DELETE_S = 60.0
_LATE_S = 30.0  # how long the last paced records may be on the way


@dataclass(frozen=True, kw_only=True)
class Load:
    """What every mirror gets. fill_mb: of values, to catch up with; rate: records per second of the paced part."""

    partitions: int
    fill_mb: float
    value_bytes: int
    rate: float
    warm_s: float
    paced_s: float
    idle_s: float
    limit_s: float

    @property
    def records(self) -> int:
        """Records to catch up with."""
        return int(self.fill_mb * 1e6 / self.value_bytes)


@dataclass(kw_only=True)
class Result:
    """What was measured. CPU in seconds of one core, or in percent of one; latencies in milliseconds."""

    mirror: str
    partitions: int
    start_s: float = 0.0  # until the first record was on B
    catch_up_s: float = 0.0
    mb_per_s: float = 0.0
    records_per_s: float = 0.0
    mb_per_s_with_start: float = 0.0
    catch_up_cpu_s: float = 0.0  # from the start of its process
    brokers_cpu_s: float = 0.0  # of B, over the same time
    all_cpu_s: float = 0.0  # of everything: the mirror, A, B and the links, over the same time
    idle_cpu_percent: float = 0.0
    paced_records: int = 0
    paced_missing: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    acknowledged_p50_ms: float = 0.0  # by A
    acknowledged_p99_ms: float = 0.0
    paced_cpu_percent: float = 0.0
    paced_brokers_cpu_percent: float = 0.0
    paced_all_cpu_percent: float = 0.0
    peak_mb: float = 0.0
    errors: list[str] = field(default_factory=list)


class Case:
    """See the module. tell: takes a line of what is going on."""

    def __init__(
        self, topology: RunningTopology, mirror: Mirror, *, topic: str, load: Load, tell: Callable[[str], None]
    ):
        self._topology, self._mirror, self._topic, self._load, self._tell = topology, mirror, topic, load, tell
        self._a, self._b = topology.clusters["A"], topology.clusters["B"]
        self._poll_s = max(0.05, load.partitions / 2000)  # a poll costs whoever leads a little for each partition
        self._view = ClusterView(self._b.bootstrap, timeout_s=10)

    def measure(self, name: str) -> Result:
        """Everything, in order; the topic is gone afterwards from both clusters. Raises ShatterError."""
        load, result = self._load, Result(mirror=name, partitions=self._load.partitions)
        self._a.create_topic(
            self._topic, partitions=load.partitions, replication=3, config={"min.insync.replicas": "2"}
        )
        try:
            self._tell(f"writing {load.records} records to A")
            fill(
                self._a.bootstrap,
                self._topic,
                partitions=load.partitions,
                records=load.records,
                value_bytes=load.value_bytes,
            )
            self._catch_up(result)
            self._idle(result)
            self._paced(result)
            result.peak_mb = self._of_mirror().peak_mb
            self._tell("stopping the mirror")
            self._mirror.stop([self._topic])
        finally:
            self._clean()
        return result

    # --- catching up -------------------------------------------------------------------------------------------

    def _catch_up(self, result: Result) -> None:
        before, all_before, began = self._of_brokers(), self._of_all(), time.monotonic()
        starting = _Starting(self._mirror, self._topic)
        last_empty = grown = began
        count = 0
        while True:
            now, there = time.monotonic(), sum(self._ends().values())
            if there == 0:
                last_empty = now
            if there > count:
                self._tell(f"{there} of {self._load.records} offsets are on B")
                count, grown = there, now
            if count >= self._load.records and now - grown >= STILL_S:
                break
            if now - began > self._load.limit_s:
                result.errors.append(f"after {self._load.limit_s:g} s {count} of {self._load.records} were on B")
                break
            starting.check()
            time.sleep(self._poll_s)
        starting.join()
        used, brokers, everything = self._of_mirror(), self._of_brokers(), self._of_all()
        seconds = max(grown - last_empty, 0.05)
        result.start_s, result.catch_up_s = last_empty - began, seconds
        mirrored = min(count, self._load.records)
        result.records_per_s = mirrored / seconds
        result.mb_per_s = mirrored * self._load.value_bytes / 1e6 / seconds
        result.mb_per_s_with_start = mirrored * self._load.value_bytes / 1e6 / (grown - began)
        result.catch_up_cpu_s, result.brokers_cpu_s = used.cpu_s, brokers.cpu_s - before.cpu_s
        result.all_cpu_s = everything.cpu_s - all_before.cpu_s

    def _ends(self) -> Mapping[tuple[str, int], int]:
        """Last stable offsets on B; 0 where nobody leads yet."""
        try:
            return {
                place: end or 0 for place, end in self._view.leader_ends([self._topic], read_committed=True).items()
            }
        except WireError:
            return {}

    def _known_ends(self) -> Mapping[tuple[str, int], int]:
        """Where every partition ends, as soon as somebody leads each."""
        found: dict[tuple[str, int], int | None] = {}

        def complete() -> bool:
            found.update(self._view.leader_ends([self._topic], read_committed=True))
            return None not in found.values()

        what = f"a leader of every partition of {self._topic} on cluster B"
        wait_until(complete, timeout_s=_LATE_S, what=what, swallow=(WireError,))
        return {place: end for place, end in found.items() if end is not None}

    # --- idle and paced ----------------------------------------------------------------------------------------

    def _idle(self, result: Result) -> None:
        self._tell("idle")
        before = self._of_mirror()
        time.sleep(self._load.idle_s)
        result.idle_cpu_percent = 100 * (self._of_mirror().cpu_s - before.cpu_s) / self._load.idle_s

    def _paced(self, result: Result) -> None:
        load = self._load
        self._tell(f"{load.rate:g} records a second")
        reader = LatencyReader(self._b.bootstrap, self._known_ends())
        writer = PacedWriter(
            self._a.bootstrap, self._topic, partitions=load.partitions, rate=load.rate, value_bytes=load.value_bytes
        )
        try:
            time.sleep(load.warm_s)
            first, before = time.monotonic_ns(), (self._of_mirror(), self._of_brokers(), self._of_all())
            time.sleep(load.paced_s)
            last, after = time.monotonic_ns(), (self._of_mirror(), self._of_brokers(), self._of_all())
        finally:
            writer.close()
            deadline = time.monotonic() + _LATE_S
            while len(reader.taken) < writer.sent - writer.failed and time.monotonic() < deadline:
                time.sleep(0.1)
            reader.close()
        result.paced_records = sum(first <= sent < last for sent, _ in reader.taken)
        result.paced_missing = writer.sent - writer.failed - len(reader.taken)
        if writer.failed:
            result.errors.append(f"{writer.failed} of {writer.sent} paced sends failed")
        result.p50_ms, result.p99_ms = _p50_p99_ms(reader.taken, first, last)
        result.acknowledged_p50_ms, result.acknowledged_p99_ms = _p50_p99_ms(writer.acknowledged, first, last)
        shares = [100 * (b.cpu_s - a.cpu_s) / load.paced_s for a, b in zip(before, after, strict=True)]
        result.paced_cpu_percent, result.paced_brokers_cpu_percent, result.paced_all_cpu_percent = shares

    # --- looks and the end -------------------------------------------------------------------------------------

    def _of_mirror(self) -> Usage:
        return usage(self._nodes("mirror"))

    def _of_brokers(self) -> Usage:
        return usage(self._nodes("B"))

    def _of_all(self) -> Usage:
        return usage(self._topology.nodes())

    def _nodes(self, cluster: str) -> list[ContainerNode]:
        return [node for node in self._topology.nodes() if node.cluster == cluster]

    def _clean(self) -> None:
        """The mirror's containers and the topic are gone, so that the next case finds what this one found."""
        self._mirror.close()
        for node in self._nodes("mirror"):
            self._topology.discard(node.name)
        self._view.close()
        for cluster in (self._a, self._b):
            if self._topic not in cluster.topics():
                continue
            cluster.admin().delete_topics([self._topic])[self._topic].result(_DELETE_S)
            wait_until(
                lambda cluster=cluster: self._topic not in cluster.topics(),  # type: ignore[misc]
                timeout_s=_DELETE_S,
                what=f"topic {self._topic} to be gone from cluster {cluster.name}",
                swallow=(ClusterError,),
            )


def _p50_p99_ms(taken: Iterable[tuple[int, float]], first: int, last: int) -> tuple[float, float]:
    """Of what was sent between two times (ns); zeros when that is less than two records."""
    seconds = [took for sent, took in taken if first <= sent < last]
    if len(seconds) < 2:
        return 0.0, 0.0
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return 1000 * cuts[49], 1000 * cuts[98]


class _Starting:
    """The mirror's own `start`, which waits, beside the looks at what arrives."""

    def __init__(self, mirror: Mirror, topic: str) -> None:
        self._error: Exception | None = None
        self._mirror, self._topic = mirror, topic
        self._thread = threading.Thread(target=self._run, name="start-mirror", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what `start` raised."""
        if self._error is not None:
            raise MirrorError(f"the mirror did not start: {self._error}") from self._error

    def join(self) -> None:
        """Wait for it, as long as it bounds itself, and check it."""
        self._thread.join()
        self.check()

    def _run(self) -> None:
        try:
            self._mirror.start([self._topic])
        except Exception as error:
            self._error = error
