"""Which texts of mirrors are reports: by the patterns of checkers.views.reports, without Spark."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.unit
reports = pytest.importorskip("checkers.views.reports")


@pytest.mark.parametrize(
    ("text", "ranges", "count", "since"),
    [
        ("offsets 2 to 3 of this log are discarded, to mirror over them", [(2, 3)], None, []),
        ("offsets 1288–1701 were dropped", [(1288, 1701)], None, []),
        ("2 records above the cut at 1 were discarded", [], 2, [1]),
        ("discarded 12 acknowledged records above the cut 7", [], 12, [7]),
        ("truncated to offset 1288", [], None, [1288]),
        ("log truncated", [], None, []),
        ("truncated 414 records from offset 1288", [], 414, [1288]),
    ],
)
def test_what_a_text_says_is_discarded(
    text: str, ranges: list[tuple[int, int]], count: int | None, since: list[int]
) -> None:
    assert re.search(reports.DISCARDED, text)
    assert not re.search(reports.FAILED, text)
    assert [(int(a), int(b)) for a, b in re.findall(reports.RANGE, text)] == ranges
    assert max(map(int, re.findall(reports.COUNT, text)), default=None) == count
    if not ranges:
        assert [int(n) for n in re.findall(reports.FROM, text)] == since


@pytest.mark.parametrize(
    "text",
    [
        "log truncation failed: no end offset for epoch 7",
        "could not truncate to offset 5",
        "truncation to offset 5 timed out",
        "records above offset 5 were not discarded",
    ],
)
def test_a_failure_is_no_report(text: str) -> None:
    assert re.search(reports.DISCARDED, text)
    assert re.search(reports.FAILED, text)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("a gap: offsets 2 to 3 expired on the source before they were mirrored", [2]),
        ("Fetch position FetchPosition{offset=2, offsetEpoch=Optional.empty} is out of range", [2]),
        ("log start 4 is above the offset 2 to be fetched next", [4, 2]),
        ("retention: nothing is known", []),
    ],
)
def test_what_a_text_says_of_expired_data(text: str, offsets: list[int]) -> None:
    assert re.search(reports.EXPIRED, text)
    assert [int(n) for n in re.findall(reports.OFFSET, text)] == offsets


@pytest.mark.parametrize("text", ["log truncated to offset 2", "Failed to get source metadata", "gapless"])
def test_other_texts_say_nothing_of_expired_data(text: str) -> None:
    assert not re.search(reports.EXPIRED, text)
