"""Windows between the lives (incarnations) of a topic, and the lives of operations and topic ids that follow."""

from __future__ import annotations

import numpy as np
import pytest

from checkers.eras import FOREVER, UNDECIDED, Topic, Window, era_of
from checkers.views.recreations import Step, windows_of
from checkers.views.topic_ids import eras_of_ids

T: Topic = ("A", "t")


def step(delete: bool, begin: int, end: int | None, done: bool = True) -> Step:
    """A deletion or creation between two events; their times are ten times their indices."""
    ends = (FOREVER, FOREVER) if end is None else (end, 10 * end)
    return Step(delete, begin, 10 * begin, *ends, done)


def delete(begin: int, end: int | None, done: bool = True) -> Step:
    return step(True, begin, end, done)


def create(begin: int, end: int | None, done: bool = True) -> Step:
    return step(False, begin, end, done)


def spans(*steps: Step, shown: dict[int, int] | None = None) -> list[tuple[int, int | None]]:
    """Begin and end (None: never) of each window; shown: number of a deletion → index of the first evidence."""
    evidence = {n: (at, 10 * at) for n, at in (shown or {}).items()}
    found = windows_of(sorted(steps, key=lambda s: s.begin), evidence, {})
    assert all(w.begin_ns == 10 * w.begin and w.end_ns == (10 * w.end if w.end < FOREVER else FOREVER) for w in found)
    return [(w.begin, None if w.end == FOREVER else w.end) for w in found]


@pytest.mark.parametrize(
    ("steps", "shown", "expected"),
    [
        ([], {}, []),
        ([create(0, 1)], {}, []),
        ([create(0, 1), delete(5, 6), create(7, 8)], {}, [(5, 8)]),
        ([delete(5, 6)], {}, [(5, None)]),
        ([delete(5, 6)], {0: 9}, [(5, 9)]),
        ([delete(5, None, False)], {}, []),
        ([delete(5, 6, False)], {}, []),
        ([delete(5, 6, False)], {0: 9}, [(5, 9)]),
        ([delete(5, 6, False), create(7, 8)], {}, [(5, 8)]),
        ([delete(5, 6, False), create(7, 8, False)], {}, []),
        # a creation at the same time: whatever comes after both is new
        ([create(4, 7), delete(5, 6)], {}, [(5, 7)]),
        ([create(4, 6), delete(5, 8)], {}, [(5, 8)]),
        ([create(4, 6), delete(5, 8), create(9, 10)], {}, [(5, 10)]),
        # the creation before a deletion is no evidence for it
        ([delete(5, 6, False), delete(8, 9), create(10, 11)], {}, [(8, 11)]),
        ([delete(5, 6, False), delete(8, 9, False), create(10, 11)], {}, [(8, 11)]),
        ([delete(5, 6), delete(8, 9), create(10, 11)], {}, [(5, 11)]),
        ([delete(5, 6), delete(8, 9, False)], {}, [(5, None)]),
        ([delete(5, 6), create(7, 8), delete(9, 10), create(11, 12)], {}, [(5, 8), (9, 12)]),
        # a deletion before the creation was answered
        ([delete(5, 6), create(7, 12), delete(9, 10), create(13, 14)], {}, [(5, 14)]),
    ],
)
def test_windows(steps: list[Step], shown: dict[int, int], expected: list[tuple[int, int | None]]) -> None:
    assert spans(*steps, shown=shown) == expected


def test_eras_of_operations() -> None:
    windows = (Window(10, 20, 0, 0), Window(30, FOREVER, 0, 0))
    cases = {
        (1, 9): 0,
        (1, 10): 0,
        (1, 11): UNDECIDED + 1,
        (12, 15): UNDECIDED + 1,
        (20, 25): UNDECIDED + 1,
        (21, 25): 1,
        (15, 31): UNDECIDED + 2,
        (22, 40): 2 * UNDECIDED + 2,
        (50, 60): 2 * UNDECIDED + 2,
    }
    begin, end = (np.array(column) for column in zip(*cases, strict=True))
    assert era_of(windows, begin, end).tolist() == list(cases.values())


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([("one", 0, False)], {"one": 0}),
        ([("one", 0, False), ("two", 1, False)], {"one": 0, "two": 1}),
        ([("one", 0, True), ("one", 1, False), ("two", 1, True)], {"one": 0, "two": 1}),
        # a snapshot within the window
        ([("one", 0, False), ("two", UNDECIDED + 1, False)], {"one": 0, "two": 1}),
        ([("one", UNDECIDED + 1, False), ("two", 1, False)], {"one": 0, "two": 1}),
        ([("one", UNDECIDED + 1, False)], {}),
        # two ids after the window: the leader has the new one
        ([("one", 1, False), ("two", 1, True)], {"one": 0, "two": 1}),
        ([("one", 1, False), ("two", 1, False)], {"one": UNDECIDED + 1, "two": UNDECIDED + 1}),
        ([("one", 2, False), ("two", 2, True)], {"one": UNDECIDED + 1, "two": 2}),
    ],
)
def test_lives_of_ids(seen: list[tuple[str, int, bool]], expected: dict[str, int]) -> None:
    assert eras_of_ids(seen) == expected
