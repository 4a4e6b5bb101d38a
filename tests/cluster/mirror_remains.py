"""Removes what a dead mirror process leaves on its destination."""

from __future__ import annotations

from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from harness.topology.clusters import Cluster
from harness.wire.cluster import Cluster as WireCluster
from mirrors.reference.server.destination import reassign_replicas


async def free_from_mirrors(cluster: Cluster) -> None:
    """Remove mirror processes from the replicas of all partitions, and unregister them as brokers."""
    wire, real = WireCluster(cluster.bootstrap), set(cluster.brokers)
    try:
        meta = await wire.metadata()
        held = {
            (name, number): [broker for broker in part.replicas if broker in real]
            for name, topic in meta.topics.items()
            for number, part in topic.partitions.items()
            if not set(part.replicas) <= real
        }
        await reassign_replicas(wire, held)
        for broker in set(meta.brokers) - real:
            await wire.call_any(UnregisterBrokerRequest(broker_id=BrokerId(broker)))
    finally:
        wire.close()
