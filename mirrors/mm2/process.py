"""A MirrorMaker 2 process from outside: stopping it, and the errors in its log."""

from __future__ import annotations

import contextlib
from typing import Final

from harness.core.errors import WaitTimeoutError
from harness.core.wait import wait_until
from harness.topology.clusters import Node, NodeState

_STOP_S: Final = 20.0


def end_process(node: Node) -> None:
    """End a process: SIGTERM, a bounded wait, SIGKILL. A frozen one is thawed first: it could not handle the signal."""
    if node.state() is NodeState.PAUSED:
        node.unpause()
    if node.state() is not NodeState.RUNNING:
        return
    node.signal("SIGCONT")
    node.signal("SIGTERM")
    with contextlib.suppress(WaitTimeoutError):
        wait_until(
            lambda: node.state() is not NodeState.RUNNING,
            timeout_s=_STOP_S,
            what=f"{node.name} to end after SIGTERM",
        )
        return
    node.kill()


def logged_errors(log: str) -> list[str]:
    """The errors in a worker's log, each with the lines up to its stack trace."""
    found = []
    lines = iter(log.splitlines())
    for line in lines:
        if "] ERROR " not in line or "MirrorCheckpointConnector" in line:  # expected without group offsets
            continue
        words = [line.partition("] ERROR ")[2]]
        for following in lines:
            if following.startswith(("[", "\tat ", "You can also")):
                break
            words.append(following.strip())
        found.append(" ".join(words))
    return found
