"""The labels on every Docker object of a run, and its owner.

Clean-up finds its objects by these labels alone. An object belongs to the process that created it: host name, process
id and the process's start time (a process id may be reused). Objects of another host never count as stray,
because that host's processes cannot be seen from here.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.owners import Owner, process_start, this_process

__all__ = ["Owner", "owner_labels", "owner_lives", "process_start", "run_labels", "this_process"]

RUN = "shatterproof"
NODE = "shatterproof.node"
CLUSTER = "shatterproof.cluster"
ROLE = "shatterproof.role"
PID = "shatterproof.pid"
PID_START = "shatterproof.pid-start"
HOST = "shatterproof.host"
KEEP = "shatterproof.keep"  # outlives its process on purpose (`shatter up`, `--keep`)
SPEC = "shatterproof.spec"  # on the network: the topology as JSON, so that another process can find it again


def owner_labels(owner: Owner) -> dict[str, str]:
    """The labels that name this owner."""
    return {HOST: owner.host, PID: str(owner.pid), PID_START: str(owner.start)}


def run_labels(run_id: str, owner: Owner, *, keep: bool = False) -> dict[str, str]:
    """Labels of every object of a run."""
    return {RUN: run_id, **owner_labels(owner), **({KEEP: "true"} if keep else {})}


def owner_lives(labels: Mapping[str, str], *, me: Owner | None = None) -> bool:
    """Whether the owner named in the labels is alive, or is not known to be dead.

    Kept objects count as owned. Labels without a readable owner count as stray.
    """
    if labels.get(KEEP) == "true":
        return True
    me = me or this_process()
    host, pid, start = labels.get(HOST), labels.get(PID, ""), labels.get(PID_START, "0")
    if host is not None and host != me.host:
        return True
    if not pid.isdigit():
        return False
    found = process_start(int(pid))
    if found is None:
        return False
    return start in ("", "0") or str(found) == start
