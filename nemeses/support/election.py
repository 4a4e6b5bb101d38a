"""The steps of an unclean election: each waits, bounded, for the state that the cluster reports."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from harness.core.errors import ClusterError, FaultError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.topology.clusters import Cluster
from harness.wire.metadata import PartitionMeta
from nemeses.base import FaultContext
from nemeses.support.direct import elect_unclean, high_watermark

ALONE_S = 40.0
ACKNOWLEDGED_S = 15.0
GONE_S = 30.0
ELECTED_S = 30.0
BY_ITSELF_S = 5.0


def depends_on(cluster: Cluster, brokers: Collection[int]) -> Sequence[str]:
    """Partitions, including internal topics, whose in-sync replicas are all among these brokers.

    If they are killed, and no eligible leader replica is left (KIP-966), the partition loses its leader for good: after
    its unclean shutdown a broker is in no in-sync set.
    """
    return [f"{p.topic}-{p.partition}" for p in cluster.every_partition() if p.isr and set(p.isr) <= set(brokers)]


def elect_where_none_leads(cluster: Cluster) -> Sequence[str]:
    """Request unclean elections for partitions that stay without a leader; returns those, once all have one.

    To be called after everything was restarted, when no other fault keeps brokers of the cluster down.
    Raises: WaitTimeoutError naming what stays without a leader.
    """
    refused: dict[str, str] = {}
    elected: dict[str, None] = {}
    began = time.monotonic()

    def led() -> bool:
        without = [p for p in cluster.every_partition() if p.leader is None]
        for p in without if time.monotonic() - began >= BY_ITSELF_S else ():
            name, answer = f"{p.topic}-{p.partition}", elect_unclean(cluster, p)
            if answer is None:
                elected[name] = None
            else:
                refused[name] = answer
        return not without

    wait_until(
        led,
        timeout_s=ELECTED_S,
        what=f"every partition of cluster {cluster.name} to have a leader, elected uncleanly where none is in sync",
        instead=lambda: ", ".join(f"{name}: {answer}" for name, answer in refused.items()) or "no answer",
        interval_s=0.5,
        swallow=(ClusterError,),
    )
    return list(elected)


def elect_when_healed(context: FaultContext, cluster: Cluster) -> list[str]:
    """Register `elect_where_none_leads` for the healing, after the undos registered later; it fills the returned list
    with the partitions that were elected."""
    elected: list[str] = []
    what = f"elect a leader for every partition of cluster {cluster.name}"
    context.undo.push(what, lambda: elected.extend(elect_where_none_leads(cluster)))
    return elected


def also_alone(partitions: Sequence[str]) -> str:
    """The end of a sentence about what else a fault hit."""
    if not partitions:
        return ""
    return f"; no other replica was in sync, either, for {', '.join(partitions)}"


def now(cluster: Cluster, info: PartitionMeta) -> PartitionMeta:
    """The partition as the controller sees it now.

    Raises: ClusterError when it is not there.
    """
    for current in cluster.partitions(info.topic):
        if current.partition == info.partition:
            return current
    raise ClusterError(f"cluster {cluster.name} has no partition {info.topic}-{info.partition}")


def await_alone(context: FaultContext, cluster: Cluster, info: PartitionMeta) -> int:
    """Wait until the leader is the only in-sync replica; returns its high watermark right then.

    Raises: WaitTimeoutError, FaultStoppedError.
    """
    context.wait(
        lambda: now(cluster, info).isr == (info.leader,),
        timeout_s=ALONE_S,
        what=f"the in-sync replicas of {info.topic}-{info.partition} on {cluster.name} to shrink to its leader "
        "(they only do while it is written to)",
        instead=lambda: f"in sync: {list(now(cluster, info).isr)}",
        swallow=(ClusterError,),
    )
    return high_watermark(cluster, info)


def await_alone_acknowledged(
    context: FaultContext, cluster: Cluster, info: PartitionMeta, *, since: int, at_least: int
) -> int:
    """Wait until the leader has acknowledged this many records alone; returns its high watermark.

    Fewer than requested are accepted when the time is up; none is not, unless none was requested.
    Raises: FaultError, FaultStoppedError.
    """
    name = f"{info.topic}-{info.partition}"
    if at_least:
        try:
            context.wait(
                lambda: high_watermark(cluster, info) >= since + at_least,
                timeout_s=ACKNOWLEDGED_S,
                what=f"{at_least} records acknowledged by the leader of {name} alone",
                swallow=(ClusterError,),
            )
        except WaitTimeoutError as error:
            if high_watermark(cluster, info) <= since:
                raise FaultError(
                    f"the leader of {name} acknowledged no record alone in {ACKNOWLEDGED_S:g} s: it is not written to"
                ) from error
    return high_watermark(cluster, info)


def await_leader_gone(
    context: FaultContext, cluster: Cluster, info: PartitionMeta, *, with_it: Collection[int] = ()
) -> int | None:
    """Wait until neither the killed leader nor a broker that was killed with it leads; returns the cleanly elected
    leader, None without one.

    Raises: WaitTimeoutError, FaultStoppedError.
    """
    killed = (info.leader, *with_it)

    def gone() -> PartitionMeta | None:
        current = now(cluster, info)
        return current if current.leader not in killed else None

    return context.wait(
        gone,
        timeout_s=GONE_S,
        what=f"broker {' and '.join(map(str, killed))} of {cluster.name} to be fenced and no longer lead "
        f"{info.topic}-{info.partition}",
        swallow=(ClusterError,),
    ).leader


def elect(context: FaultContext, cluster: Cluster, info: PartitionMeta) -> int:
    """Request unclean elections until one is done; returns the new leader.

    Raises: WaitTimeoutError with the cluster's last answer, FaultStoppedError.
    """
    answers: list[str] = []

    def elected() -> int | None:
        answer = elect_unclean(cluster, info)
        if answer is not None:
            answers.append(answer)
        leader = now(cluster, info).leader
        return None if leader == info.leader else leader

    # broker id 0 is falsy: wait for a tuple
    def found() -> tuple[int] | None:
        leader = elected()
        return None if leader is None else (leader,)

    return context.wait(
        found,
        timeout_s=ELECTED_S,
        what=f"an unclean election of {info.topic}-{info.partition} on {cluster.name}",
        instead=lambda: f"the controller answered {answers[-1] if answers else 'nothing'}",
        interval_s=0.5,
        swallow=(ClusterError,),
    )[0]
