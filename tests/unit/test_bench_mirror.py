"""The plan and the table of the mirrors' measurement."""

from __future__ import annotations

import pytest
from rich.console import Console

from bench.mirror import COLUMNS, cases, table
from bench.mirror_case import Load, Result

pytestmark = pytest.mark.unit


def test_every_mirror_has_every_number_of_partitions_and_another_one_begins_each_time() -> None:
    planned = list(cases([10, 100], ["a", "b", "c"], 2))
    assert [number for number, *_ in planned] == list(range(1, 13))  # each has its own container
    assert [p for _, p, _ in planned] == [10] * 6 + [100] * 6
    rows = [[name for *_, name in planned[n : n + 3]] for n in range(0, 12, 3)]
    assert rows == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_the_load_is_counted_in_values() -> None:
    load = Load(partitions=1, fill_mb=3, value_bytes=1000, rate=1.0, warm_s=1.0, paced_s=1.0, idle_s=1.0, limit_s=1.0)
    assert load.records == 3000


def test_the_table_shows_every_figure() -> None:
    console = Console(width=300, record=True)
    console.print(table([Result(mirror="reference", partitions=7, mb_per_s=12.34, p99_ms=5.6)]))
    text = console.export_text()
    assert all(title in text for title, *_ in COLUMNS)
    assert all(figure in text for figure in ("reference", "12.3", "5.6"))
