"""One unclean election on a cluster, step by step: records that only the leader has are acknowledged and lost."""

from __future__ import annotations

from confluent_kafka import Producer

from harness.core.errors import ClusterError
from harness.core.wait import wait_until
from harness.topology.clusters import Cluster
from nemeses.support.direct import elect_unclean

ELECTED_S = 90.0
IN_SYNC_S = 60.0


class UncleanSource:
    """A topic of one partition and two replicas; its leader can be left alone in the ISR. Calls block."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        info = cluster.partitions(topic)[0]
        assert info.leader is not None
        self.leader = info.leader
        (self.other,) = set(info.replicas) - {self.leader}

    @staticmethod
    def topic_of(cluster: Cluster, topic: str) -> None:
        """Create the topic, so that the leader alone may acknowledge."""
        cluster.create_topic(topic, partitions=1, replication=2, config={"min.insync.replicas": "1"})

    def leave_alone(self) -> None:
        """Kill the other replica; records acknowledged from now on will be lost."""
        self._cluster.brokers[self.other].kill()

    def elect(self) -> None:
        """Kill the leader; the other one leads without those records."""
        assert self._cluster.partitions(self._topic)[0].isr == (self.leader,)
        self._cluster.brokers[self.leader].kill()
        self._cluster.brokers[self.other].start()
        wait_until(
            self._led_by_other,
            timeout_s=ELECTED_S,
            what=f"broker {self.other} of cluster {self._cluster.name} to lead {self._topic}-0",
            instead=lambda: str(self._cluster.partitions(self._topic)),
            swallow=(ClusterError,),
        )

    def heal(self) -> None:
        """The old leader comes back and truncates what only it had."""
        self._cluster.brokers[self.leader].start()
        self._cluster.await_full_isr(timeout_s=IN_SYNC_S)

    def _led_by_other(self) -> bool:
        elect_unclean(self._cluster, self._cluster.partitions(self._topic)[0])
        return self._cluster.partitions(self._topic)[0].leader == self.other


def write(bootstrap: str, topic: str, count: int, *, tag: str) -> None:
    """Acknowledged by all replicas in sync, in order: values tag0, tag1, …"""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 20_000})
    for n in range(count):
        producer.produce(
            topic, f"{tag}{n}".encode(), partition=0, on_delivery=lambda error, _: errors.append(error) if error else 0
        )
    assert producer.flush(30) == 0
    assert errors == []
