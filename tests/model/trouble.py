"""Faults that a correct mirror tolerates: elections, dying brokers, a cut link, expiry, compaction, a pause."""

from __future__ import annotations

from model.mirror import ClusterMirror
from model.world import IDLE, Actor, Cluster, World


def fault(world: World, number: int, name: str, cluster: str, target: str, action: str) -> None:
    columns = {"fault_id": number, "name": name, "cluster": cluster, "target": target, "action": action}
    world.book.tick()
    world.book.row("faults", ok=True, result="seen", params="{}", **columns)


def elections(world: World) -> Actor:
    """Clean leader elections on A."""
    while True:
        yield IDLE
        part = world.rng.choice(world.a.partitions)
        others = sorted(part.isr - {part.leader})
        if others and world.chance(0.15):
            number = world.number("fault")
            fault(world, number, "leader-election", "A", f"{part.topic}-{part.number}", "inject")
            part.elect(world.rng.choice(others))
            fault(world, number, "leader-election", "A", f"{part.topic}-{part.number}", "bit")


def deaths(world: World) -> Actor:
    """A broker of A dies, and comes back after some time."""
    while True:
        yield IDLE
        part = world.rng.choice(world.a.partitions)
        if len(part.isr) < 2 or not world.chance(0.1):
            continue
        number, broker = world.number("fault"), world.rng.choice(sorted(part.isr))
        fault(world, number, "broker-kill", "A", f"A-broker-{broker}", "inject")
        part.leave(broker)
        fault(world, number, "broker-kill", "A", f"A-broker-{broker}", "bit")
        for _ in range(world.rng.randint(1, 4)):
            yield IDLE
        if broker in part.down:
            part.rejoin(broker)
            fault(world, number, "broker-kill", "A", f"A-broker-{broker}", "heal")


def unclean(world: World) -> Actor:
    """A broker of A leaves the ISR and is elected nevertheless: what it missed is lost, acknowledged or not."""
    while True:
        yield IDLE
        part = world.rng.choice(world.a.partitions)
        behind = sorted(part.isr - {part.leader})
        if not behind or not world.chance(0.2):
            continue
        broker = world.rng.choice(behind)
        part.leave(broker)
        for _ in range(world.rng.randint(2, 6)):
            yield IDLE
        number = world.number("fault")
        fault(world, number, "unclean-election", "A", f"{part.topic}-{part.number}", "inject")
        if broker in part.down:
            part.elect_unclean(broker)
        fault(world, number, "unclean-election", "A", f"{part.topic}-{part.number}", "bit")


def link_cuts(world: World) -> Actor:
    """The mirror does not reach A for a while."""
    while True:
        yield IDLE
        if not world.chance(0.15):
            continue
        number = world.number("fault")
        fault(world, number, "link-partition", "link", "A-B", "inject")
        world.link = False
        fault(world, number, "link-partition", "link", "A-B", "bit")
        for _ in range(world.rng.randint(1, 3)):
            yield IDLE
        world.link = True
        fault(world, number, "link-partition", "link", "A-B", "heal")


def expiry(world: World) -> Actor:
    """Retention deletes whole decided batches of A, whether the mirror has copied them or not."""
    while True:
        yield IDLE
        part = world.rng.choice(world.a.partitions)
        ends = [b.last + 1 for b in part.log.batches if b.last < part.lso]
        if len(ends) > 2 and world.chance(0.15):
            part.expire(world.rng.choice(ends[:-1]))


def cleaner(world: World, cluster: Cluster) -> Actor:
    """Brokers compact their copies, each cluster by itself.

    Before a failback A's cleaner goes no further than the mirror: a record that one above the cut has superseded is
    lost when the failback discards the superseding one, and only `min.compaction.lag.ms` prevents that. That is a
    limit of every failback by truncation, and not modeled.
    """
    while True:
        yield IDLE
        part = world.rng.choice(cluster.partitions)
        if world.chance(0.3):
            bounded = world.plan.scenario == "failback" and cluster is world.a
            part.compact(below=world.b.partitions[part.number].lso if bounded else None)


def pauses(world: World, mirror: ClusterMirror) -> Actor:
    """Partitions of the mirror are paused and resumed."""
    while True:
        yield IDLE
        if world.chance(0.15):
            yield from mirror.pause()


def heal(world: World, mirror: ClusterMirror) -> None:
    """End all faults except the one that this plan cannot heal."""
    lost = world.plan.unhealed
    world.link = lost != "link"
    mirror.dead = lost == "mirror"
    for part in world.a.partitions:
        for broker in sorted(part.down):
            part.rejoin(broker)
        if lost == "broker" and len(part.isr) > 1:
            part.leave(max(part.isr))
