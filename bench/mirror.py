"""Mirrors side by side on the same pair of clusters: MB/s, records/s, latency, CPU and memory, by number of partitions.

    python -m bench mirror [--partitions 10 100 1000] [--mirrors reference mm2-exactly-once mm2-at-least-once]

For every number of partitions each mirror in turn catches up with a filled topic, idles, and then carries a steady load
(see mirror_case); from round to round their order turns. All go through the same clients, sizes and links (toxiproxy).
Prints a table and, with --json, writes every figure to a file. Everything that was started is stopped.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.mirror_case import Case, Load, Result
from harness.clusters.docker.clients import connect
from harness.clusters.docker.images import ImageSet, ensure_images
from harness.clusters.pair import RunningTopology, start_topology
from harness.clusters.plan.topology import ClusterSpec, TopologySpec
from harness.core.errors import ShatterError
from harness.core.testspec import TestSpec
from harness.run.plan import make_plan
from harness.topology.mirror import Mirror
from mirrors import REGISTRY, MirrorContext
from mirrors.site import TopologySite

SUBJECTS = {
    "reference": TestSpec(mirror="reference"),
    "mm2-exactly-once": TestSpec(mirror="mm2", contract="mm2-exactly-once"),
    "mm2-at-least-once": TestSpec(mirror="mm2", contract="mm2-at-least-once"),
}
COLUMNS = (
    ("MB/s", "mb_per_s", "{:.1f}"),
    ("with start", "mb_per_s_with_start", "{:.1f}"),
    ("records/s", "records_per_s", "{:.0f}"),
    ("catch-up s", "catch_up_s", "{:.2f}"),
    ("first after s", "start_s", "{:.1f}"),
    ("its CPU s", "catch_up_cpu_s", "{:.2f}"),
    ("B's CPU s", "brokers_cpu_s", "{:.1f}"),
    ("all CPU s", "all_cpu_s", "{:.1f}"),
    ("idle CPU %", "idle_cpu_percent", "{:.1f}"),
    ("p50 ms", "p50_ms", "{:.1f}"),
    ("p99 ms", "p99_ms", "{:.1f}"),
    ("A's p99", "acknowledged_p99_ms", "{:.1f}"),
    ("paced CPU %", "paced_cpu_percent", "{:.0f}"),
    ("B's %", "paced_brokers_cpu_percent", "{:.0f}"),
    ("all %", "paced_all_cpu_percent", "{:.0f}"),
    ("peak MB", "peak_mb", "{:.0f}"),
    ("missing", "paced_missing", "{}"),
)


def cases(partitions: Sequence[int], mirrors: Sequence[str], rounds: int) -> Iterator[tuple[int, int, str]]:
    """(number of the mirror process, partitions, mirror): the order of the mirrors turns with every row of cases."""
    number = 1
    for row in range(len(partitions) * rounds):
        count = partitions[row // rounds]
        turn = row % len(mirrors)
        for name in (*mirrors[turn:], *mirrors[:turn]):
            yield number, count, name
            number += 1


def _driver(topology: RunningTopology, images: ImageSet, name: str, number: int) -> Mirror:
    plan = make_plan(SUBJECTS[name])
    entry_point = () if plan.mirror.image == "reference" else images.entry_point
    site = TopologySite(topology, image=getattr(images, plan.mirror.image), entry_point=entry_point, first=number)
    clusters = topology.clusters
    return REGISTRY[plan.mirror.name].make(
        MirrorContext(source=clusters["A"], destination=clusters["B"], site=site, settings=plan.settings)
    )


def measure(args: argparse.Namespace, console: Console) -> list[Result]:
    """All cases on one pair. A case that fails is told and left out; the others go on."""
    images = ensure_images(connect(), kafka_image=args.kafka_image)
    planned = list(cases(args.partitions, args.mirrors, args.rounds))
    hosts = tuple(number for number, _, name in planned if REGISTRY[SUBJECTS[name].mirror].registers)
    run_id = f"bench-mirror-{secrets.token_hex(3)}"
    spec = TopologySpec(
        run_id=run_id,
        images=images,
        clusters=(ClusterSpec(name="A", heap=args.heap), ClusterSpec(name="B", heap=args.heap, mirror_hosts=hosts)),
    )
    results = []
    console.print(f"starting two clusters of three brokers, Kafka {images.kafka_version} ({run_id})", highlight=False)
    with start_topology(spec) as topology, console.status("") as status:
        for number, partitions, name in planned:
            title = f"{name}, {partitions} partitions"
            load = Load(
                partitions=partitions,
                fill_mb=args.megabytes,
                value_bytes=args.value_bytes,
                rate=args.rate,
                warm_s=args.warm,
                paced_s=args.seconds,
                idle_s=args.idle,
                limit_s=args.limit,
            )

            def tell(line: str, title: str = title) -> None:
                status.update(f"{title}: {line}")

            mirror = _driver(topology, images, name, number)
            case = Case(topology, mirror, topic=f"bench-{number}-{partitions}", load=load, tell=tell)
            try:
                result = case.measure(name)
            except ShatterError as error:
                result = Result(mirror=name, partitions=partitions, errors=[str(error)])
            results.append(result)
            console.print(
                f"{title}: {result.mb_per_s:.1f} MB/s, p99 {result.p99_ms:.1f} ms"
                + "".join(f"; {error}" for error in result.errors),
                highlight=False,
                markup=False,
            )
    return results


def table(results: Sequence[Result]) -> Table:
    """One row per case, by partitions."""
    made = Table(title="Mirrors side by side")
    made.add_column("partitions", justify="right")
    made.add_column("mirror")
    for title, *_ in COLUMNS:
        made.add_column(title, justify="right")
    for result in sorted(results, key=lambda one: one.partitions):
        figures = [shape.format(getattr(result, name)) for _, name, shape in COLUMNS]
        made.add_row(str(result.partitions), result.mirror, *figures)
    return made


def main() -> int:
    """Parse, measure, print; 1 when a case could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--mirrors", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--megabytes", type=float, default=300, help="to catch up with")
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=2000, help="records per second of the steady load")
    parser.add_argument("--warm", type=float, default=5, help="seconds of the steady load before it counts")
    parser.add_argument("--seconds", type=float, default=20, help="of the steady load")
    parser.add_argument("--idle", type=float, default=5, help="seconds without load")
    parser.add_argument("--limit", type=float, default=180, help="longest time to catch up, in seconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--heap", default="256m", help="of each broker")
    parser.add_argument("--kafka-image")
    parser.add_argument("--json", type=Path, help="file for every figure")
    args = parser.parse_args()
    console = Console(width=200) if not Console().is_terminal else Console()
    results = measure(args, console)
    console.print(table(results))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if any(result.errors for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
