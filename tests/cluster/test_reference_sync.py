"""The reference mirror's control side on real clusters with an authorizer: API, groups, configurations, ACLs, state.

The process runs on this host; its effects are checked with Kafka's own clients and raw requests.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.admin import NewPartitions

from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import RunningTopology, start_topology
from harness.clusters.plan.topology import ClusterSpec, TopologySpec
from harness.run.cluster_config import AUTHORIZER
from harness.wire.acls import Binding, bindings_of, create_bindings, delete_bindings
from harness.wire.cluster import Cluster
from harness.wire.topic_configs import alter_topic, topic_configs
from mirrors.reference.driver.admin_client import AdminClient, EventKind, MirrorConfig, RefusedError
from mirrors.reference.server.design import StateKey
from mirrors.reference.server.group_wire import Committed, GroupKind, groups_of, offsets_of, write_offsets
from mirrors.reference.server.guard import MIN_ISR, deny_write
from mirrors.reference.server.state_store import StateStore
from tests.cluster.reference_run import PLAIN, Mirror, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

FAST: dict[str, Any] = {"group_sync_s": 0.3, "config_sync_s": 0.3, "acl_sync_s": 0.3, "discovery_s": 0.5}
NAME = "AB"


@pytest.fixture(scope="module")
def guarded(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTopology]:
    """A and B, one broker each, both with an authorizer for which all clients here are super users."""
    clusters = tuple(ClusterSpec(name=name, brokers=1, config=AUTHORIZER) for name in ("A", "B"))
    spec = TopologySpec(run_id=f"sync-{secrets.token_hex(4)}", images=images, clusters=clusters)
    with start_topology(spec, logs_dir=tmp_path_factory.mktemp("sync-logs")) as topology:
        yield topology


class Bench:
    """One process, its admin client, and both clusters. Blocking calls go to threads."""

    def __init__(self, pair: RunningTopology, mirror: Mirror) -> None:
        self.a, self.b = (Cluster(pair.clusters[name].bootstrap) for name in ("A", "B"))
        self.bootstrap_a, self.bootstrap_b = (pair.clusters[name].bootstrap for name in ("A", "B"))
        self.mirror = mirror
        self.client = AdminClient(f"http://127.0.0.1:{mirror.process.control.port}")

    async def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(call, *arguments)

    async def until_state(self, state: str, topic: str, partitions: int = 1) -> None:
        await self.until(lambda: self.rows_are(state, topic, partitions), f"{topic} to be {state}")

    async def rows_are(self, state: str, topic: str, partitions: int) -> bool:
        rows = [r for r in await self.ask(self.client.describe, NAME) if r.topic == topic]
        return len(rows) == partitions and all(r.state == state for r in rows)

    async def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while not await condition():
            assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
            await asyncio.sleep(0.1)

    async def offset(
        self, cluster: Cluster, group: str, topic: str, kind: GroupKind = GroupKind.CONSUMER
    ) -> int | None:
        found = (await groups_of(cluster)).found.get(group)
        if found is None:
            return None
        offsets = await offsets_of(cluster, [found])
        committed = offsets.get((group, kind), {}).get((topic, 0))
        return None if committed is None else committed.offset

    async def events(self, kind: EventKind) -> list[dict[str, Any]]:
        return [e.fields for e in (await self.ask(self.client.events)).events if e.kind is kind]

    async def config(self, cluster: Cluster, topic: str, name: str) -> str | None:
        return (await topic_configs(cluster, [topic])).get(topic, {}).get(name)


def on_bench(
    pair: RunningTopology,
    topic: str,
    body: Callable[[Bench], Any],
    *,
    mirror_values: dict[str, str] | None = None,
    **more: Any,
) -> None:
    """Run a body while a separate process mirrors the topic, then stop it."""

    async def whole() -> None:
        source = pair.clusters["A"].link_bootstrap
        config = MirrorConfig(name=NAME, source=source, **(mirror_values or {}))  # type: ignore[arg-type]
        async with running(pair, **{"mirrors": [config.to_json()], **FAST, **more}) as mirror:
            bench = Bench(pair, mirror)
            await bench.ask(bench.client.start, NAME, [topic])
            await bench.until_state("MIRRORING", topic)
            await body(bench)
            if not await bench.rows_are("STOPPED", topic, 1):
                await bench.ask(bench.client.stop, NAME)
                await bench.until(lambda: stopped(bench), "everything to be stopped")
            bench.a.close()
            bench.b.close()

    asyncio.run(whole())


async def stopped(bench: Bench) -> bool:
    return all(r.state in ("STOPPED", "FAILED") for r in await bench.ask(bench.client.describe, NAME))


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    """A consumer that is a member of a group and commits nothing by itself."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    deadline = time.monotonic() + 30
    while not assigned and time.monotonic() < deadline:
        consumer.poll(0.2)
    assert assigned
    try:
        yield consumer
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit as an administrator. A new cluster has no coordinator yet, so it is retried."""
    admin = KafkaAdmin({"bootstrap.servers": bootstrap})  # it must live until the response arrives
    deadline = time.monotonic() + 30
    while True:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        (done,) = admin.alter_consumer_group_offsets([wanted])[group].result(20).topic_partitions
        if done.error is None:
            return
        assert time.monotonic() < deadline, done.error
        time.sleep(0.2)


def test_groups(guarded: RunningTopology, topic: str, produce: Callable[..., None]) -> None:
    a = guarded.clusters["A"]
    a.create_topic(topic, partitions=1, replication=1)
    produce(a.bootstrap, topic, [b"%d" % n for n in range(20)])

    async def body(bench: Bench) -> None:
        await bench.ask(commit, bench.bootstrap_a, f"g-{topic}", topic, 7)
        await bench.ask(commit, bench.bootstrap_a, f"past-{topic}", topic, 500)
        await bench.ask(commit, bench.bootstrap_a, f"excluded-{topic}", topic, 3)
        await bench.until(lambda: at(bench, f"g-{topic}", 7), "the offset to be synced")
        await bench.until(lambda: at(bench, f"past-{topic}", 20), "the clamped offset")
        assert await bench.offset(bench.b, f"excluded-{topic}", topic) is None
        with member(bench.bootstrap_b, f"g-{topic}", topic):
            await bench.ask(commit, bench.bootstrap_a, f"g-{topic}", topic, 9)
            await asyncio.sleep(1.5)
            assert await at(bench, f"g-{topic}", 7)
        await bench.until(lambda: at(bench, f"g-{topic}", 9), "the offset once the group had no members")
        events = [e for e in await bench.events(EventKind.GROUP) if e["group"] == f"g-{topic}"]
        assert [(e["old"], e["offset"], e["source_offset"], e["members"]) for e in events] == [
            (None, 7, 7, 0),
            (7, 9, 9, 0),
        ]
        # The last sync is part of the stop; afterwards nothing is synced.
        await bench.ask(commit, bench.bootstrap_a, f"g-{topic}", topic, 11)
        await bench.ask(bench.client.stop, NAME, [topic])
        await bench.until_state("STOPPED", topic)
        assert await at(bench, f"g-{topic}", 11)
        await bench.ask(commit, bench.bootstrap_a, f"g-{topic}", topic, 12)
        await asyncio.sleep(1)
        assert await at(bench, f"g-{topic}", 11)

    async def at(bench: Bench, group: str, offset: int) -> bool:
        return await bench.offset(bench.b, group, topic) == offset

    on_bench(guarded, topic, body, mirror_values={"exclude_groups": "excluded-.*"})


def test_raw_offsets_of_active_groups_without_the_guard(
    guarded: RunningTopology, topic: str, produce: Callable[..., None]
) -> None:
    a = guarded.clusters["A"]
    a.create_topic(topic, partitions=1, replication=1)
    produce(a.bootstrap, topic, [b"x"] * 5)

    async def body(bench: Bench) -> None:
        with member(bench.bootstrap_b, f"g-{topic}", topic) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
            await bench.ask(commit, bench.bootstrap_a, f"g-{topic}", topic, 300)

            async def overwritten() -> bool:
                return await bench.offset(bench.b, f"g-{topic}", topic) == 300

            await bench.until(overwritten, "the active group to be overwritten")
        (event,) = [e for e in await bench.events(EventKind.GROUP) if e["group"] == f"g-{topic}"]
        assert (event["old"], event["offset"], event["members"]) == (4, 300, 1)

    on_bench(guarded, topic, body, design={**PLAIN, "group_guard": "none", "group_offsets": "raw"})


def test_share_groups(guarded: RunningTopology, topic: str, produce: Callable[..., None]) -> None:
    a = guarded.clusters["A"]
    a.create_topic(topic, partitions=1, replication=1)
    produce(a.bootstrap, topic, [b"x"] * 9)

    async def body(bench: Bench) -> None:
        group = f"s-{topic}"

        async def written() -> bool:  # a coordinator that has only just been made loads first
            return not await write_offsets(bench.a, group, GroupKind.SHARE, {(topic, 0): Committed(offset=6)})

        await bench.until(written, "the share group's start offset on A")

        async def carried() -> bool:
            return await bench.offset(bench.b, group, topic, GroupKind.SHARE) == 6

        await bench.until(carried, "the share group's start offset")

    on_bench(guarded, topic, body)


def test_configurations(guarded: RunningTopology, topic: str) -> None:
    a = guarded.clusters["A"]
    a.create_topic(topic, partitions=1, replication=1, config={"retention.ms": "86400000", "segment.ms": "60000"})

    async def body(bench: Bench) -> None:
        async def is_now(name: str, value: str | None) -> bool:
            return await bench.config(bench.b, topic, name) == value

        await bench.until(lambda: is_now("retention.ms", "86400000"), "retention.ms")
        await alter_topic(bench.a, topic, {"segment.ms": None, "max.message.bytes": "5000"})
        await bench.until(lambda: is_now("max.message.bytes", "5000"), "max.message.bytes")
        assert await is_now("segment.ms", None)
        await bench.ask(bench.client.stop, NAME, [topic])
        await bench.until_state("STOPPED", topic)
        await alter_topic(bench.a, topic, {"retention.ms": "1000"})
        await asyncio.sleep(1.5)
        assert await is_now("retention.ms", "86400000")
        events = [e for e in await bench.events(EventKind.CONFIG) if e["topic"] == topic]
        assert {(e["name"], e["old"], e["value"]) for e in events} >= {
            ("retention.ms", None, "86400000"),
            ("max.message.bytes", None, "5000"),
            ("segment.ms", "60000", None),
        }

    on_bench(guarded, topic, body)


def test_configurations_after_the_stop_where_the_design_wants_it(guarded: RunningTopology, topic: str) -> None:
    guarded.clusters["A"].create_topic(topic, partitions=1, replication=1)

    async def body(bench: Bench) -> None:
        await bench.ask(bench.client.stop, NAME, [topic])
        await bench.until_state("STOPPED", topic)
        await alter_topic(bench.a, topic, {"retention.ms": "1000"})

        async def reverted() -> bool:
            return await bench.config(bench.b, topic, "retention.ms") == "1000"

        await bench.until(reverted, "the old source's retention to arrive")

    on_bench(guarded, topic, body, design={**PLAIN, "config_sync_after_stop": "on"})


def rule(permission: str, principal: str, topic: str) -> Binding:
    return Binding(permission=permission, principal=principal, operation="READ", resource="TOPIC", name=topic)


def test_access_rules_and_the_guard(guarded: RunningTopology, topic: str) -> None:
    guarded.clusters["A"].create_topic(topic, partitions=1, replication=1)
    local, brought, outside = (
        rule("DENY", "User:local", topic),
        rule("ALLOW", "User:brought", topic),
        rule("ALLOW", "User:outside", topic),
    )

    async def body(bench: Bench) -> None:
        async def has(binding: Binding) -> bool:
            return binding in (await bindings_of(bench.b) or ())

        async def has_not(binding: Binding) -> bool:
            return not await has(binding)

        assert await has(deny_write(topic))
        await create_bindings(bench.b, [local])
        await create_bindings(bench.a, [brought, outside])
        await bench.until(lambda: has(brought), "the source's rule")
        await delete_bindings(bench.a, [brought])
        await bench.until(lambda: has_not(brought), "the mirrored rule to be deleted")
        assert await has(local)
        assert await has_not(outside)
        await bench.ask(bench.client.stop, NAME, [topic])
        await bench.until_state("STOPPED", topic)
        assert await has_not(deny_write(topic))
        await create_bindings(bench.a, [brought])
        await asyncio.sleep(1)
        assert await has_not(brought)
        await delete_bindings(bench.a, [brought, outside])
        await delete_bindings(bench.b, [local])

    on_bench(guarded, topic, body, mirror_values={"acls": ".* User:(local|brought) .*"})


def test_the_source_wins_over_local_rules_where_the_design_wants_it(guarded: RunningTopology, topic: str) -> None:
    guarded.clusters["A"].create_topic(topic, partitions=1, replication=1)
    local = rule("DENY", "User:local", topic)

    async def body(bench: Bench) -> None:
        await create_bindings(bench.b, [local])

        async def lost() -> bool:
            return local not in (await bindings_of(bench.b) or ())

        await bench.until(lost, "the local rule to be deleted")
        assert deny_write(topic) in (await bindings_of(bench.b) or ())
        events = [e for e in await bench.events(EventKind.ACL) if e["change"] == "delete"]
        assert local.line() in [e["binding"] for e in events]

    on_bench(guarded, topic, body, design={**PLAIN, "acl_sync": "source_wins"})


def test_new_partitions_appear_and_a_recreated_topic_fails(guarded: RunningTopology, topic: str) -> None:
    a = guarded.clusters["A"]
    a.create_topic(topic, partitions=1, replication=1)

    async def body(bench: Bench) -> None:
        admin = KafkaAdmin({"bootstrap.servers": bench.bootstrap_a})
        await bench.ask(lambda: admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20))
        await bench.until_state("MIRRORING", topic, partitions=3)
        await bench.ask(lambda: admin.delete_topics([topic])[topic].result(20))
        await bench.until_state("FAILED", topic, partitions=3)
        rows = [r for r in await bench.ask(bench.client.describe, NAME) if r.topic == topic]
        assert {r.error for r in rows} == {f"topic {topic} is not on the source any more"}

    on_bench(guarded, topic, body)


def test_states_are_stored_and_wrong_requests_change_nothing(guarded: RunningTopology, topic: str) -> None:
    guarded.clusters["A"].create_topic(topic, partitions=1, replication=1)

    async def body(bench: Bench) -> None:
        client = bench.client
        await bench.ask(client.pause, NAME, [topic])
        await bench.until_state("PAUSED", topic)
        with pytest.raises(RefusedError, match="is PAUSED, so it cannot be started") as refused:
            await bench.ask(client.start, NAME, [topic])
        assert refused.value.by_state
        with pytest.raises(RefusedError, match="so it cannot be deleted"):
            await bench.ask(client.delete, NAME)
        with pytest.raises(RefusedError, match="no mirror is called 'XY'; there are: AB"):
            await bench.ask(client.describe, "XY")
        assert await bench.rows_are("PAUSED", topic, 1)
        stored = await StateStore(bench.b, partitions=3, key=StateKey.MIRROR_TOPIC_PARTITION).read_records()
        assert [str(r.state) for k, r in stored.items() if k.topic == topic] == ["PAUSED"]
        await bench.ask(client.resume, NAME, [topic])
        await bench.until_state("MIRRORING", topic)
        assert [r.offset for r in await bench.ask(client.last_mirrored, NAME) if r.topic == topic] == [0]
        moves = [e["new"] for e in await bench.events(EventKind.STATE) if e["topic"] == topic]
        assert moves == ["PREPARING", "MIRRORING", "PAUSING", "PAUSED", "MIRRORING"]
        text = await bench.ask(client.metrics)
        assert 'partitions{state="MIRRORING"} 1' in text

    on_bench(guarded, topic, body)


def test_without_an_authorizer_a_dead_process_leaves_the_topic_read_only(
    pair: RunningTopology, topic: str, produce: Callable[..., None]
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    a.create_topic(topic, partitions=1, replication=3, config={MIN_ISR: "2"})

    async def body() -> None:
        async with running(pair, **FAST) as mirror:
            bench = Bench(pair, mirror)
            await bench.ask(bench.client.start, NAME, [topic])
            await bench.until_state("MIRRORING", topic)
            await bench.until(lambda: min_isr_is(bench, "4"), "min.insync.replicas to be 4")
        await bench.until(lambda: led_by_real_broker(bench), "a real broker to lead")
        with pytest.raises((KafkaException, AssertionError)):
            await asyncio.to_thread(produce, b.bootstrap, topic, [b"written while mirrored"])
        async with running(pair, **FAST) as mirror:
            bench = Bench(pair, mirror)
            await bench.until_state("MIRRORING", topic)
            await bench.ask(bench.client.stop, NAME, [topic])
            await bench.until_state("STOPPED", topic)
            await bench.until(lambda: min_isr_is(bench, "2"), "min.insync.replicas to be 2 again")
        await asyncio.to_thread(produce, b.bootstrap, topic, [b"written after the stop"])

    async def min_isr_is(bench: Bench, value: str) -> bool:  # brokers learn of a change one after the other
        return await bench.config(bench.b, topic, MIN_ISR) == value

    async def led_by_real_broker(bench: Bench) -> bool:
        leader = (await bench.b.metadata((topic,))).topics[topic].partitions[0].leader
        return leader is not None and leader < 100

    asyncio.run(body())
