"""How soon small news follow small news, and how often to look. Pure.

What a trickle of records costs is mostly the number of requests that carry it, here and at the brokers on both sides.
So whoever got little waits a moment for more, once for each hop: it adds up to some hundredths of a second of delay.
Asking for metadata costs something for every partition: the more there are, the less often it is asked for unprompted.
"""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.04
SMALL_BYTES: Final = 64 * 1024
_PARTITION_S: Final = 0.001


def rest(size: int, passed_s: float) -> float:
    """Seconds to wait before the next exchange: `size` bytes were in the last one, which began `passed_s` ago."""
    return max(0.0, PACE_S - passed_s) if size < SMALL_BYTES else 0.0


def look_after(least_s: float, partitions: int) -> float:
    """Seconds between two looks at so many partitions that nothing hastens."""
    return least_s + partitions * _PARTITION_S
