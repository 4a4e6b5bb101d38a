"""Everything that runs in one test: clusters, links and mirrors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from harness.topology.clusters import Cluster, Link, Node
from harness.topology.mirror import Mirror


class Topology(Protocol):
    """Everything that runs, as nemeses and workloads see it."""

    @property
    def run_id(self) -> str:
        """The run's label."""
        ...

    @property
    def clusters(self) -> Mapping[str, Cluster]:
        """Letter → cluster."""
        ...

    @property
    def links(self) -> Mapping[str, Link]:
        """Letter → link from the mirror to that cluster."""
        ...

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The mirrors under test, in the order in which they were started; empty before."""
        ...

    @property
    def test_topics(self) -> Sequence[str]:
        """The workload's topics (names on A)."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Every container of the run."""
        ...
