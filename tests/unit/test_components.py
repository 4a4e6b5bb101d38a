"""Components and shortest cycles of small graphs, and against brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.graph.components import graph_of, shortest_cycle, strong_components, within

pytestmark = pytest.mark.unit
EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24)


def reach(edges: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Pairs of which the first leads to the second (Warshall)."""
    found = set(edges)
    for k, i, j in itertools.product(range(8), repeat=3):
        if (i, k) in found and (k, j) in found:
            found.add((i, j))
    return found


def distances(edges: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Edges of a shortest path, of each pair that has one (Floyd)."""
    far = {(a, b): 1 for a, b in edges if a != b}
    for k, i, j in itertools.product(range(8), repeat=3):
        if (i, k) in far and (k, j) in far:
            far[i, j] = min(far.get((i, j), 99), far[i, k] + far[k, j])
    return far


@given(EDGES)
def test_components_are_mutually_reachable_nodes(edges: list[tuple[int, int]]) -> None:
    leads = reach([e for e in edges if e[0] != e[1]])
    expected = {tuple(sorted({b for b in range(8) if (a, b) in leads and (b, a) in leads} | {a})) for a in range(8)}
    assert strong_components(graph_of(edges)) == sorted(list(c) for c in expected if len(c) > 1)


@given(EDGES, st.data())
def test_the_cycle_is_one_and_none_is_shorter(edges: list[tuple[int, int]], data: st.DataObject) -> None:
    for component in strong_components(graph_of(edges)):
        graph = within(graph_of(edges), component)
        own = [(a, b) for a in graph for b in graph[a]]
        far = distances(own)
        chosen = data.draw(st.lists(st.sampled_from(own), min_size=1))
        for through, closing in ((None, own), (graph_of(chosen), chosen)):
            cycle = shortest_cycle(graph, through=through)
            pairs = list(zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
            assert set(pairs) <= set(own)
            assert cycle[0] == min(cycle)
            assert set(pairs) & set(closing)
            assert len(cycle) == min(1 + far[b, a] for a, b in closing)


def test_a_ring_and_a_chain_of_many_nodes_end_soon() -> None:
    n = 100_000
    chain = graph_of((i + 1, i) for i in range(n))
    assert strong_components(chain) == []
    ring = graph_of([*((i + 1, i) for i in range(n)), (0, n)])
    assert strong_components(ring) == [list(range(n + 1))]
    assert len(shortest_cycle(ring)) == n + 1


def test_a_search_that_gets_too_long_ends_with_the_shortest_so_far() -> None:
    ring = graph_of([(0, 1), (1, 2), (2, 0), (1, 3), (3, 4), (4, 1)])
    assert shortest_cycle(ring, steps=5) in ([0, 1, 2], [])
    assert shortest_cycle({}) == []
