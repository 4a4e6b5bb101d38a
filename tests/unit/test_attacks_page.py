"""docs/attacks.md: every attack of the list has a row, and each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")


def test_all_attacks_of_the_list_are_there() -> None:
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert numbers == set(range(1, 23))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE))))
def test_each_test_that_is_named_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_with_an_outcome_names_a_test() -> None:
    rows = [
        line for line in PAGE.splitlines() if line.startswith("| ") and "|---" not in line and "shown by" not in line
    ]
    assert rows
    assert [row for row in rows if "`tests/" not in row] == []
