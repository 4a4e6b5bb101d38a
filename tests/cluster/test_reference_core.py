"""The reference mirror's data plane and life cycle on real clusters, checked by the replicas' raw batches."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from harness.clusters.pair import RunningTopology
from harness.core.internal_topics import INTERNAL_TOPICS
from harness.wire.batch_headers import headers
from harness.wire.cluster import Cluster
from mirrors.reference.server.destination import elect_preferred, producers, reassign_replicas
from mirrors.reference.server.following import epoch_lists
from mirrors.reference.server.states import PartitionState as S
from tests.cluster.reference_run import (
    Mirror,
    again,
    design,
    identical,
    replica_logs,
    running,
    until,
)
from tests.cluster.unclean_source import UncleanSource

READ_ONLY = 44  # POLICY_VIOLATION
OPEN_MS = 600_000  # transaction timeout, long enough for a busy machine


def write(
    bootstrap: str, topic: str, count: int, *, partitions: int = 1, tag: str = "v", **config: str | bool
) -> list[object]:
    """Acknowledged by all replicas; returns the errors."""
    errors: list[object] = []
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 15000, **config}
    producer = Producer(settings)
    for n in range(count):
        producer.produce(
            topic,
            f"{tag}{n}".encode(),
            partition=n % partitions,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    return errors


class Transactions:
    """A transactional producer of A with one transaction committed, one aborted, one open."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"x-{topic}", "transaction.timeout.ms": OPEN_MS}
        )
        self._producer.init_transactions(20)
        for end in (self._producer.commit_transaction, self._producer.abort_transaction):
            self._begin(end.__name__)
            end(20)
        self._begin("open")

    def _begin(self, tag: str) -> None:
        self._producer.begin_transaction()
        for n in range(3):
            self._producer.produce(self._topic, f"{tag}{n}".encode(), partition=0)
        self._producer.flush(20)

    def end(self) -> None:
        self._producer.abort_transaction(20)


TRANSACTIONS_BEFORE_OPEN, TRANSACTIONS_ALL = 8, 11  # offsets: two of three records and a marker, then three records


def committed(bootstrap: str, topic: str) -> tuple[list[str], int]:
    """(values that a read_committed consumer gets, last stable offset)"""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                break  # the end of the partition
            found.append(message.value().decode())
        stable = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    finally:
        consumer.close()
    return found, stable


def offsets(bootstrap: str, topic: str, partitions: int) -> list[dict[int, int]]:
    """Partition → first offset, last stable offset, first offset at or after the epoch: one request for each."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    found = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.for_timestamp(1)):
        asked = {TopicPartition(topic, p): spec for p in range(partitions)}
        answers = client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10)
        found.append({place.partition: answer.result(10).offset for place, answer in answers.items()})
    return found


async def in_thread(call: Callable[..., object], *arguments: object, **named: object) -> object:
    return await asyncio.to_thread(call, *arguments, **named)


def test_offsets_of_all_partitions_are_the_source_s(pair: RunningTopology, topic: str) -> None:
    """Also those of a user's topic whose name begins as Kafka's own do."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    users = f"__orders-{topic}"
    for name in (topic, users):
        a.create_topic(name, partitions=6, replication=3)
        write(a.bootstrap, name, 60, partitions=6)
    assert users in a.topics()
    assert "__transaction_state" not in a.topics()

    async def body() -> None:
        async with running(pair) as mirror:
            found = {one.name for one in await mirror.process.mirrors.discover(mirror.name)}
            assert found & {users, *INTERNAL_TOPICS} == {users}
            await mirror.begin(users)
            await mirror.begin(topic)
            open_one = await asyncio.to_thread(Transactions, a.bootstrap, topic)
            expected = {name: await asyncio.to_thread(offsets, a.bootstrap, name, 6) for name in (topic, users)}
            assert expected[users][1] == dict.fromkeys(range(6), 10)
            assert expected[topic][1] == {0: 10 + TRANSACTIONS_BEFORE_OPEN, **dict.fromkeys(range(1, 6), 10)}
            deadline = time.monotonic() + 20
            for name, there in expected.items():
                while (seen := await asyncio.to_thread(offsets, b.bootstrap, name, 6)) != there:
                    assert time.monotonic() < deadline, (
                        seen
                    )  # followers learn of a high watermark with their next fetch
            await asyncio.to_thread(open_one.end)
            assert users in b.topics()
            assert "__mirror_state" not in b.topics()
            assert "__mirror_state" in b.topics(internal=True)

    asyncio.run(body())


