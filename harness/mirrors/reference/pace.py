"""How soon small news follow small news. Pure.

What a trickle of records costs is mostly the number of requests that carry it, here and at the brokers on both sides.
So whoever got little waits a moment for more, once for each hop: it adds up to some hundredths of a second of delay.
"""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.02
SMALL_BYTES: Final = 64 * 1024


def rest(size: int, passed_s: float) -> float:
    """Seconds to wait before the next exchange: `size` bytes were in the last one, which began `passed_s` ago."""
    return max(0.0, PACE_S - passed_s) if size < SMALL_BYTES else 0.0
