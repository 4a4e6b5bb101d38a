"""Every kind of the catalogue, and every form, has a test that plants it, and a clean twin; else this fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

import planted

pytestmark = pytest.mark.unit


def test_every_kind_and_form_is_planted() -> None:
    missing = [key for key, fault, twin in planted.table() if not fault or not twin]
    assert not missing, f"tests/spark plants no {', '.join(missing)}: add a story, or a test and a line in planted.py"


@pytest.mark.parametrize("key", planted.ELSEWHERE)
def test_the_named_test_mentions_it(key: str) -> None:
    module, function, twin = planted.ELSEWHERE[key]
    kind, _, form = key.partition("/")
    functions = planted.words(module)
    assert function in functions, f"{module}.py has no {function}"
    assert {kind, form} - {""} <= functions[function]
    assert twin in functions or twin in functions[function], f"{function} has no {twin}"


def test_nothing_is_planted_that_the_catalogue_does_not_know() -> None:
    known = set(planted.wanted()) | {key.partition("/")[0] for key in planted.wanted()}
    assert set(planted.told()) <= known
    assert set(planted.ELSEWHERE) <= known
