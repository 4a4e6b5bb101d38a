"""Rules that cut one TCP port of a node, in its own network namespace. They vanish when the container stops."""

from __future__ import annotations

from harness.core.errors import FaultError
from harness.topology.clusters import Node, NodeState

DIRECTIONS = ("both", "in", "out")


def _rules(port: int, direction: str, peer: str) -> list[str]:
    """iptables rules. in: others' connections to this node's port; out: this node's to the others' port."""
    come, go = (f" -s {peer}", f" -d {peer}") if peer else ("", "")
    rules = []
    if direction in ("both", "in"):
        rules += [f"INPUT -p tcp{come} --dport {port} -j DROP", f"OUTPUT -p tcp{go} --sport {port} -j DROP"]
    if direction in ("both", "out"):
        rules += [f"OUTPUT -p tcp{go} --dport {port} -j DROP", f"INPUT -p tcp{come} --sport {port} -j DROP"]
    return rules


def cut(node: Node, port: int, direction: str, *, peer: str = "") -> None:
    """peer: address of the one node from which it is cut; from all if empty. Raises: FaultError when a rule failed."""
    script = " && ".join(f"iptables -w 5 -I {rule}" for rule in _rules(port, direction, peer))
    result = node.net(script)
    if result.exit_code != 0:
        raise FaultError(f"port {port} of {node.name} was not cut: {result.output.strip()[:200]}")


def join(node: Node, port: int, direction: str, *, peer: str = "") -> None:
    """Remove the rules, including duplicates; harmless when there is none or the node is stopped.

    Raises: FaultError when a rule is still there.
    """
    if node.state() not in (NodeState.RUNNING, NodeState.PAUSED):
        return
    rules = _rules(port, direction, peer)
    remove = "; ".join(f"while iptables -w 5 -D {rule} 2>/dev/null; do :; done" for rule in rules)
    check = "; ".join(f"! iptables -w 5 -C {rule} 2>/dev/null || exit 9" for rule in rules)
    result = node.net(f"{remove}; {check}")
    if result.exit_code != 0:
        raise FaultError(f"port {port} of {node.name} is still cut: {result.output.strip()[:200]}")


def dropped(node: Node) -> int:
    """Packets that DROP rules of this node have dropped so far."""
    result = node.net("iptables -w 5 -L -v -x -n")
    return sum(
        int(fields[0])
        for line in result.output.splitlines()
        if len(fields := line.split()) > 3 and fields[2] == "DROP" and fields[0].isdigit()
    )
