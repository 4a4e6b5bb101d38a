"""The judge against a model: right histories are never called wrong, and each thing made wrong in one is named rightly.

One judgement for all: `model.pack` stores every example in one run, under names of its own. See docs/trust.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.book import Row
from model.example import Example, simulate
from model.generated import SORTS, sort_of_plans
from model.mutations.catalogue import MUTATIONS, OUT_OF_REACH
from model.pack import CONTRACTS, Anomalies, judged, told

from checkers.catalogue import CATALOGUE
from harness import contracts
from harness.contracts import Level

EACH = 2
"""Examples that every mutation bites."""


@dataclass
class Together:
    """All examples, by the name of what was made wrong in them, and what was found in each."""

    clean: list[Example]
    bitten: dict[str, list[Example]]
    anomalies: Anomalies = field(default_factory=dict)

    @property
    def every(self) -> list[Example]:
        return [*self.clean, *(e for found in self.bitten.values() for e in found)]


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Together]:
    """sort → everything about its examples."""
    found = {}
    for sort in SORTS:
        together = Together([simulate(plan, n) for n, plan in enumerate(sort_of_plans(sort))], {})
        chosen = [m for m in MUTATIONS.values() if m.sort == sort]
        for n, mutation in enumerate(chosen):
            together.bitten[mutation.name] = mutation.bitten(EACH, first=n * EACH)
        folder = tmp_path_factory.mktemp("model") / sort
        _, together.anomalies = judged(together.every, folder, spark, contract=CONTRACTS[sort])
        found[sort] = together
    return found


def never_allowed(together: Together, example: Example) -> list[Row]:
    """What the contract never allows; and a transaction in part at the stop, where none was cut in two."""
    contract = contracts.load(CONTRACTS[example.plan.sort])
    rows = together.anomalies.get(example.prefix, [])
    never = [r for r in rows if contract.clause(r["kind"], form=r["form"], cluster=r["cluster"]).level is Level.NEVER]
    split = [r for r in rows if r["kind"] == "cross_partition"]
    return [r for r in never + [r for r in split if r not in never] if r["kind"] not in example.tolerated]


@pytest.mark.parametrize("sort", SORTS)
def test_right_histories_are_never_called_wrong(results: dict[str, Together], sort: str) -> None:
    together = results[sort]
    wrong = []
    for example in together.clean:
        rows = never_allowed(together, example)
        if rows:
            wrong.append(f"{example.prefix} {example.plan}\n{told(rows)}")
    assert not wrong, f"{len(wrong)} of {len(together.clean)} (see model.generated)\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("sort", SORTS)
def test_every_anomaly_names_its_example(results: dict[str, Together], sort: str) -> None:
    together = results[sort]
    strangers = set(together.anomalies) - {e.prefix for e in together.every}
    assert not strangers, [told(together.anomalies[s]) for s in strangers]


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_made_wrong_is_named_rightly(results: dict[str, Together], name: str) -> None:
    mutation = MUTATIONS[name]
    together = results[mutation.sort]
    examples = together.bitten[name]
    assert len(examples) == EACH, f"{name} found something to bite on in {len(examples)} examples only"
    for example in examples:
        rows = together.anomalies.get(example.prefix, [])
        hits = [r for r in rows if r["kind"] == mutation.kind and mutation.form in (None, r["form"])]
        assert hits, f"{name} was not called {mutation.kind}/{mutation.form} in {example.plan}\n{told(rows)}"
        other = [r for r in never_allowed(together, example) if r["kind"] not in {mutation.kind, *mutation.may}]
        assert not other, f"{name} was called something else, too, in {example.plan}\n{told(other)}"


def test_every_kind_can_be_reached() -> None:
    reached = {m.kind for m in MUTATIONS.values()} | OUT_OF_REACH.keys()
    assert reached >= CATALOGUE.keys()
    assert all(reason for m in MUTATIONS.values() for reason in m.may.values())
