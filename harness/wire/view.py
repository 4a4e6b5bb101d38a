"""Bounded snapshots of a cluster's partitions: metadata with leader epochs, and every replica's log ends.

Kafka's ListOffsets request with replica id -2 (its "debugging consumer") is answered by followers too, with the log
end offset instead of the high watermark. Requests to leaders carry the leader epoch, so that an answer never
belongs to another epoch than the one it is stored with: a broker at another epoch refuses.

It cannot see: a replica whose broker does not answer in time, and epochs that began and ended between two snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from harness.wire.client import WireClient, WireError

TopicPartition = tuple[str, int]

CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, kw_only=True)
class PartitionView:
    """One partition in one broker's metadata. `leader` is -1 when there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    topic_id: str


@dataclass(frozen=True, kw_only=True)
class MetadataView:
    """Brokers (id → host, port) and the partitions of the topics that were asked for and exist."""

    brokers: Mapping[int, tuple[str, int]]
    partitions: tuple[PartitionView, ...]


class ClusterView:
    """Bounded snapshots of one cluster through one of its listeners. One thread per object.

    bootstrap: `host:port,host:port`. timeout_s: of each request; a broker that did not answer is left out for the
    rest of a `metadata` round, so that a snapshot takes at most about one time-out per silent broker.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 1.5) -> None:
        self._timeout_s = timeout_s
        self._seeds = [_address(part) for part in bootstrap.split(",") if part.strip()]
        self._clients: dict[tuple[str, int], WireClient] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    def metadata(self, topics: Iterable[str]) -> MetadataView:
        """Ask the brokers one after the other until one answers. Topics that do not exist are left out.

        Raises: WireError when none answers.
        """
        request = metadata.MetadataRequest(
            topics=tuple(metadata.MetadataRequestTopic(topic_id=None, name=TopicName(t)) for t in sorted(set(topics))),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        failures = []
        for address in dict.fromkeys([*self._brokers.values(), *self._seeds]):
            try:
                answer = self._client(address).call(request)
            except WireError as error:
                failures.append(str(error))
                continue
            self._brokers = {int(b.node_id): (str(b.host), int(b.port)) for b in answer.brokers}
            self._seeds.sort(key=lambda seed: seed != address)  # ask the one that answered first next time
            return MetadataView(brokers=dict(self._brokers), partitions=tuple(_partitions(answer)))
        raise WireError("no broker answered: " + "; ".join(failures))

    def offsets(
        self,
        broker: int,
        epochs: Mapping[TopicPartition, int],
        *,
        timestamp: int,
        replica_id: int = CONSUMER,
        read_committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """ListOffsets at one broker: partition → offset, without those that it refused.

        epochs: partition → required leader epoch, -1 for any. timestamp: EARLIEST or LATEST. With replica id
        CONSUMER, LATEST is the high watermark (read_committed: the last stable offset); with DEBUGGING_REPLICA it
        is this replica's log end. Raises: WireError when the broker is unknown or does not answer.
        """
        address = self._brokers.get(broker)
        if address is None:
            raise WireError(f"broker {broker} is not in the metadata")
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), epoch in epochs.items():
            by_topic.setdefault(topic, []).append(
                list_offsets.ListOffsetsPartition(
                    partition_index=i32(partition), current_leader_epoch=i32(epoch), timestamp=i64(timestamp)
                )
            )
        request = list_offsets.ListOffsetsRequest(
            replica_id=BrokerId(replica_id),
            isolation_level=i8(1 if read_committed else 0),
            topics=tuple(
                list_offsets.ListOffsetsTopic(name=TopicName(t), partitions=tuple(p)) for t, p in by_topic.items()
            ),
        )
        answer = self._client(address).call(request)
        return {
            (str(topic.name), int(part.partition_index)): int(part.offset)
            for topic in answer.topics
            for part in topic.partitions
            if part.error_code is ErrorCode.none and part.offset >= 0
        }

    def leader_ends(self, topics: Iterable[str], *, read_committed: bool = False) -> dict[TopicPartition, int | None]:
        """High watermarks (or last stable offsets) of all partitions of these topics; None where no leader answered.

        Raises: WireError when no broker answers at all.
        """
        view = self.metadata(topics)
        ends: dict[TopicPartition, int | None] = {(p.topic, p.partition): None for p in view.partitions}
        for leader, epochs in by_leader(view.partitions).items():
            try:
                ends.update(self.offsets(leader, epochs, timestamp=LATEST, read_committed=read_committed))
            except WireError:
                continue
        return ends

    def ask_all(self, request: Any) -> tuple[list[Any], list[str]]:
        """One request to every broker of the cluster: (the answers that came, why others did not).

        Raises: WireError when no broker answers with the list of brokers.
        """
        answers, failures = [], []
        for address in self.metadata(()).brokers.values():
            try:
                answers.append(self._client(address).call(request))
            except WireError as error:
                failures.append(str(error))
        return answers, failures

    def ask_any(self, request: Any) -> Any:
        """One request to one broker after the other until one answers. Raises: WireError naming each failure."""
        failures = []
        for address in dict.fromkeys([*self._seeds, *self._brokers.values()]):
            try:
                return self._client(address).call(request)
            except WireError as error:
                failures.append(str(error))
        raise WireError("no broker answered: " + "; ".join(failures))

    def close(self) -> None:
        """Drop all connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, address: tuple[str, int]) -> WireClient:
        if address not in self._clients:
            self._clients[address] = WireClient(*address, timeout_s=self._timeout_s)
        return self._clients[address]


def by_leader(partitions: Iterable[PartitionView]) -> dict[int, dict[TopicPartition, int]]:
    """Leader → its partitions with their leader epochs; partitions without leader are left out."""
    leaders: dict[int, dict[TopicPartition, int]] = {}
    for p in partitions:
        if p.leader >= 0:
            leaders.setdefault(p.leader, {})[(p.topic, p.partition)] = p.leader_epoch
    return leaders


def _partitions(answer: Any) -> Iterable[PartitionView]:
    for topic in answer.topics:
        if topic.error_code is not ErrorCode.none:
            continue
        for part in topic.partitions:
            yield PartitionView(
                topic=str(topic.name),
                partition=int(part.partition_index),
                leader=int(part.leader_id),
                leader_epoch=int(part.leader_epoch),
                replicas=tuple(int(n) for n in part.replica_nodes),
                isr=tuple(int(n) for n in part.isr_nodes),
                topic_id=str(topic.topic_id),
            )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise WireError(f"bootstrap server {text.strip()!r} is not HOST:PORT")
    return host, int(port)
