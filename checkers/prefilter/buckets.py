"""Which bucket rows go to: that of their value, or that of their place and block of offsets."""

from __future__ import annotations

import numpy as np

from checkers.prefilter.hashing import Ints, mixed
from checkers.prefilter.packed import Blocks, Columns, pack, picked

BLOCK_BITS = 20
"""Offsets of one place are tested in blocks of 2^20, so that a single large partition can be split."""


def by_value(buckets: int, kind: str, rows: Columns) -> Blocks:
    """Rows in the bucket of their value."""
    spread = (rows["vh"].view(np.uint64) >> np.uint64(33)).astype(np.int64)
    return pack(kind, rows, spread % buckets)


def by_place(buckets: int, rows: Columns) -> Blocks:
    """`at_offsets` of sends or reads, in the bucket of their place and block of offsets."""
    return pack("at_offsets", rows, _block(rows["place"], rows["offset"]) % buckets)


def by_blocks(buckets: int, gaps: Columns) -> Blocks:
    """`gaps` in the bucket of each block that they touch, or, where those are more than two, as `wide` in none."""
    first, last = np.maximum(gaps["before"], 0) >> BLOCK_BITS, gaps["offset"] >> BLOCK_BITS
    near = picked(gaps, last - first <= 1)
    yield from pack("gaps", near, _block(near["place"], near["offset"]) % buckets)
    both = picked(gaps, last - first == 1)
    yield from pack("gaps", both, _block(both["place"], np.maximum(both["before"], 0)) % buckets)
    yield from pack("wide", picked(gaps, last - first > 1))


def _block(place: Ints, offset: Ints) -> Ints:
    return mixed(place, offset >> BLOCK_BITS)
