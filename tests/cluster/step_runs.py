"""Every named step of the mirror as a crash point, in a failover and in a failback, on one pair of clusters.

`python -m tests.cluster.step_runs OUT.md [STEP … | missing]` kills the mirror's process (in this process, as in the
other tests of the data plane) once at each step, starts another one, and compares every replica's raw batches and what
was acknowledged to clients. It writes the table docs/crash-points.md. Exit code 1 when a step lost something or did not
end.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from harness.clusters.docker.clients import connect
from harness.clusters.docker.images import ensure_images
from harness.clusters.pair import RunningTopology, start_topology
from harness.clusters.plan.topology import ClusterSpec, TopologySpec
from harness.topology.clusters import NodeState
from harness.wire.batch_headers import headers
from harness.wire.view import ClusterView
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.states import PartitionState as S
from mirrors.reference.server.steps import STEPS
from tests.cluster.mirror_remains import free_from_mirrors
from tests.cluster.reference_run import Mirror, again, replica_logs, running, until
from tests.cluster.unclean_source import UncleanSource

FAILOVER, FAILBACK = "failover", "failback"
LEGS: Final = {FAILOVER: ("A", "B"), FAILBACK: ("B", "A")}
BEFORE, LOST, NEW, HOME = 60, 20, 10, 3
MISSING: Final = "missing"
NEVER: Final = (FAILOVER, "prepare.in_sync")  # the mirror creates the topic as its leader: nothing to take over
READY_S: Final = 60
KILLED_S, MOVED_S, SHOWN_S = 40.0, 60.0, 6.0


@dataclass(frozen=True)
class Row:
    """The result of one kill. seconds: from the kill until the partition was in the requested state."""

    leg: str
    step: str
    seconds: float
    failed: str = ""


@dataclass
class Told:
    """What clients of one leg had acknowledged: offset → value. cut: where the mirror ended."""

    acknowledged: dict[int, str] = field(default_factory=dict)
    cut: int = -1


class Writer:
    """A client that writes until it is stopped. told: acknowledged records."""

    def __init__(self, bootstrap: str, topic: str, tag: str, told: Told) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000})
        self._topic, self._tag, self._told = topic, tag, told
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(60)

    def _write(self) -> None:
        n = 0
        while not self._end.wait(0.02):
            send(self._producer, self._topic, f"{self._tag}{n}", self._told)
            n += 1
        self._producer.flush(40)


def send(producer: Producer, topic: str, value: str, told: Told) -> None:
    def answered(error: object, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            told.acknowledged[offset] = value

    producer.produce(topic, value.encode(), partition=0, on_delivery=answered)
    producer.poll(0)


def write(bootstrap: str, topic: str, count: int, tag: str) -> Told:
    """As many acknowledged records, in one batch or more."""
    told = Told()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    for n in range(count):
        send(producer, topic, f"{tag}{n}", told)
    producer.flush(40)
    assert len(told.acknowledged) == count, f"{len(told.acknowledged)} of {count} writes of {tag} were acknowledged"
    return told


def read(bootstrap: str, topic: str) -> dict[int, str]:
    """Offset → value of the whole partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, str] = {}
    deadline = time.monotonic() + 30
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                return found
            if message is not None:
                found[message.offset() or 0] = (message.value() or b"").decode()
    finally:
        consumer.close()
    raise AssertionError(f"{topic} could not be read to its end")


def end_of(bootstrap: str, topic: str) -> int:
    """High watermark of the partition."""
    with closing(ClusterView(bootstrap)) as view:
        found = view.leader_ends([topic])[topic, 0]
    assert found is not None, f"{topic} has no leader"
    return found


