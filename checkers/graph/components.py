"""Strongly connected components of a directed graph, and a shortest cycle of one. Plain Python, no Spark.

Spark hands over parts of the graph that share no cycle with the rest (`graph.partitioning`). Nodes are
any integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Graph = Mapping[int, Sequence[int]]
"""Node → the nodes that its edges lead to. A node without edges may be left out."""
STEPS = 20_000_000
"""Most edges that the search for one shortest cycle may follow; then the shortest so far is used."""


def graph_of(edges: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """The graph of these edges, without duplicates and self-loops; neighbours ascend."""
    graph: dict[int, set[int]] = {}
    for source, target in edges:
        if source != target:
            graph.setdefault(source, set()).add(target)
    return {node: sorted(graph[node]) for node in sorted(graph)}


def strong_components(graph: Graph) -> list[list[int]]:
    """Components of two nodes and more, each ascending, by their least node (Tarjan 1972, without recursion)."""
    found: list[list[int]] = []
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    is_open: set[int] = set()
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        open_.append(root)
        is_open.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in number:
                    number[target] = low[target] = len(number)
                    open_.append(target)
                    is_open.add(target)
                    work.append((target, iter(graph.get(target, ()))))
                    break
                if target in is_open:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = _closed(open_, node)
                    is_open.difference_update(component)
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found)


def _closed(open_: list[int], node: int) -> list[int]:
    """Take a finished component off the stack."""
    component = []
    while True:
        component.append(open_.pop())
        if component[-1] == node:
            return component


def within(graph: Graph, component: Iterable[int]) -> dict[int, list[int]]:
    """The component's own edges."""
    nodes = set(component)
    return {node: [t for t in graph.get(node, ()) if t in nodes] for node in sorted(nodes)}


def shortest_cycle(graph: Graph, *, through: Graph | None = None, steps: int = STEPS) -> list[int]:
    """A shortest cycle of a strongly connected graph, from its least node on; empty when there is none.

    through: edges of which the cycle must contain one; None: any. Breadth first from every node at which one of them
    ends, never deeper than the shortest cycle so far. Without `through` it begins only at nodes with several edges:
    unless the graph is one ring, every shorter cycle passes one.
    """
    closing = graph if through is None else through
    closers: dict[int, set[int]] = {}
    for source, targets in closing.items():
        for target in targets:
            closers.setdefault(target, set()).add(source)
    starts = sorted(closers)
    if through is None:
        starts = [node for node in starts if len(graph.get(node, ())) > 1] or starts[:1]
    best: list[int] = []
    for start in starts:
        path, steps = _path(graph, start, closers[start], len(best) - 1 if best else None, steps)
        best = path or best
        if len(best) == 2 or steps <= 0:  # nothing is shorter
            break
    least = best.index(min(best)) if best else 0
    return best[least:] + best[:least]


def _path(graph: Graph, start: int, ends: set[int], most: int | None, steps: int) -> tuple[list[int], int]:
    """A shortest path from `start` to one of `ends` of at most `most` nodes, and the steps that are left."""
    came: dict[int, int | None] = {start: None}
    level, depth = [start], 1
    while level and (most is None or depth < most):
        following: list[int] = []
        for node in level:
            for target in graph.get(node, ()):
                steps -= 1
                if target in came:
                    continue
                came[target] = node
                if target in ends:
                    return _back(came, target), steps
                following.append(target)
            if steps <= 0:
                return [], steps
        level, depth = following, depth + 1
    return [], steps


def _back(came: Mapping[int, int | None], node: int | None) -> list[int]:
    path: list[int] = []
    while node is not None:
        path.append(node)
        node = came[node]
    return path[::-1]
