"""The steps of an unclean election: each waits, bounded, for what the cluster itself shows."""

from __future__ import annotations

from collections.abc import Collection

from harness.clusters.base import Cluster, PartitionInfo
from harness.errors import ClusterError, FaultError, WaitTimeoutError
from nemeses.base import FaultContext
from nemeses.direct import elect_unclean, high_watermark

ALONE_S = 40.0
ACKNOWLEDGED_S = 15.0
GONE_S = 30.0
ELECTED_S = 30.0


def now(cluster: Cluster, info: PartitionInfo) -> PartitionInfo:
    """The partition as the controller sees it now.

    Raises: ClusterError when it is not there.
    """
    for current in cluster.partitions(info.topic):
        if current.partition == info.partition:
            return current
    raise ClusterError(f"cluster {cluster.name} has no partition {info.topic}-{info.partition}")


def await_alone(context: FaultContext, cluster: Cluster, info: PartitionInfo) -> int:
    """Wait until the leader is the only in-sync replica; returns its high watermark right then.

    Raises: WaitTimeoutError, FaultStoppedError.
    """
    context.wait(
        lambda: now(cluster, info).isr == (info.leader,),
        timeout_s=ALONE_S,
        what=f"the in-sync replicas of {info.topic}-{info.partition} on {cluster.name} to shrink to its leader "
        "(they only do while somebody writes to it)",
        instead=lambda: f"in sync: {list(now(cluster, info).isr)}",
        swallow=(ClusterError,),
    )
    return high_watermark(cluster, info)


def await_alone_acknowledged(
    context: FaultContext, cluster: Cluster, info: PartitionInfo, *, since: int, at_least: int
) -> int:
    """Wait until the leader has acknowledged this many records alone; returns its high watermark.

    Fewer than asked for is accepted at the end of the time; none is not, unless none was asked for.
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
                    f"the leader of {name} acknowledged no record alone in {ACKNOWLEDGED_S:g} s: nobody writes to it"
                ) from error
    return high_watermark(cluster, info)


def await_leader_gone(
    context: FaultContext, cluster: Cluster, info: PartitionInfo, *, with_it: Collection[int] = ()
) -> int | None:
    """Wait until neither the killed leader leads nor a broker that was killed with it; returns the leader elected
    clean, None without a leader.

    Raises: WaitTimeoutError, FaultStoppedError.
    """
    killed = (info.leader, *with_it)

    def gone() -> PartitionInfo | None:
        current = now(cluster, info)
        return current if current.leader not in killed else None

    return context.wait(
        gone,
        timeout_s=GONE_S,
        what=f"broker {' and '.join(map(str, killed))} of {cluster.name} to be fenced and lead "
        f"{info.topic}-{info.partition} no more",
        swallow=(ClusterError,),
    ).leader


def elect(context: FaultContext, cluster: Cluster, info: PartitionInfo) -> int:
    """Ask for unclean elections until one is done; returns the new leader.

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