class Story:
    """A failover and a failback of one topic, with a kill at one step of one of them."""

    def __init__(self, pair: RunningTopology, leg: str, step: str) -> None:
        self._pair, self._leg, self._step = pair, leg, step
        self._topic = self._new_topic()
        self._killed_at = 0.0
        self.seconds = 0.0

    async def tell(self) -> None:
        """Raises AssertionError if something did not hold."""
        a, b = (self._pair.clusters[name].bootstrap for name in "AB")
        if self._reconciles:
            await asyncio.to_thread(UncleanSource.topic_of, self._pair.clusters["A"], self._topic)
        else:
            self._pair.clusters["A"].create_topic(self._topic, partitions=1, replication=3)
        await asyncio.to_thread(write, a, self._topic, BEFORE, "a")
        there = await self._go(FAILOVER)
        await self._kept(there, b)
        await asyncio.to_thread(write, a, self._topic, LOST, "discarded")  # above the cut: the failback discards them
        local = await asyncio.to_thread(write, b, self._topic, BEFORE, "b")
        back = await self._go(FAILBACK)
        back.acknowledged |= local.acknowledged
        await self._kept(back, a)
        values = set((await asyncio.to_thread(read, a, self._topic)).values())
        assert not any(value.startswith("discarded") for value in values), "records above the cut are still on A"
        await asyncio.to_thread(write, a, self._topic, HOME, "home")

    def _new_topic(self) -> str:
        return f"k-{secrets.token_hex(4)}"

    @property
    def _reconciles(self) -> bool:
        return self._step.startswith("reconcile.")

    async def _go(self, leg: str) -> Told:
        source, _ = LEGS[leg]
        step = self._step if leg == self._leg else ""
        told = Told()
        async with AsyncExitStack() as stack:
            writer = None
            if not self._reconciles:
                writer = stack.enter_context(Writer(self._pair.clusters[source].bootstrap, self._topic, leg, told))
            mirror = await self._start(stack, leg, step)
            mirror = await self._unless(stack, mirror, step, "prepare.", lambda m: m.begin(self._topic))
            await mirror.until_state(S.MIRRORING, MOVED_S)
            mirror = await self._carry(stack, mirror, leg, step, told)
            if writer is not None and leg == FAILBACK:
                await asyncio.to_thread(writer.stop)  # acknowledged records must be mirrored before clients move
                await self._carried(mirror, max(told.acknowledged) + 1)
            carried = mirror.led().high_watermark or 0
            mirror = await self._unless(stack, mirror, step, "stop.", lambda m: m.ask(S.STOPPING))
            await mirror.until_state(S.STOPPED, MOVED_S)
            if step.startswith("stop."):
                self._ended()
            told.cut = mirror.record().last_mirrored
            assert told.cut >= carried, f"the cut is {told.cut}, below the end of all followers: {carried}"
            await self._stopped(leg)
        return told

    async def _start(self, stack: AsyncExitStack, leg: str, step: str) -> Mirror:
        """Start a process that dies at the step, if one is named."""
        mirror = await stack.enter_async_context(running(self._pair, *LEGS[leg], **self._settings))
        mirror.process.crash.at = step
        return mirror

    @property
    def _settings(self) -> dict[str, Any]:
        return {"design": {}, **({"replicas": 2} if self._reconciles else {})}

    async def _stopped(self, leg: str) -> None:
        """Wait until the mirror has stopped in this leg."""

    async def _unless(
        self, stack: AsyncExitStack, mirror: Mirror, step: str, prefix: str, act: Callable[[Mirror], Awaitable[None]]
    ) -> Mirror:
        """Run it; if the step is part of it, the process dies there, and another process continues."""
        if not step.startswith(prefix):
            await act(mirror)
            return mirror
        acting = asyncio.ensure_future(act(mirror))
        return await self._die(stack, mirror, acting)

    async def _die(self, stack: AsyncExitStack, mirror: Mirror, acting: asyncio.Future[None] | None = None) -> Mirror:
        try:
            await asyncio.wait_for(mirror.killed.wait(), KILLED_S)
        except TimeoutError:
            raise AssertionError(f"step {self._step} was not reached within {KILLED_S:g} s") from None
        if acting is not None:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
        self._killed_at = time.monotonic()
        return await self._next(stack, mirror)

    async def _next(self, stack: AsyncExitStack, mirror: Mirror) -> Mirror:
        """The process that continues after one died at the step."""
        await mirror.process.stop()
        return await stack.enter_async_context(again(mirror))

    def _ended(self) -> None:
        self.seconds = time.monotonic() - self._killed_at

    async def _carry(self, stack: AsyncExitStack, mirror: Mirror, leg: str, step: str, told: Told) -> Mirror:
        """Mirror some records; with an unclean election on the source if the step is part of a reconcile."""
        source = self._pair.clusters[LEGS[leg][0]]
        if not step.startswith("reconcile."):
            await self._carried(mirror, mirror.led().log_end + NEW if not self._reconciles else mirror.led().log_end)
            if step.startswith("prepare."):
                self._ended()
            return mirror
        agreed = await asyncio.to_thread(end_of, source.bootstrap, self._topic)
        await self._carried(mirror, agreed)
        unclean = UncleanSource(source, self._topic)
        await asyncio.to_thread(unclean.leave_alone)
        await asyncio.to_thread(write, source.bootstrap, self._topic, LOST, "lost")
        await self._carried(mirror, agreed + LOST)
        await asyncio.to_thread(unclean.elect)
        new = await asyncio.to_thread(write, source.bootstrap, self._topic, NEW, "new")
        mirror = await self._die(stack, mirror)
        await until(
            lambda: (led := self._led(mirror)) is not None and led.leading and led.high_watermark == agreed + NEW,
            MOVED_S,
            lambda: f"offset {agreed + NEW}: {self._led(mirror)}",
        )
        self._ended()
        await asyncio.to_thread(unclean.heal)
        told.acknowledged |= new.acknowledged
        return mirror

    @staticmethod
    def _led(mirror: Mirror) -> LedPartition | None:
        found = mirror.process.lifecycle.mirrored(mirror.keys[0])
        return None if found is None else found.led

    async def _carried(self, mirror: Mirror, offset: int) -> None:
        def reached() -> bool:
            found = mirror.process.lifecycle.mirrored(mirror.keys[0])
            return found is not None and found.led.leading and (found.led.high_watermark or 0) >= offset

        await until(reached, MOVED_S, lambda: f"offset {offset} on every follower in sync")

    async def _kept(self, told: Told, destination: str) -> None:
        """All replicas agree below the cut, and acknowledged records below it are at their offsets."""
        deadline = time.monotonic() + SHOWN_S
        while (wrong := await self._wrong_below(told.cut)) and time.monotonic() < deadline:
            await asyncio.sleep(0.25)  # followers serve reads up to the high watermark that they know
        assert not wrong, wrong
        values = await asyncio.to_thread(read, destination, self._topic)
        gone = {o: v for o, v in told.acknowledged.items() if o < told.cut and values.get(o) != v}
        assert not gone, f"{len(gone)} acknowledged records are not where they were: {dict(list(gone.items())[:3])}"

    async def _wrong_below(self, cut: int) -> str:
        """How replicas of the clusters differ below an offset; empty when they are equal up to it."""
        logs = {}
        for name in ("A", "B"):
            bootstrap = self._pair.clusters[name].bootstrap
            for broker, log in (await replica_logs(bootstrap, self._topic)).items():
                logs[f"{name}{broker}"] = [b for b in log if next(headers(b)).next_offset <= cut]
        first = max(logs.values(), key=len)
        if not first or next(headers(first[-1])).next_offset != cut:
            return f"no replica ends at the cut {cut}"
        different = {name: len(log) for name, log in logs.items() if log != first}
        return (
            f"replicas (batches) {different} differ from {len(first)} batches below the cut {cut}" if different else ""
        )


