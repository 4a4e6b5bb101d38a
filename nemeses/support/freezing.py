"""Freezing a node's processes, in two ways, and checking that they are frozen.

`cgroup`: the engine's freezer stops every process of the container. `sigstop`: SIGSTOP stops the main process only.
Either way the kernel still accepts connections; nothing answers on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.wait import wait_until
from harness.topology.clusters import Node, NodeState
from nemeses.base import FaultContext
from nemeses.support.recovery import stopped_by_signal

WAYS = ("cgroup", "sigstop")
CHOICES: Mapping[str, tuple[str, ...]] = {"how": WAYS}


def freeze(context: FaultContext, node: Node, how: str) -> None:
    """Freeze the node; the undo is registered first."""
    if how == "cgroup":
        context.undo.push(f"unpause {node.name}", node.unpause)
        node.pause()
    else:
        context.undo.push(f"continue {node.name}", lambda: _continue(node))
        node.signal("SIGSTOP")


def frozen(node: Node, how: str) -> bool:
    """Whether the node is frozen now, according to the engine or by the process's state."""
    if how == "cgroup":
        return node.state() is NodeState.PAUSED
    return node.state() is NodeState.RUNNING and stopped_by_signal(node)


def await_thawed(node: Node, how: str, *, timeout_s: float) -> None:
    """Raises: WaitTimeoutError when it is still frozen."""
    wait_until(
        lambda: node.state() is NodeState.RUNNING and not frozen(node, how),
        timeout_s=timeout_s,
        what=f"{node.name} to run again",
        instead=lambda: f"its container is {node.state()}",
    )


def _continue(node: Node) -> None:
    if node.state() is NodeState.RUNNING:
        node.signal("SIGCONT")
