"""Shared by faults that make the source lose records which its mirror has not read: the link is cut meanwhile.

The source's log when the cut was proven is the most that a mirror can have; later records are out of its reach until
the link is healed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from harness.core.errors import ClusterError, FaultError
from harness.topology.clusters import Cluster, Link
from harness.wire.batch_headers import headers
from harness.wire.metadata import PartitionMeta
from nemeses.base import Bite, FaultContext, FaultSpec, Injected, Nemesis, NemesisKind, Shape, Target
from nemeses.support.direct import ask, high_watermark
from nemeses.support.link_targets import await_link, reserve_link

SOURCE: Final = "A"
HEAL_S: Final = 15.0
_FETCH_BYTES: Final = 4 * 1024 * 1024
_AT_ONCE: Final = i32Timedelta.parse(datetime.timedelta(milliseconds=100))


@dataclass(frozen=True, kw_only=True)
class CutOff:
    """A source whose mirror cannot read. reach: partition → its high watermark after the cut was proven."""

    cluster: Cluster
    link: Link
    passed: Sequence[int]
    target: str
    reach: Mapping[tuple[str, int], int]

    def partitions(self) -> list[PartitionMeta]:
        """The partitions of the test's topics that have a leader now."""
        topics = {topic for topic, _ in self.reach}
        found = [info for topic in sorted(topics) for info in self.cluster.partitions(topic)]
        return [info for info in found if info.leader is not None and (info.topic, info.partition) in self.reach]

    def injected(self, spec: FaultSpec, bite: Bite) -> Injected:
        """The live fault."""
        return Injected(spec=spec, target=self.target, nodes=[], bite=bite, state={"cut_off": self})


def cut_off(context: FaultContext, spec: FaultSpec) -> CutOff:
    """Cut the mirror's link to the source, and find out how far the mirror can have got.

    Raises: FaultSkippedError; FaultError when requests still pass.
    """
    link, brokers, target = reserve_link(context, spec)
    passed = [broker for broker in brokers if link.passes(broker)]
    context.undo.push(f"heal the link to {link.cluster}", link.heal)
    context.began(target, dict(spec.params))
    link.cut("down")
    still = [broker for broker in brokers if link.passes(broker)]
    if still:
        raise FaultError(f"the link to {link.cluster} is cut, and requests still pass to broker {still[0]}")
    cluster = context.topology.clusters[link.cluster]
    infos = [info for topic in context.topology.test_topics for info in cluster.partitions(topic)]
    reach = {(i.topic, i.partition): high_watermark(cluster, i) for i in infos if i.leader is not None}
    return CutOff(cluster=cluster, link=link, passed=passed, target=target, reach=reach)


class SourceCutOff(Nemesis):
    """What those nemeses have in common; each brings its name, description, timing, `available` and `inject`."""

    name: str
    kind: NemesisKind = "link"
    clusters: tuple[str, ...] = ("link",)
    roles: tuple[str, ...] = ("all",)

    def targets(self, shape: Shape) -> Sequence[Target]:
        """The source of the first mirror; nothing if no link leads to it through the proxy."""
        reachable = shape.links is None or SOURCE in shape.links
        return (Target(SOURCE, self.roles[0]),) if SOURCE in shape.brokers and reachable else ()

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Nothing to choose; the draw makes the schedules of different seeds differ."""
        return {"link": target.cluster, "pick": rng.randrange(1_000_000)}

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Heal the link, and wait until requests pass where they passed before; what the source lost stays lost."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        cut: CutOff = injected.state["cut_off"]
        return await_link(context, cut.link, cut.passed, timeout_s=HEAL_S)


def first_gap(cluster: Cluster, info: PartitionMeta, offset: int) -> tuple[int, int] | None:
    """The first gap (first, last) at or after `offset` in the leader's log; None without one.

    Raises: ClusterError.
    """
    part = FetchPartition(
        partition=i32(info.partition), fetch_offset=i64(offset), partition_max_bytes=i32(_FETCH_BYTES)
    )
    message = FetchRequest(
        max_wait=_AT_ONCE,
        min_bytes=i32(0),
        max_bytes=i32(_FETCH_BYTES),
        topics=(FetchTopic(topic=TopicName(info.topic), partitions=(part,)),),
        forgotten_topics_data=(),
    )
    if info.leader is None:
        raise ClusterError(f"{info.topic}-{info.partition} on cluster {cluster.name} has no leader")
    found = ask(cluster, info.leader, message).responses[0].partitions[0]
    if found.error_code is not ErrorCode.none:
        raise ClusterError(
            f"{info.topic}-{info.partition} on cluster {cluster.name} cannot be read: {found.error_code.name}"
        )
    return gap_in(bytes(found.records or b""), offset)


def gap_in(records: bytes, offset: int) -> tuple[int, int] | None:
    """The same for batches as a broker sends them."""
    due = offset
    for batch in headers(records):
        if batch.base_offset > due:
            return due, batch.base_offset - 1
        if batch.records_count < batch.last_offset - batch.base_offset + 1:
            return batch.base_offset, batch.last_offset
        due = batch.next_offset
    return None


def names(partitions: Mapping[tuple[str, int], Any]) -> str:
    """The partitions as `topic-0 VALUE`, comma-separated."""
    return ", ".join(f"{topic}-{partition} {what}" for (topic, partition), what in sorted(partitions.items()))