def points(wanted: Sequence[str]) -> list[tuple[str, str]]:
    """(leg, step) in the order of the steps; wanted: nothing for all."""
    every = [(leg, step) for leg in LEGS for step in STEPS if (leg, step) != NEVER]
    return [(leg, step) for leg, step in every if not wanted or step in wanted]


async def run(pair: RunningTopology, leg: str, step: str, kind: type[Story]) -> Row:
    """One story, as a row."""
    story = kind(pair, leg, step)
    try:
        await story.tell()
    except Exception as error:
        return Row(leg, step, story.seconds, f"{type(error).__name__}: {error}")
    return Row(leg, step, story.seconds)


HEAD: Final = """# Kills at every step

<!-- Written by `python -m tests.cluster.step_runs docs/crash-points.md` on real clusters; do not edit. -->

The reference mirror (`strict`) is killed once at each named step, in a failover (A→B) or in the failback after it
(B→A), while a client writes to the source; another process is started at once. *held*: the process died at the step,
the partition reached the requested state, all replicas of both clusters are byte-identical below the cut, every
acknowledged record below the cut is readable at its offset on the destination, and both clusters accept writes again.
Steps of a reconcile follow an unclean election on the source. A failover has no `prepare.in_sync`: the mirror creates
the topic and leads it from the start. *seconds*: from the kill until the partition was in the requested state. In a
whole run the same kills are the nemesis `mirror-crash`. Steps that are not in the table have not been run since the
table was last written (`… OUT.md missing` runs them).

| leg | step | outcome | seconds |
|---|---|---|---|
"""


