"""Bounded snapshots of a cluster's partitions: metadata with leader epochs, and every replica's log ends.

Kafka's ListOffsets request with replica id -2 (its "debugging consumer") is answered by followers too, with the log
end offset instead of the high watermark. Requests to leaders carry the leader epoch, so that an answer never
belongs to another epoch than the one it is stored with: a broker at another epoch refuses.

It cannot see: a replica whose broker does not answer in time, and epochs that began and ended between two snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from harness.wire.addresses import Address, parse_addresses
from harness.wire.client import WireClient, WireError
from harness.wire.metadata import Metadata, TopicPartition, by_leader, read_metadata

CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
EARLIEST: Final = -2
LATEST: Final = -1


class ClusterView:
    """Bounded snapshots of one cluster through one of its listeners. One thread per object.

    bootstrap: `host:port,host:port`. timeout_s: of each request; a broker that did not answer is left out for the
    rest of a `metadata` round, so that a snapshot takes at most about one time-out per silent broker.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 1.5) -> None:
        self._timeout_s = timeout_s
        self._seeds = list(parse_addresses(bootstrap))
        self._clients: dict[Address, WireClient] = {}
        self._brokers: dict[int, Address] = {}

    def metadata(self, topics: Iterable[str]) -> Metadata:
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
            found = read_metadata(answer)
            self._brokers = dict(found.brokers)
            self._seeds.sort(key=lambda seed: seed != address)  # ask the one that answered first next time
            return found
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
        by_topic: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
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
        answer = self.ask_broker(broker, request)
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
        partitions = list(self.metadata(topics).partitions())
        ends: dict[TopicPartition, int | None] = {(p.topic, p.partition): None for p in partitions}
        for leader, epochs in by_leader(partitions).items():
            try:
                ends.update(self.offsets(leader, epochs, timestamp=LATEST, read_committed=read_committed))
            except WireError:
                continue
        return ends

    def ask_broker(self, broker: int, request: Any) -> Any:
        """One request to one broker. Raises: WireError when the broker is unknown or does not answer."""
        address = self._brokers.get(broker)
        if address is None:
            raise WireError(f"broker {broker} is not in the metadata")
        return self._client(address).call(request)

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

    def _client(self, address: Address) -> WireClient:
        if address not in self._clients:
            self._clients[address] = WireClient(address.host, address.port, timeout_s=self._timeout_s)
        return self._clients[address]
