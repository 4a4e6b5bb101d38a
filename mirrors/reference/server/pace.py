"""How long to wait between small fetches, and between metadata snapshots. Pure.

The cost of a trickle of records is mostly the number of requests, here and at the brokers on both sides. So after a
small response the sender waits a moment for more, once per hop: this adds some hundredths of a second of delay.
A metadata snapshot costs something for every partition: the more partitions, the rarer the periodic snapshots.
"""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.04
SMALL_BYTES: Final = 64 * 1024
_PARTITION_S: Final = 0.001


def rest(size: int, passed_s: float) -> float:
    """Seconds to wait before the next exchange: `size` bytes were in the last one, which began `passed_s` ago."""
    return max(0.0, PACE_S - passed_s) if size < SMALL_BYTES else 0.0


def poll_interval(least_s: float, partitions: int) -> float:
    """Seconds between two periodic snapshots with this many partitions."""
    return least_s + partitions * _PARTITION_S