def test_failover_and_failback_keep_both_logs_byte_identical(pair: RunningTopology, topic: str) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=3, replication=3)
    write(a.bootstrap, topic, 300, partitions=3, **{"enable.idempotence": True})

    async def body() -> None:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            open_one = await asyncio.to_thread(Transactions, a.bootstrap, topic)
            await mirror.until_at(100 + TRANSACTIONS_ALL)
            await identical_below_open(topic)
            errors = await in_thread(write, b.bootstrap, topic, 1)
            assert [error.code() for error in errors] == [READ_ONLY]  # type: ignore[attr-defined]
            values, stable = await asyncio.to_thread(committed, b.bootstrap, topic)
            assert (len(values), stable) == (103, 100 + TRANSACTIONS_BEFORE_OPEN)
            await mirror.stop_mirroring()
            assert [mirror.record(p).last_mirrored for p in range(3)] == [100 + TRANSACTIONS_ALL, 100, 100]
        assert await in_thread(write, b.bootstrap, topic, 30, partitions=3, tag="b") == []
        await asyncio.to_thread(open_one.end)
        assert await in_thread(write, a.bootstrap, topic, 60, partitions=3, tag="lost") == []
        async with running(pair, "B", "A") as back:
            await back.begin(topic)
            await identical(pair, topic, (0, 1, 2), batches_at_least=3)
            values, _ = await asyncio.to_thread(committed, a.bootstrap, topic)
            assert [v for v in values if v.startswith("lost")] == []
            assert len([v for v in values if v.startswith("b")]) == 10
            await back.stop_mirroring()
        assert await in_thread(write, a.bootstrap, topic, 3, partitions=3) == []

    async def identical_below_open(name: str) -> None:
        ours = await replica_logs(b.bootstrap, name)
        theirs = await replica_logs(a.bootstrap, name)
        for log in ours.values():
            assert log == next(iter(theirs.values()))[: len(log)]

    asyncio.run(body())


def test_a_killed_follower_leaves_the_in_sync_set_and_comes_back(pair: RunningTopology, topic: str) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)

    async def body() -> None:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            await in_thread(write, a.bootstrap, topic, 50)
            await mirror.until_at(50)
            b.brokers[2].kill()
            await in_thread(write, a.bootstrap, topic, 50)
            await mirror.until_at(100)  # once it has left
            assert 2 not in mirror.led().isr
            b.brokers[2].start()
            await until(lambda: 2 in mirror.led().isr, 40, lambda: f"broker 2 in {mirror.led().isr}")
            await identical(pair, topic)
            await mirror.stop_mirroring()

    asyncio.run(body())


def test_a_failed_partition_is_restarted_though_its_fetch_sessions_are_idle(pair: RunningTopology, topic: str) -> None:
    a = pair.clusters["A"]
    a.create_topic(topic, partitions=2, replication=3)
    write(a.bootstrap, topic, 100, partitions=2)

    async def body() -> None:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            for partition in (0, 1):
                await mirror.until_at(50, partition)
            epoch = mirror.led(0).leader_epoch
            failed = mirror.process.lifecycle.mirrored(mirror.keys[0])
            assert failed is not None
            await mirror.process.lifecycle.fail(failed, "for a test")
            await in_thread(write, a.bootstrap, topic, 20, partitions=2)
            await mirror.until_at(60, 1)
            assert mirror.led(0).high_watermark == 50
            await mirror.begin(topic)  # the leader is the same, so followers leave the partition out of their fetches
            await mirror.until_at(60)
            assert mirror.led(0).leader_epoch > epoch  # it was truncated: in a new epoch
            await identical(pair, topic, (0, 1))
            await mirror.stop_mirroring()

    asyncio.run(body())


def test_a_killed_process_resumes_at_the_log_end(pair: RunningTopology, topic: str, tmp_path: Path) -> None:
    a = pair.clusters["A"]
    a.create_topic(topic, partitions=2, replication=3)
    write(a.bootstrap, topic, 100, partitions=2)

    async def begin() -> Mirror:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            await mirror.until_at(50)
            return mirror

    first = asyncio.run(begin())
    config = tmp_path / "mirror.json"
    config.write_text(json.dumps(first.values))
    command = [sys.executable, "-m", "mirrors.reference.server", str(config)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            write(a.bootstrap, topic, 100, partitions=2)
            asyncio.run(_followers_have(pair, topic, 100))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    write(a.bootstrap, topic, 100, partitions=2)

    async def go_on() -> None:
        async with again(first) as mirror:
            for partition in (0, 1):
                await mirror.until_at(150, partition)
            await identical(pair, topic, (0, 1), batches_at_least=3)
            await mirror.stop_mirroring()

    asyncio.run(go_on())


async def _followers_have(pair: RunningTopology, topic: str, records: int) -> None:
    for _ in range(120):
        logs = await replica_logs(pair.clusters["B"].bootstrap, topic)
        if all(log and next(headers(log[-1])).next_offset == records for log in logs.values()):
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"B has {[len(log) for log in logs.values()]} batches, not {records} records")


