"""The order of phases between the load and the final reads: one function per scenario, and the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from harness.mirrors.base import Cut


class Steps(Protocol):
    """What a scenario may do with a running test; each step is bounded and recorded."""

    def settle(self) -> None:
        """Wait until the mirror has carried everything, or the limit is over; what is missing is recorded."""
        ...

    def stop_mirror(self) -> Cut:
        """Stop the mirror: the destination becomes writable. The cut is recorded per partition."""
        ...

    def write(self, cluster: str, *, seconds: float) -> None:
        """Run the workload's clients against one cluster alone, without faults."""
        ...


def steady(steps: Steps) -> None:
    """The mirror runs to the end: everything on A must arrive on B."""
    steps.settle()


def failover(steps: Steps) -> None:
    """The mirror is stopped under way, the clients move to B and write there; what was not carried is lag (RPO)."""
    steps.stop_mirror()
    steps.write("B", seconds=5.0)


REGISTRY: Mapping[str, Callable[[Steps], None]] = {"steady": steady, "failover": failover}
