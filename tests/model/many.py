"""Many examples at once, more than the tests judge: `PYTHONPATH=tests:. python -m model.many [--clean N] [--each N]`.

Prints one line a batch, every example that is judged wrong, and the totals; exit code 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from time import monotonic

from pyspark.sql import SparkSession

from checkers.spark.session import spark_session
from model.example import Example, simulate
from model.generated import SORTS, sort_of_plans
from model.mutations import base
from model.mutations.catalogue import MUTATIONS, Mutation
from model.pack import CONTRACTS, judged, never_allowed, told

BATCH = 500
ALL = sum(sort.count for sort in SORTS.values())
Made = tuple[Example, Mutation | None]


def main() -> None:
    """Judge that many clean examples (all sorts in their usual proportions), and so many of each mutation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", type=int, default=0, help="clean examples of all sorts together")
    parser.add_argument("--each", type=int, default=0, help="examples of each mutation")
    args = parser.parse_args()
    spark = spark_session(master="local[2]", memory="4g", app="model")
    wrong = count = 0
    for what, sort, examples in chain(clean(args.clean), mutated(args.each)):
        for first in range(0, len(examples), BATCH):
            started, batch = monotonic(), examples[first : first + BATCH]
            found = wrong_ones(batch, sort, spark)
            took = f"{monotonic() - started:.0f} s"
            print(f"{what} {sort}: {len(batch)} examples, {len(found)} wrong, {took}", flush=True)
            print(*found, sep="\n", end="\n" if found else "", flush=True)
            wrong, count = wrong + len(found), count + len(batch)
    print(f"{count} examples, {wrong} wrong")
    sys.exit(bool(wrong))


def clean(count: int) -> Iterator[tuple[str, str, list[Made]]]:
    """Correct examples by sort."""
    for name, sort in SORTS.items():
        wanted = -(-count * sort.count // ALL)
        plans = sort_of_plans(name, count=wanted) if wanted else ()
        yield "clean", name, [(simulate(plan, n), None) for n, plan in enumerate(plans)]


def mutated(each: int) -> Iterator[tuple[str, str, list[Made]]]:
    """Mutated examples by sort."""
    base.TRIES = max(base.TRIES, 20 * each)
    for sort, mutations in groupby(sorted(MUTATIONS.values(), key=lambda m: m.sort), key=lambda m: m.sort):
        made: list[Made] = []
        for mutation in mutations:
            bitten = mutation.bitten(each, first=len(made))
            if len(bitten) < each:
                print(f"{mutation.name} applied to {len(bitten)} examples of {base.TRIES}", flush=True)
            made += [(example, mutation) for example in bitten]
        yield "mutated", sort, made


def wrong_ones(batch: list[Made], sort: str, spark: SparkSession) -> list[str]:
    """What is judged wrong: a missed mutation, or a kind that is not there."""
    examples = [example for example, _ in batch]
    with tempfile.TemporaryDirectory() as folder:
        _, anomalies = judged(examples, Path(folder) / "run", spark, contract=CONTRACTS[sort])
    wrong = [f"  names no example: {told(anomalies[s])}" for s in set(anomalies) - {e.prefix for e in examples}]
    for example, mutation in batch:
        rows = anomalies.get(example.prefix, [])
        due = {mutation.kind, *mutation.may} if mutation else set()
        other = [r for r in never_allowed(rows, example) if r["kind"] not in due]
        hit = mutation is None or any(r["kind"] == mutation.kind and mutation.form in (None, r["form"]) for r in rows)
        if other or not hit:
            name = mutation.name if mutation else "clean"
            wrong.append(f"  {name} {'reported as' if other else 'missed'} {example.plan}\n{told(other or rows)}")
    return wrong


if __name__ == "__main__":
    main()
