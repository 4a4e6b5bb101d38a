"""The consumer groups of the workload `groups`, and where each of them works. Pure.

A load has a *home*, the cluster that clients write to, and may have a *destination*, to which a mirror copies the
home's records at that time. A group works on the home of every load, so after a failover it resumes where its offsets
were synced to. There are two exceptions: one moves to the destination while the mirror still runs (consumers that
migrate first), and one never leaves its first cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Protocol = Literal["classic", "consumer", "share"]


@dataclass(frozen=True, kw_only=True)
class GroupRole:
    """One group. reset: `auto.offset.reset`; for a share group its own default. members: its clients on one cluster.

    moves_early: it leaves the home after some seconds and resumes on the destination. stays: on its first cluster.
    """

    name: str
    protocol: Protocol = "classic"
    isolation: str = "read_committed"
    reset: str = "latest"
    members: int = 1
    moves_early: bool = False
    stays: bool = False


ROLES: Final = (
    # Commits past the last stable offset while a transaction is open: an offset that a mirror must clamp.
    GroupRole(name="dirty-latest", isolation="read_uncommitted"),
    GroupRole(name="dirty-earliest", isolation="read_uncommitted", reset="earliest"),
    GroupRole(name="shared", reset="earliest", members=2),
    GroupRole(name="modern", protocol="consumer"),
    GroupRole(name="early", reset="earliest", moves_early=True),
    GroupRole(name="stays", reset="earliest", stays=True),
    GroupRole(name="queue", protocol="share", isolation="read_uncommitted"),
)


@dataclass(frozen=True, kw_only=True)
class Stay:
    """One of the places where a member works in turn. seconds: None until the end of the load.

    synced: whether it waits before it joins until a mirror has synced the group's offsets there.
    """

    cluster: str
    seconds: float | None = None
    synced: bool = False


def stays_of(role: GroupRole, *, home: str | None, others: Sequence[str], first: str, early_s: float) -> list[Stay]:
    """Where the members of a group work during one load; empty: nowhere.

    home: the cluster that is written to; None when there is none. others: clusters that its records are mirrored to.
    first: the home of the run's first load.
    """
    if home is None or (role.stays and home != first):
        return []
    if role.moves_early and others:
        return [Stay(cluster=home, seconds=early_s), Stay(cluster=others[0], synced=True)]
    return [Stay(cluster=home)]