def table(head: str, rows: Sequence[Row]) -> str:
    """All rows, as Markdown."""
    lines = [f"| {r.leg} | `{r.step}` | {r.failed.replace('|', '/') or 'held'} | {r.seconds:.1f} |\n" for r in rows]
    return head + "".join(lines)


def put_right(pair: RunningTopology) -> None:
    """After a story that did not finish: start every node, and move what a dead mirror leads to real brokers.

    The topic stays: deleting one that a dead mirror leads can make Kafka 4.3.1's controller refuse every registration.
    """
    for node in pair.nodes():
        if node.state() is NodeState.STOPPED:
            node.start()
    for cluster in pair.clusters.values():
        cluster.await_ready(timeout_s=READY_S)
        asyncio.run(free_from_mirrors(cluster))
        cluster.await_full_isr(timeout_s=READY_S)


def stored(out: Path) -> list[Row]:
    """The rows of a table written earlier."""
    if not out.exists():
        return []
    found = re.findall(
        r"^\| (\w+) \| `([\w.]+)` \| (.*) \| ([\d.]+) \|$", out.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [Row(leg, step, float(seconds), "" if said == "held" else said) for leg, step, said, seconds in found]


def main(out: Path, wanted: Sequence[str], *, kind: type[Story] = Story, head: str = HEAD) -> int:
    """Run all steps, the given ones, or those that the table does not list as held; its other rows stay."""
    images = ensure_images(connect())
    name = f"steps-{secrets.token_hex(3)}"
    spec = TopologySpec(run_id=name, images=images, clusters=(ClusterSpec(name="A"), ClusterSpec(name="B")))
    rows = {(row.leg, row.step): row for row in stored(out) if wanted}
    with tempfile.TemporaryDirectory() as logs, start_topology(spec, logs_dir=Path(logs)) as pair:
        held = {point for point, row in rows.items() if not row.failed}
        chosen = [point for point in points(()) if point not in held] if MISSING in wanted else points(wanted)
        for leg, step in chosen:
            made = rows[leg, step] = asyncio.run(run(pair, leg, step, kind))
            if made.failed:
                put_right(pair)
            print(f"{leg} {step}: {made.failed or 'held'} ({made.seconds:.1f} s)", flush=True)
            out.write_text(table(head, [rows[point] for point in points(()) if point in rows]), encoding="utf-8")
    return 1 if any(row.failed for row in rows.values()) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clusters are taken down
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