@pytest.mark.parametrize(
    "step", ["prepare.led", "stop.offset_stored", "stop.transactions", "stop.tail_leveled", "stop.reassigned"]
)
def test_a_process_killed_at_a_step_resumes_it(pair: RunningTopology, topic: str, step: str) -> None:
    """With a transaction open at the stop: its marker is written once, and so is the reset record."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)
    open_one = Transactions(a.bootstrap, topic)

    async def body() -> None:
        async with running(pair, design=design(fetch_limit="high_watermark")) as mirror:
            mirror.process.crash.at = step
            if step.startswith("prepare"):
                beginning = asyncio.create_task(mirror.begin(topic))
                await asyncio.wait_for(mirror.killed.wait(), 30)
                beginning.cancel()
            else:
                await mirror.begin(topic)
                await mirror.until_at(TRANSACTIONS_ALL)
                await mirror.ask(S.STOPPING)
                await asyncio.wait_for(mirror.killed.wait(), 30)
        async with again(mirror) as resumed:
            if step.startswith("prepare"):
                await resumed.until_at(TRANSACTIONS_ALL)
                await resumed.ask(S.STOPPING)
            await resumed.until_state(S.STOPPED)
            assert resumed.record().last_mirrored == TRANSACTIONS_ALL
        assert await in_thread(write, b.bootstrap, topic, 1, tag="b") == []
        logs = await replica_logs(b.bootstrap, topic)
        ends = [(h.base_offset, h.control, h.transactional) for batch in logs[1] for h in headers(batch)][-3:]
        assert ends == [(11, True, True), (12, True, False), (13, False, False)]
        values, stable = await asyncio.to_thread(committed, b.bootstrap, topic)
        assert [v for v in values if v.startswith(("open", "abort"))] == []
        assert stable == 14

    asyncio.run(body())
    open_one.end()


@pytest.mark.parametrize(
    ("switches", "last_mirrored", "open_on_destination", "read", "stable"),
    [
        ({"on_stop": "abort_open_transactions"}, TRANSACTIONS_ALL, 0, 3, 12),
        ({"on_stop": "truncate_to_last_stable"}, TRANSACTIONS_BEFORE_OPEN, 0, 3, 8),
        ({"on_stop": "nothing"}, TRANSACTIONS_ALL, 1, 3, 8),
        ({"on_stop": "nothing", "producer_ids": "negated"}, TRANSACTIONS_ALL, 0, 9, 11),
    ],
    ids=["abort", "truncate", "nothing", "negated"],
)
def test_what_a_stop_does_with_an_open_transaction(
    pair: RunningTopology,
    topic: str,
    switches: dict[str, str],
    last_mirrored: int,
    open_on_destination: int,
    read: int,
    stable: int,
) -> None:
    """Brokers keep no producer state for negated ids: a read_committed consumer reads aborted and open records."""
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)
    open_one = Transactions(a.bootstrap, topic)

    async def body() -> None:
        chosen = design(fetch_limit="high_watermark", pid_reset_record="off", **switches)
        async with running(pair, design=chosen) as mirror:
            await mirror.begin(topic)
            await mirror.until_at(TRANSACTIONS_ALL)
            await mirror.stop_mirroring()
            assert mirror.record().last_mirrored == last_mirrored
        cluster = Cluster(b.bootstrap)
        leader = (await cluster.metadata((topic,))).topics[topic].partitions[0].leader
        assert leader is not None
        known = await producers(cluster, leader, (topic, 0))
        cluster.close()
        assert len([one for one in known if one.open_since >= 0]) == open_on_destination
        values, end = await asyncio.to_thread(committed, b.bootstrap, topic)
        assert (len(values), end) == (read, stable)

    asyncio.run(body())
    open_one.end()


@pytest.mark.parametrize(("bump", "arrives"), [("none", False), ("reactive", True)])
def test_preserved_epochs_arrive_only_below_the_leader_epoch(
    pair: RunningTopology, topic: str, bump: str, arrives: bool
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)

    async def raise_source_epoch() -> int:
        cluster = Cluster(a.bootstrap)
        found = 0
        for n in range(40):
            replicas = [(n + k) % 3 + 1 for k in range(3)]
            await reassign_replicas(cluster, {(topic, 0): replicas})
            await elect_preferred(cluster, [(topic, 0)])
            await asyncio.sleep(0.2)
            found = (await cluster.metadata((topic,))).topics[topic].partitions[0].leader_epoch
            if found >= 2:
                break
        cluster.close()
        return found

    async def body() -> None:
        source_epoch = await raise_source_epoch()
        assert source_epoch >= 2
        await in_thread(write, a.bootstrap, topic, 10)
        chosen = design(leader_epoch="preserve", epoch_bump=bump)
        async with running(pair, design=chosen, drain_s=0.5) as mirror:
            await mirror.begin(topic)
            if arrives:
                await mirror.until_at(10)
                assert mirror.led().leader_epoch >= source_epoch
            else:
                await asyncio.sleep(2)
                assert mirror.led().high_watermark == 0
            await mirror.stop_mirroring()
        if not arrives:
            return
        cluster = Cluster(b.bootstrap)
        part = (await cluster.metadata((topic,))).topics[topic].partitions[0]
        assert part.leader is not None
        epochs, _ = (await epoch_lists(cluster, part.leader, {(topic, 0): part.leader_epoch}))[topic, 0]
        cluster.close()
        assert epochs.at(0) == source_epoch

    asyncio.run(body())


def test_followers_restart_at_the_source_log_start(pair: RunningTopology, topic: str) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3)
    write(a.bootstrap, topic, 100)

    async def body() -> None:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            await mirror.until_at(100)
            await mirror.ask(S.PAUSING)
            await mirror.until_state(S.PAUSED)
            for _ in range(2):
                await in_thread(write, a.bootstrap, topic, 100)
            a.admin().delete_records([TopicPartition(topic, 0, 200)])[TopicPartition(topic, 0)].result(20)
            assert mirror.led().high_watermark == 100
            await mirror.ask(S.MIRRORING)
            await mirror.until_at(300)
            assert mirror.led().log_start == 200
            await _followers_have(pair, topic, 300)
            logs = await replica_logs(b.bootstrap, topic)
            assert [next(headers(log[0])).base_offset for log in logs.values()] == [200, 200, 200]
            await mirror.stop_mirroring()

    asyncio.run(body())


def test_an_unclean_election_on_the_source_is_followed(pair: RunningTopology, topic: str) -> None:
    a = pair.clusters["A"]
    UncleanSource.topic_of(a, topic)
    source = UncleanSource(a, topic)

    async def body() -> None:
        async with running(pair) as mirror:
            await mirror.begin(topic)
            for _ in range(2):
                await in_thread(write, a.bootstrap, topic, 50)
            await mirror.until_at(100)
            await in_thread(source.leave_alone)
            await in_thread(write, a.bootstrap, topic, 40, tag="lost")
            await mirror.until_at(140)
            await in_thread(source.elect)
            await in_thread(write, a.bootstrap, topic, 20, tag="new")
            await mirror.until_at(120, timeout_s=60)
            await in_thread(source.heal)
            await identical(pair, topic, batches_at_least=3)
            await mirror.stop_mirroring()

    asyncio.run(body())


def test_another_process_takes_over_from_one_that_died(pair: RunningTopology, topic: str) -> None:
    a = pair.clusters["A"]
    a.create_topic(topic, partitions=6, replication=3)
    write(a.bootstrap, topic, 60, partitions=6)

    async def body() -> None:
        async with running(pair) as one, running(pair, broker_id=101) as two:
            await until(lambda: one.process.peers.live() == {100, 101}, 10, lambda: str(one.process.peers.live()))
            for mirror in (one, two):
                (found,) = [t for t in await mirror.process.mirrors.discover(mirror.name) if t.name == topic]
                await mirror.process.mirrors.add_topic(mirror.name, found)
            shares = [
                {k for k, r in m.process.lifecycle.records.items() if k.topic == topic and r.owner == m.process.hub.me}
                for m in (one, two)
            ]
            assert all(shares)
            assert len(shares[0] | shares[1]) == 6
            assert not shares[0] & shares[1]
            two.keys = sorted(shares[1])
            for n in range(len(two.keys)):
                await two.until_at(10, n)
            await one.process.stop()
            two.keys = sorted(shares[0] | shares[1])
            await in_thread(write, a.bootstrap, topic, 60, partitions=6)
            for n in range(6):
                await two.until_at(20, n)
            await identical(pair, topic, range(6))
            await two.stop_mirroring()

    asyncio.run(body())
