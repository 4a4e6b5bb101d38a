"""`unclean-election` where the mirror itself leads, as a broker of the destination that owns no log.

Killing such a leader loses nothing: its log is its followers' logs. So all followers but one are cut off from the
mirror; the in-sync set shrinks to the mirror and that one, which alone gets more records; it and the mirror are killed;
one of the others, which lacks these records, is elected. The mirror finds a log that ends before what it had copied.

It proves the loss with what the brokers hold: the mirror's high watermark before it was killed, against the offset at
which the new leader's first epoch begins. Whether the controller calls that election clean is irrelevant here: a
replica that left the in-sync set counts as eligible (KIP-966) while the guard keeps min.insync.replicas above the
number of replicas, though the mirror's high watermark advances without it.
It cannot see: which of the lost records a consumer had read on the destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.core.errors import ClusterError, FaultError, WaitTimeoutError
from harness.topology.clusters import Cluster, Node
from harness.wire.client import WireError
from harness.wire.metadata import PartitionMeta
from harness.wire.view import ClusterView
from nemeses.base import Bite, FaultContext, FaultSpec, Injected
from nemeses.reservations import FaultSkippedError
from nemeses.support import epochs, netcut
from nemeses.support.election import also_alone, await_leader_gone, depends_on, elect, elect_when_healed, now

ALONE_S = 40.0
MIRRORED_S = 20.0


def inject(context: FaultContext, spec: FaultSpec, cluster: Cluster, info: PartitionMeta) -> Injected:
    """Cut the others off, let the mirror and one follower continue, kill both, elect, compare.

    Raises: FaultSkippedError, FaultError, WaitTimeoutError, FaultStoppedError.
    """
    name = f"{info.topic}-{info.partition}"
    mirrors = _processes(context, cluster)
    followers = sorted(broker for broker in info.isr if broker in cluster.brokers)
    if len(followers) < 2:
        raise FaultSkippedError(f"{name} has followers {followers} in sync: two are needed where the mirror leads")
    context.reservations.take(spec.fault_id, [node.name for node in mirrors])
    kept = followers[int(spec.params.get("pick", 0)) % len(followers)]
    witness = cluster.brokers[kept]
    others = [cluster.brokers[b] for b in info.replicas if b in cluster.brokers and b != kept]
    target = f"{witness.name} and {', '.join(node.name for node in mirrors)} (leading {name})"
    context.began(target, {**spec.params, "leader": info.leader, "kept": kept})
    before = epochs.read(cluster, witness, info.topic, info.partition)
    _cut_off(context, mirrors, others, cluster.repl_port)
    _await_in_sync(context, cluster, info, kept)
    since = _high_watermark(cluster, info)
    acknowledged = _await_mirrored(context, cluster, info, since + int(spec.params.get("alone", 20)), since)
    led = {b for p in cluster.every_partition() for b in p.replicas if b not in cluster.brokers}
    beside = [p for p in depends_on(cluster, {kept, *led}) if p != name]
    elected = elect_when_healed(context, cluster)
    _kill(context, (witness, *mirrors))
    survivor = await_leader_gone(context, cluster, info, with_it=(kept,))
    leader = elect(context, cluster, info) if survivor is None else survivor
    start = epochs.await_newer(context, cluster, cluster.brokers[leader], info, than=epochs.newest(before))
    lost = max(0, acknowledged - start.offset)
    seen = (
        f"{name}: the mirror (broker {info.leader}) and broker {kept} had everything below {acknowledged}, "
        f"{acknowledged - since} records of it without the others; broker {leader} leads from {start.offset} at epoch "
        f"{start.epoch}: " + (f"offsets {start.offset} to {acknowledged - 1} are lost" if lost else "nothing is lost")
    )
    return Injected(
        spec=spec,
        target=target,
        nodes=[witness.name, *(node.name for node in mirrors)],
        bite=Bite(yes=lost > 0, seen=seen + also_alone(beside)),
        beside=beside,
        state={"node": witness, "elected": elected},
    )


def _cut_off(context: FaultContext, mirrors: Sequence[Node], others: Sequence[Node], port: int) -> None:
    for mirror in mirrors:
        for other in others:
            join = partial(netcut.join, mirror, port, "in", peer=other.address)
            context.undo.push(f"let {other.name} reach {mirror.name}", join)
            netcut.cut(mirror, port, "in", peer=other.address)


def _kill(context: FaultContext, nodes: Sequence[Node]) -> None:
    for node in nodes:
        context.undo.push(f"start {node.name}", node.start)
    for node in nodes:
        node.kill()


def _processes(context: FaultContext, cluster: Cluster) -> Sequence[Node]:
    """Every process of the mirrors that lead on this cluster."""
    found = [node for m in context.topology.mirrors if m.destination == cluster.name for node in m.nodes()]
    if not found:
        raise FaultSkippedError(f"the leader on cluster {cluster.name} is neither a broker nor a mirror's process")
    return found


def _high_watermark(cluster: Cluster, info: PartitionMeta) -> int:
    """According to the mirror. Raises: ClusterError."""
    view = ClusterView(cluster.bootstrap)
    try:
        end = view.leader_ends([info.topic], read_committed=False).get((info.topic, info.partition))
    except WireError as error:
        raise ClusterError(str(error)) from error
    finally:
        view.close()
    if end is None:
        raise ClusterError(f"the mirror does not report the end of {info.topic}-{info.partition} on {cluster.name}")
    return end


def _await_in_sync(context: FaultContext, cluster: Cluster, info: PartitionMeta, kept: int) -> None:
    wanted = {info.leader, kept}
    context.wait(
        lambda: set(now(cluster, info).isr) == wanted,
        timeout_s=ALONE_S,
        what=f"the mirror and broker {kept} to be the only in-sync replicas of {info.topic}-{info.partition}",
        instead=lambda: f"in sync: {list(now(cluster, info).isr)}",
        swallow=(ClusterError,),
    )


def _await_mirrored(context: FaultContext, cluster: Cluster, info: PartitionMeta, wanted: int, since: int) -> int:
    """Wait until the mirror has copied this many; fewer are accepted when the time is up, none are not."""
    try:
        context.wait(
            lambda: _high_watermark(cluster, info) >= wanted,
            timeout_s=MIRRORED_S,
            what=f"records of {info.topic}-{info.partition} that only one follower has",
            swallow=(ClusterError,),
        )
    except WaitTimeoutError as error:
        if _high_watermark(cluster, info) <= since:
            raise FaultError(f"the mirror copied nothing to {info.topic}-{info.partition}: {error}") from error
    return _high_watermark(cluster, info)
