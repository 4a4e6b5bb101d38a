"""`shatter up` and `shatter down`: a pair of clusters that stays."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.cli.bench import Bench
from harness.cli.clean import print_removed
from harness.core.errors import EXIT_VALID
from harness.core.progress import RichDisplay, phase


def start_pair(name: str, *, brokers: int, controllers: int, kafka_image: str | None) -> int:
    """`shatter up`."""
    from harness.clusters.plan.topology import ClusterSpec, TopologySpec
    from harness.clusters.up_down import describe, up

    console = Console()
    bench = Bench(out=Path(), master="", keep=True, console=console)
    clusters = tuple(ClusterSpec(name=n, brokers=brokers, separate_controllers=controllers) for n in ("A", "B"))
    spec = TopologySpec(run_id=name, images=bench.images(kafka_image), clusters=clusters, keep=True)
    with phase(RichDisplay(console), "start"):
        topology = up(spec)
    console.print(describe(topology), highlight=False, markup=False, soft_wrap=True)
    console.print(f"`shatter down --name {name}` takes it down", highlight=False)
    topology.detach()
    return EXIT_VALID


def stop_pair(name: str) -> int:
    """`shatter down`."""
    from harness.clusters.up_down import down

    print_removed(down(name))
    return EXIT_VALID
