"""One generated example alone: `PYTHONPATH=tests:. python -m model NUMBER [--judge]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from model.example import Example, simulate
from model.generated import SORTS, sort_of_plans


def main() -> None:
    """Print its plan, its operations and its logs; with --judge, its anomalies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int)
    parser.add_argument("--sort", default="cluster", choices=tuple(SORTS))
    parser.add_argument("--judge", action="store_true")
    args = parser.parse_args()
    plan = sort_of_plans(args.sort)[args.number]
    example = simulate(plan, args.number)
    print(plan)
    show(example)
    if args.judge:
        _judge(example)


def show(example: Example) -> None:
    """The logs of both clusters, and the mirror's states."""
    for cluster in (example.world.a, example.world.b):
        for part in cluster.partitions:
            print(f"{cluster.letter} {part.topic}-{part.number}: {part.start} to {part.end}, cuts {example.world.cuts}")
            for b in part.log.batches:
                what = b.control or ", ".join(f"{r.offset}: {r.value}" for r in b.records)
                print(
                    f"  {b.base}…{b.last} id {b.pid} epoch {b.pepoch} sequence {b.seq} leader epoch {b.epoch}: {what}"
                )
    for row in example.tables["mirror_states"]:
        print(row)


def _judge(example: Example) -> None:
    from checkers.spark.session import spark_session
    from model.pack import CONTRACTS, judged, told

    spark = spark_session(master="local[2]", memory="2g", app="model")
    with tempfile.TemporaryDirectory() as folder:
        contract = CONTRACTS[example.plan.sort]
        judgement, anomalies = judged([example], Path(folder) / "run", spark, contract=contract)
    print(judgement.verdict, judgement.why)
    for rows in anomalies.values():
        print(told(rows, 50))


if __name__ == "__main__":
    main()
