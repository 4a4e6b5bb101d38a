"""Stops of the reference mirror with open transactions on the source, on real clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.clusters.pair import RunningTopology
from mirrors.reference.server.states import PartitionState as S
from tests.cluster.reference_run import design, replica_logs, running

OPEN_MS = 600_000
HOLD_S = 0.3
PARTITIONS = 2


class Client:
    """A transactional producer of A."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic, self._name = topic, name
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": OPEN_MS}
        )
        self._producer.init_transactions(30)

    def begin(self, tag: str, *partitions: int) -> None:
        """Acknowledged when it returns."""
        self._producer.begin_transaction()
        for partition in partitions or (0,):
            self._producer.produce(self._topic, f"{self._name}/{tag}".encode(), partition=partition)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


class Writing:
    """Transactions over all partitions, one after the other, until the end. begun, committed: tag → monotonic seconds
    of the acknowledgement of the first records, and of the commit's."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.name = name
        self.begun: dict[str, float] = {}
        self.committed: dict[str, float] = {}
        self._client = Client(bootstrap, topic, name)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def _write(self) -> None:
        n = 0
        while not self._end.is_set():
            tag = f"{self.name}/{n}"
            self._client.begin(str(n), *range(PARTITIONS))
            self.begun[tag] = time.monotonic()
            self._end.wait(HOLD_S)
            self._client.commit()
            self.committed[tag] = time.monotonic()
            n += 1


def committed(bootstrap: str, topic: str, partition: int = 0) -> list[str]:
    """What a read_committed consumer reads of one partition, to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                return found
            if message is not None:
                found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition} could not be read to its end")


def test_transactions_that_began_before_the_stop_end_as_on_the_source(pair: RunningTopology, topic: str) -> None:
    """At every moment some transaction is open. Those that began before the stop are complete on B."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=PARTITIONS, replication=3)

    async def body() -> float:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            await asyncio.sleep(1.5)
            asked_at = time.monotonic()
            await mirror.stop_mirroring()
            await asyncio.sleep(3 * HOLD_S)
            return asked_at

    with ExitStack() as stack:
        clients = [Writing(a.bootstrap, topic, f"{topic}-{n}") for n in range(3)]
        for client in clients:
            stack.enter_context(client)
            time.sleep(HOLD_S / 3)
        asked_at = asyncio.run(body())
    there = [set(committed(b.bootstrap, topic, partition)) for partition in range(PARTITIONS)]
    due = {tag for client in clients for tag, at in client.begun.items() if at < asked_at and tag in client.committed}
    last = {max((tag for tag in client.begun if tag in due), key=lambda tag: client.begun[tag]) for client in clients}
    after = [tag for client in clients for tag in last if client.committed.get(tag, 0) > asked_at]
    assert after, "no transaction was open at the stop"
    assert [sorted(due - seen) for seen in there] == [[], []]


@pytest.mark.parametrize(
    ("switches", "ends_as_on_the_source"),
    [({}, True), ({"stop_at": "carried"}, False), ({"fetch_limit": "last_stable"}, False)],
    ids=["strict", "carried", "last_stable"],
)
def test_a_committed_transaction_with_its_marker_above_an_open_one(
    pair: RunningTopology, topic: str, switches: dict[str, str], ends_as_on_the_source: bool
) -> None:
    """`before` begins, `open` begins and stays open, the stop is requested, `before` commits on A."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)
    before, open_one = (Client(a.bootstrap, topic, f"{topic}-{name}") for name in ("before", "open"))
    before.begin("x")
    open_one.begin("y")

    async def body() -> None:
        async with running(pair, design=design(pid_reset_record="off", **switches), finish_s=2.0) as mirror:
            await mirror.begin(topic)
            await mirror.until_at(0 if "fetch_limit" in switches else 2)
            if "fetch_limit" in switches:
                await asyncio.to_thread(before.commit)
                await mirror.until_at(1)  # the first record of `open`, above that of `before`, below its marker
                await mirror.stop_mirroring()
                return
            await mirror.ask(S.STOPPING)
            await asyncio.sleep(0.5 if ends_as_on_the_source else 0)
            if not ends_as_on_the_source:
                await mirror.until_state(S.STOPPED)
            await asyncio.to_thread(before.commit)
            await mirror.until_state(S.STOPPED)

    asyncio.run(body())
    expected = [f"{topic}-before/x"] if ends_as_on_the_source else []
    assert committed(b.bootstrap, topic) == expected
    assert f"{topic}-before/x" in committed_on_source(pair, topic, open_one)


def committed_on_source(pair: RunningTopology, topic: str, open_one: Client) -> list[str]:
    open_one.abort()
    return committed(pair.clusters["A"].bootstrap, topic)


def test_a_stop_does_not_wait_long_for_a_source_that_does_not_answer(pair: RunningTopology, topic: str) -> None:
    """Mirrored records stay, their open transactions are aborted, and the stop takes seconds."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)
    client = Client(a.bootstrap, topic, topic)
    client.begin("whole")
    client.commit()
    client.begin("open")

    async def body() -> float:
        async with running(pair, design=design(pid_reset_record="off")) as mirror:
            await mirror.begin(topic)
            await mirror.until_at(3)
            for link in pair.links.values():
                await asyncio.to_thread(link.cut, "black_hole")
            asked_at = time.monotonic()
            await mirror.stop_mirroring()
            return time.monotonic() - asked_at

    try:
        seconds = asyncio.run(body())
    finally:
        for link in pair.links.values():
            link.heal()
    client.commit()
    assert seconds < 15
    assert committed(b.bootstrap, topic) == [f"{topic}/whole"]
    logs = asyncio.run(replica_logs(b.bootstrap, topic))
    assert {len(log) for log in logs.values()} == {4}
