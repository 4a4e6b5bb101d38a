"""Topics that were deleted and recreated: windows between their incarnations, and eras as numbers.

`views.recreations` finds the windows, `views.failbacks` the failbacks that discard a branch of a log, and
`views.incarnations` gives rows their `era`; runs of both sizes share this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FOREVER = 2**62
"""Index and time of an event that never comes."""
UNDECIDED = 1_000_000
"""The lowest era that stands for several incarnations: UNDECIDED * (first + 1) + last."""
MOST_INCARNATIONS = 2_000
"""So that the number fits in 32 bits."""
Topic = tuple[str, str]
"""cluster, name there"""


@dataclass(frozen=True)
class Window:
    """Between one incarnation of a topic and the next. begin, end: indices of events; begin_ns, end_ns: their
    times; ends: partition → the known log end of the incarnation before, before the window."""

    begin: int
    end: int
    begin_ns: int
    end_ns: int
    ends: Mapping[int, int] = field(default_factory=dict)


Incarnations = Mapping[Topic, tuple[Window, ...]]
Failbacks = Mapping[tuple[str, str, int], tuple[tuple[int, int], ...]]
"""(cluster, topic there, partition) → (time of a failback to this cluster, the cut), ascending."""


def era_of(windows: tuple[Window, ...], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Like `views.incarnations.with_era`, for one topic, on arrays."""
    first = np.searchsorted(np.array([w.end for w in windows]), begin, side="left").astype(np.int64)
    last = np.searchsorted(np.array([w.begin for w in windows]), end, side="left").astype(np.int64)
    last = np.maximum(first, last)
    return np.where(first == last, first, (np.minimum(first, MOST_INCARNATIONS) + 1) * UNDECIDED + last)
