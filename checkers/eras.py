"""The lives of topics that were deleted and made again, as values: windows between lives, and eras in numbers.

`views.life_windows` finds the windows and `views.lives` gives rows their `era`; both sizes of run share what is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FOREVER = 2**62
"""Index and time of what does not come."""
UNDECIDED = 1_000_000
"""The least era that stands for several lives: UNDECIDED * (first + 1) + last."""
MOST_LIVES = 2_000
"""So that the number fits in 32 bits."""
Topic = tuple[str, str]
"""cluster, name there"""


@dataclass(frozen=True)
class Window:
    """Where one life of a topic ends and the next begins. begin, end: indices of events; begin_ns, end_ns: their times;
    ends: partition → where the log of the life before was known to end, before the window."""

    begin: int
    end: int
    begin_ns: int
    end_ns: int
    ends: Mapping[int, int] = field(default_factory=dict)


Lives = Mapping[Topic, tuple[Window, ...]]


def era_of(windows: tuple[Window, ...], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """As `views.lives.with_era`, of one topic, in numbers."""
    first = np.searchsorted(np.array([w.end for w in windows]), begin, side="left").astype(np.int64)
    last = np.searchsorted(np.array([w.begin for w in windows]), end, side="left").astype(np.int64)
    last = np.maximum(first, last)
    return np.where(first == last, first, (np.minimum(first, MOST_LIVES) + 1) * UNDECIDED + last)
