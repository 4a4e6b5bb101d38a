"""The judge against a model: correct histories show no anomalies, and each mutation of one is reported as its kind.

One judgement for all: `model.pack` stores every example in one run, under names of its own. See docs/trust.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.example import Example, simulate
from model.generated import SORTS, sort_of_plans
from model.mutations.catalogue import MUTATIONS, OUT_OF_REACH
from model.pack import CONTRACTS, Anomalies, judged, never_allowed, told

from checkers.base import Severity
from checkers.catalogue import CATALOGUE
from checkers.judge.judge import UNKNOWN, Judgement

EACH = 2
"""Examples for each mutation."""


@dataclass
class Together:
    """All examples by the name of their mutation, and what was found in each."""

    clean: list[Example]
    bitten: dict[str, list[Example]]
    judgement: Judgement | None = None
    anomalies: Anomalies = field(default_factory=dict)

    @property
    def every(self) -> list[Example]:
        return [*self.clean, *(e for found in self.bitten.values() for e in found)]


Results = Callable[[str], Together]


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """sort → its examples and findings, judged at first use."""

    @cache
    def of(sort: str) -> Together:
        together = Together([simulate(plan, n) for n, plan in enumerate(sort_of_plans(sort))], {})
        chosen = [m for m in MUTATIONS.values() if m.sort == sort]
        for n, mutation in enumerate(chosen):
            together.bitten[mutation.name] = mutation.bitten(EACH, first=n * EACH)
        folder = tmp_path_factory.mktemp("model") / sort
        together.judgement, together.anomalies = judged(together.every, folder, spark, contract=CONTRACTS[sort])
        return together

    return of


@pytest.mark.parametrize("sort", SORTS)
def test_correct_histories_show_no_anomalies(results: Results, sort: str) -> None:
    together = results(sort)
    wrong = []
    for example in together.clean:
        rows = never_allowed(together.anomalies.get(example.prefix, []), example)
        if rows:
            wrong.append(f"{example.prefix} {example.plan}\n{told(rows)}")
    assert not wrong, f"{len(wrong)} of {len(together.clean)} (see model.generated)\n" + "\n".join(wrong[:5])


def test_after_a_failed_healing_missing_records_are_unknown(results: Results) -> None:
    together = results("unhealed")
    judgement = together.judgement
    assert judgement is not None
    assert judgement.verdict == UNKNOWN
    assert "the harness could not heal: broker of e0002-" in judgement.why
    assert not [f for f in judgement.findings if f.breaches and f.kind.severity is not Severity.UNKNOWN]
    found = {r["kind"] for e in together.clean for r in together.anomalies.get(e.prefix, [])}
    assert "mirror_loss" in found, "missing records are still in the tables"


@pytest.mark.parametrize("sort", SORTS)
def test_every_anomaly_names_its_example(results: Results, sort: str) -> None:
    together = results(sort)
    strangers = set(together.anomalies) - {e.prefix for e in together.every}
    assert not strangers, [told(together.anomalies[s]) for s in strangers]


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_reported_as_its_kind(results: Results, name: str) -> None:
    mutation = MUTATIONS[name]
    together = results(mutation.sort)
    examples = together.bitten[name]
    assert len(examples) == EACH, f"{name} applies to {len(examples)} examples only"
    for example in examples:
        rows = together.anomalies.get(example.prefix, [])
        hits = [r for r in rows if r["kind"] == mutation.kind and mutation.form in (None, r["form"])]
        assert hits, f"{name} was not reported as {mutation.kind}/{mutation.form} in {example.plan}\n{told(rows)}"
        other = [r for r in never_allowed(rows, example) if r["kind"] not in {mutation.kind, *mutation.may}]
        assert not other, f"{name} was also reported as another kind in {example.plan}\n{told(other)}"


def test_every_kind_has_a_mutation() -> None:
    reached = {m.kind for m in MUTATIONS.values()} | OUT_OF_REACH.keys()
    assert reached >= CATALOGUE.keys()
    assert all(reason for m in MUTATIONS.values() for reason in m.may.values())
