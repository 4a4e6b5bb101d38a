"""`unclean-election`: make a cluster lose records that it had acknowledged, and prove which.

Role `leader` (min.insync.replicas=1): the replication port of a partition's leader is cut; the in-sync set shrinks to
the leader, which then acknowledges records alone; it is killed; the controller is asked for an unclean election.
Role `elr` (min.insync.replicas=2): the same, but Kafka keeps eligible leader replicas (KIP-966): the high watermark
does not advance, nothing more is acknowledged with acks=all, and one of them is elected cleanly. It records what
happened; not biting is the expected outcome there.

It proves the loss with what the brokers hold: the leader's high watermark before it was killed, against the offset
at which the new leader's first epoch begins (its `leader-epoch-checkpoint` file). Offsets in between were
acknowledged and are gone, however fast new records reuse them.
On the destination the mirror is the only writer, so the acknowledged records are the mirror's. Where the mirror itself
leads, see `nemeses/support/mirror_led.py`.
The killed leader may be alone in sync elsewhere, too: those partitions, including internal topics, are hit like the
one that was drawn, recorded with the fault, and elected uncleanly when it heals, since Kafka elects no leader there.
It cannot see: acknowledgements to producers with acks=1 beyond the high watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from harness.core.errors import FaultError
from harness.topology.clusters import Cluster, Node
from harness.topology.topology import Topology
from harness.wire.metadata import PartitionMeta
from nemeses.base import (
    Availability,
    Bite,
    FaultContext,
    FaultSpec,
    Injected,
    Nemesis,
    NemesisKind,
    Shape,
    Target,
    Timing,
)
from nemeses.reservations import FaultSkippedError
from nemeses.support import epochs, mirror_led, netcut, topic_config
from nemeses.support.election import (
    also_alone,
    await_alone,
    await_alone_acknowledged,
    await_leader_gone,
    depends_on,
    elect,
    elect_when_healed,
)
from nemeses.support.roles import await_healed, broker_params, brokers_available, cluster_of, partition_of

HEAL_S = 75.0
MIN_INSYNC = {"leader": 1, "elr": 2}
SETTING = "min.insync.replicas"


class UncleanElection(Nemesis):
    """See the module."""

    name = "unclean-election"
    description = "make a cluster lose acknowledged records: leader cut off and killed, a stale replica elected"
    kind: NemesisKind = "broker"
    clusters: tuple[str, ...] = ("A", "B")
    roles: tuple[str, ...] = ("leader", "elr")
    default_roles: tuple[str, ...] = ("leader",)
    needs = "a cluster of at least three brokers (two with separate controllers) and two replicas per partition"
    timing = Timing(least_s=14, most_s=20, settle_s=12)
    choices: Mapping[str, tuple[str, ...]] = {}
    loses_acknowledged = True
    color = "#222222"

    def targets(self, shape: Shape) -> Sequence[Target]:
        """Clusters whose quorum survives the leader's death."""
        least = 2 if shape.separate_controllers else 3
        return tuple(
            Target(cluster, role)
            for cluster, brokers in sorted(shape.brokers.items())
            for role in self.roles
            if len(brokers) >= least and shape.replication >= 2 and shape.topics
        )

    def draw(self, rng: Random, shape: Shape, target: Target) -> dict[str, Any]:
        """Partition, and how many records the leader must have acknowledged alone."""
        return {**broker_params(rng, shape), "alone": rng.randint(5, 50)}

    def available(self, topology: Topology) -> Availability:
        """Everywhere."""
        return brokers_available(topology)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Cut, wait until the leader is alone and has acknowledged records, kill, elect, compare."""
        cluster, info = self._resolve(context, spec)
        assert info.leader is not None
        if info.leader not in cluster.brokers:
            return mirror_led.inject(context, spec, cluster, info)
        victim, name = cluster.brokers[info.leader], f"{info.topic}-{info.partition}"
        wanted = MIN_INSYNC[spec.role]
        target = f"{victim.name} (leader of {name})"
        context.began(target, {**spec.params, SETTING: wanted, "leader": info.leader})
        topic_config.change(context, cluster, info.topic, SETTING, str(wanted))
        before = epochs.read(cluster, victim, info.topic, info.partition)
        since = _isolate(context, cluster, info, victim)
        needed = int(spec.params.get("alone", 20)) if wanted == 1 else 0
        acknowledged = await_alone_acknowledged(context, cluster, info, since=since, at_least=needed)
        beside = [p for p in depends_on(cluster, {info.leader}) if p != name]
        elected = elect_when_healed(context, cluster)
        context.undo.push(f"start {victim.name}", victim.start)
        victim.kill()
        survivor = await_leader_gone(context, cluster, info)
        leader = elect(context, cluster, info) if survivor is None else survivor
        start = epochs.await_newer(context, cluster, cluster.brokers[leader], info, than=epochs.newest(before))
        lost, clean = max(0, acknowledged - start.offset), survivor is not None
        seen = (
            f"{name}: broker {info.leader} had acknowledged everything below {acknowledged} "
            f"({acknowledged - since} or more of it alone); broker {leader}, elected "
            f"{'clean' if clean else 'unclean'}, leads from {start.offset} at epoch {start.epoch}: "
        )
        seen += f"offsets {start.offset} to {acknowledged - 1} are lost" if lost else "nothing acknowledged is lost"
        return Injected(
            spec=spec,
            target=target,
            nodes=[victim.name],
            bite=Bite(yes=lost > 0 and not clean, seen=seen + also_alone(beside)),
            beside=beside,
            state={"node": victim, "elected": elected},
        )

    def heal(self, context: FaultContext, injected: Injected) -> str:
        """Start the old leader, which truncates what only it had, elect leaders where there is none, and wait until it
        is in sync everywhere."""
        errors = context.undo.run()
        if errors:
            raise FaultError("; ".join(errors))
        seen = await_healed(context, injected.spec, injected.state["node"], timeout_s=HEAL_S)
        return seen + (f"; elected uncleanly: {', '.join(elected)}" if (elected := injected.state["elected"]) else "")

    def _resolve(self, context: FaultContext, spec: FaultSpec) -> tuple[Cluster, PartitionMeta]:
        if spec.role not in MIN_INSYNC:
            raise FaultError(f"unclean-election has roles {', '.join(MIN_INSYNC)}, not {spec.role}")
        cluster = cluster_of(context.topology, spec)
        # the whole cluster is held: another missing node would change who can be elected
        held = {node.name for node in (*cluster.brokers.values(), *cluster.controllers.values())}
        context.reservations.take(spec.fault_id, sorted(held))
        info = partition_of(context.topology, cluster, spec)
        if info.leader is None or len(info.isr) < 2:
            raise FaultSkippedError(
                f"{info.topic}-{info.partition} has leader {info.leader} and in-sync replicas {list(info.isr)}: "
                "a leader and a follower in sync are needed"
            )
        return cluster, info


def _isolate(context: FaultContext, cluster: Cluster, info: PartitionMeta, leader: Node) -> int:
    """Cut the leader off from its followers; returns its high watermark when it is the only in-sync replica."""
    port = cluster.repl_port
    context.undo.push(f"open port {port} of {leader.name}", lambda: netcut.join(leader, port, "in"))
    netcut.cut(leader, port, "in")
    return await_alone(context, cluster, info)
