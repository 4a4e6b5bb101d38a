"""Shared by tests of mirrors: a mirror on the session's pair that leaves nothing behind; writing and reading."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import RunningTopology
from harness.topology.mirror import Mirror
from mirrors import REGISTRY, MirrorContext, MirrorSettings
from mirrors.site import TopologySite


@contextlib.contextmanager
def mm2(
    pair: RunningTopology,
    images: ImageSet,
    topics: Sequence[str],
    *,
    contract: str = "mm2-exactly-once",
    mirror_nodes: int = 1,
    options: Mapping[str, str] | None = None,
) -> Iterator[Mirror]:
    """MirrorMaker 2 from A to B, started on these topics; afterwards its containers and topics are deleted."""
    settings = MirrorSettings(contract=contract, options=options or {}, mirror_nodes=mirror_nodes)
    REGISTRY["mm2"].check(settings, topics)
    mirror = REGISTRY["mm2"].make(
        MirrorContext(
            source=pair.clusters["A"],
            destination=pair.clusters["B"],
            site=TopologySite(pair, image=images.mirror, entry_point=images.entry_point),
            settings=settings,
        )
    )
    pair.mirrors, pair.test_topics = [mirror], list(topics)
    try:
        mirror.start(topics)
        yield mirror
    finally:
        pair.mirrors, pair.test_topics = (), ()
        mirror.close()
        for node in mirror.nodes():
            pair.discard(node.name)
        forget(pair, topics)


def forget(pair: RunningTopology, topics: Sequence[str]) -> None:
    """Delete the test's topics everywhere, and MM2's own, so that the next mirror starts from scratch."""
    for cluster in pair.clusters.values():
        there = [t for t in cluster.topics(internal=True) if t.removeprefix("A.") in topics or t.endswith(".internal")]
        if there:
            for future in cluster.admin().delete_topics(there, operation_timeout=20).values():
                future.result(30)


def write(bootstrap: str, topic: str, values: Sequence[str], *, partition: int = 0) -> None:
    """Write outside transactions, each acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    failed: list[Any] = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []


def transaction(bootstrap: str, topic: str, values: Sequence[str], *, commit: bool, partition: int = 0) -> None:
    """Write in one transaction and end it. Flushed first: an abort drops what is still queued."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def values(
    bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed", start: int = 0
) -> list[str]:
    """Everything in a partition from an offset to its end, without probes."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        deadline = time.monotonic() + 30
        while True:
            assert time.monotonic() < deadline, f"the end of {topic}-{partition} was not reached"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return [value for value in found if not value.startswith("probe:")]
            found.append(message.value().decode())
    finally:
        consumer.close()
