"""One running Kafka cluster as nemeses, workloads and the runner see it.

Queries (metadata, quorum) go to each node separately with short limits, so that a paused or dead broker costs a second
and not a client library's retries. Changes go through confluent-kafka's admin client.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kio.schema.metadata.v12.response import MetadataResponse

from harness.clusters.kafka import node_requests
from harness.clusters.kafka.nodes import ContainerNode
from harness.clusters.plan import kraft_config as kafka
from harness.clusters.plan.topology import ClusterPlan
from harness.core.errors import ClusterError
from harness.core.internal_topics import is_internal
from harness.core.wait import wait_until
from harness.topology.clusters import Node, NodeState
from harness.wire.client import WireError
from harness.wire.metadata import PartitionMeta, TopicPartition, read_metadata

T = TypeVar("T")
REQUEST_S = 2.0
ADMIN_S = 30.0


class KafkaCluster:
    """Implements `harness.topology.clusters.Cluster`."""

    def __init__(self, plan: ClusterPlan, nodes: Mapping[int, ContainerNode]) -> None:
        self._plan = plan
        self._nodes = dict(nodes)
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """`A`, `B`, …"""
        return self._plan.name

    @property
    def cluster_id(self) -> str:
        """The ID the storage was formatted with."""
        return self._plan.cluster_id

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers for clients on the host."""
        return self._plan.bootstrap

    @property
    def link_bootstrap(self) -> str:
        """Bootstrap servers for the mirror: toxiproxy's addresses."""
        return self._plan.link_bootstrap

    @property
    def brokers(self) -> Mapping[int, Node]:
        """Broker id → node."""
        return {node_id: self._nodes[node_id] for node_id in self._plan.brokers}

    @property
    def controllers(self) -> Mapping[int, Node]:
        """Controller id → node."""
        return {node_id: self._nodes[node_id] for node_id in self._plan.controllers}

    @property
    def data_dir(self) -> str:
        """Path of the log directory inside each broker's container."""
        return kafka.DATA_DIR

    @property
    def repl_port(self) -> int:
        """Port of the replication listener."""
        return kafka.REPL_PORT

    def admin(self) -> AdminClient:
        """The shared admin client."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(
                    {
                        "bootstrap.servers": self.bootstrap,
                        "client.id": "shatterproof-admin",
                        "socket.connection.setup.timeout.ms": 3000,
                        "reconnect.backoff.max.ms": 500,
                        "log_level": 2,  # lost brokers are expected in a run, not news for stderr
                    }
                )
            return self._admin

    def close(self) -> None:
        """Drop the admin client, so that its threads end."""
        with self._lock:
            self._admin = None

    def partitions(self, topic: str) -> Sequence[PartitionMeta]:
        """The topic's partitions now. Raises ClusterError when no broker answers or the topic is not there."""
        found = self._newest_metadata((topic,)).get(topic)
        if not found:
            raise ClusterError(f"cluster {self.name} has no topic {topic}")
        return found

    def topics(self, *, internal: bool = False) -> Sequence[str]:
        """Names of all topics; the internal ones of Kafka, Connect and mirrors only on request."""
        return tuple(sorted(topic for topic in self._newest_metadata(None) if internal or not is_internal(topic)))

    def create_topic(
        self, topic: str, *, partitions: int, replication: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every partition has a leader and a full ISR. Raises ClusterError."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication, config=dict(config or {}))
        try:
            self.admin().create_topics([new], operation_timeout=ADMIN_S, request_timeout=ADMIN_S)[topic].result(
                timeout=ADMIN_S + 5
            )
        except (KafkaException, TimeoutError) as error:
            raise ClusterError(f"topic {topic} cannot be created on cluster {self.name}: {_words(error)}") from error

        def complete() -> bool:
            found = self.partitions(topic)
            return len(found) == partitions and all(_in_sync(p) and len(p.isr) == replication for p in found)

        wait_until(
            complete,
            timeout_s=ADMIN_S,
            what=f"the {partitions} partitions of {topic} on cluster {self.name} to have a leader and a full ISR",
            instead=lambda: str(self.partitions(topic)),
            swallow=(ClusterError,),
        )

    def active_controller(self) -> int:
        """Node id of the quorum's leader. Raises ClusterError when none answers.

        Every controller is asked, and only a leader answers. A leader that was cut off may still believe in itself
        for a moment: the highest epoch wins.
        """
        views = [view for view in self._ask(self._plan.controllers, self._quorum).values() if view is not None]
        if not views:
            raise ClusterError(f"cluster {self.name} has no active controller: none of its controllers says it leads")
        return max(views, key=lambda view: view.epoch).leader

    def _quorum(self, node_id: int) -> node_requests.QuorumView | None:
        return node_requests.quorum(self._nodes[node_id].address, kafka.CONTROLLER_PORT, timeout_s=REQUEST_S)

    def await_ready(self, *, timeout_s: float) -> None:
        """Wait until every broker answers, reports the right cluster ID, and knows every broker.

        Raises ClusterError (a node ended by itself, a wrong ID), WaitTimeoutError.
        """
        pending = set(self._plan.brokers)

        def ready() -> bool:
            for node in self._nodes.values():
                if node.state() is NodeState.STOPPED:
                    raise ClusterError(node.obituary())
            answers = self._ask(sorted(pending), lambda i: self._metadata(i, ()))
            for node_id, answer in answers.items():
                self.check_id(node_id, answer.cluster_id)
                if {int(broker.node_id) for broker in answer.brokers} >= set(self._plan.brokers):
                    pending.discard(node_id)
            return not pending

        wait_until(
            ready,
            timeout_s=timeout_s,
            what=f"the {len(self._plan.brokers)} brokers of cluster {self.name} to know each other",
            instead=lambda: "; ".join(self._why_not(i) for i in sorted(pending)),
            interval_s=0.25,
        )
        wait_until(
            lambda: self.active_controller() > 0,
            timeout_s=timeout_s,
            what=f"cluster {self.name} to have an active controller",
            swallow=(ClusterError,),
        )

    def _why_not(self, node_id: int) -> str:
        node = self._nodes[node_id]
        try:
            known = sorted(int(broker.node_id) for broker in self._metadata(node_id, ()).brokers)
        except WireError as error:
            return (
                f"{node.name} is {node.state()} and does not answer at {node.address}:{kafka.CLIENTS_PORT} ({error}); "
                "the engine must run on this machine, so that containers can be reached by address"
            )
        return f"{node.name} knows brokers {known}"

    def check_id(self, node_id: int, said: str | None) -> None:
        """Raise ClusterError when a broker reports another cluster ID than the one its storage was formatted with."""
        if said != self.cluster_id:
            raise ClusterError(
                f"{self._nodes[node_id].name} says that its cluster ID is {said}, but it was formatted with "
                f"{self.cluster_id}: something else answers at {self._nodes[node_id].address}; nothing was written"
            )

    def every_partition(self) -> Sequence[PartitionMeta]:
        """All partitions now, those of internal topics included. Raises ClusterError when no broker answers."""
        return [p for found in self._newest_metadata(None).values() for p in found]

    def await_full_isr(self, *, timeout_s: float) -> None:
        """Wait until every partition, internal ones included, has a leader and all its replicas in sync."""

        def lacking() -> list[PartitionMeta]:
            return [p for p in self.every_partition() if not _in_sync(p)]

        wait_until(
            lambda: not lacking(),
            timeout_s=timeout_s,
            what=f"every partition of cluster {self.name} to have its full ISR",
            instead=lambda: ", ".join(
                f"{p.topic}-{p.partition} leader {p.leader} ISR {list(p.isr)} of {list(p.replicas)}" for p in lacking()
            ),
            interval_s=0.25,
            swallow=(ClusterError,),
        )

    def _metadata(self, node_id: int, topics: tuple[str, ...] | None) -> MetadataResponse:
        return node_requests.metadata(
            self._nodes[node_id].address, kafka.CLIENTS_PORT, topics=topics, timeout_s=REQUEST_S
        )

    def _newest_metadata(self, topics: tuple[str, ...] | None) -> dict[str, tuple[PartitionMeta, ...]]:
        """Topic → partitions, from all brokers that answer.

        Brokers may lag behind the controller: per partition the highest leader epoch wins, then the majority.
        """
        answers = self._ask(self._plan.brokers, lambda i: self._metadata(i, topics))
        if not answers:
            raise ClusterError(f"no broker of cluster {self.name} answers within {REQUEST_S:g} s")
        votes: dict[TopicPartition, Counter[PartitionMeta]] = {}
        for answer in answers.values():
            for part in read_metadata(answer).partitions():
                vote = replace(part, isr=tuple(sorted(part.isr)))
                votes.setdefault((part.topic, part.partition), Counter())[vote] += 1
        found: dict[str, list[PartitionMeta]] = {}
        for (topic_name, _), ballot in sorted(votes.items()):
            newest, _ = max(ballot.items(), key=lambda entry: (entry[0].leader_epoch, entry[1]))
            found.setdefault(topic_name, []).append(newest)
        return {topic_name: tuple(infos) for topic_name, infos in found.items()}

    def _ask(self, node_ids: Sequence[int], question: Callable[[int], T]) -> dict[int, T]:
        """Ask several nodes at once; only those that answered are in the result."""

        def one(node_id: int) -> tuple[int, T] | None:
            try:
                return node_id, question(node_id)
            except WireError:
                return None

        if not node_ids:
            return {}
        with ThreadPoolExecutor(max_workers=len(node_ids), thread_name_prefix=f"ask-{self.name}") as pool:
            return dict(answer for answer in pool.map(one, node_ids) if answer is not None)


def _in_sync(partition: PartitionMeta) -> bool:
    return partition.leader is not None and set(partition.isr) == set(partition.replicas)


def _words(error: object) -> str:
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if isinstance(error, KafkaError):
        return f"{error.name()}: {error.str()}"
    return str(error) or type(error).__name__
