"""Tests that the second pass cannot decide bucket by bucket; each runs only on histories that need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from checkers.prefilter.buckets import BLOCK_BITS
from checkers.prefilter.hashing import Ints
from checkers.prefilter.packed import Columns, Map, batch, pack, picked, runs, unpacked_by_kind
from checkers.prefilter.values import HIDDEN, SHOWN


def of_lines(lines: Ints) -> Map:
    """Over blocks of `sends`: `suspects`, all values of some lines."""

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            sends = unpacked_by_kind([some])["sends"]
            yield batch(pack("suspects", {"vh": sends["vh"][np.isin(sends["line"], lines)]}))

    return scan


def of_transactions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Over the blocks `shown` of one bucket: `suspects`, all values of transactions that were shown in part."""
    rows = unpacked_by_kind(batches)["shown"]
    rows = picked(rows, np.argsort(rows["txn"], kind="stable"))
    starts = runs(rows["txn"])
    if not len(starts):
        return
    seen = np.bitwise_or.reduceat(rows["bits"], starts)
    torn = np.repeat(seen == SHOWN | HIDDEN, np.diff(starts, append=len(rows["txn"])))
    yield batch(pack("suspects", {"vh": rows["vh"][torn]}))


def of_gaps(wide: Columns) -> Map:
    """Over the blocks `at_offsets` and `gaps` of one bucket: the steps (`back`) from read to read over existing
    records, and these records as `suspects`. wide: steps over so many blocks that every bucket must check them."""

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = unpacked_by_kind(batches)
        at_offsets = rows["at_offsets"]
        at_offsets = picked(at_offsets, np.lexsort((at_offsets["offset"], at_offsets["place"])))
        gaps = {name: np.concatenate([rows["gaps"][name], column]) for name, column in wide.items()}
        hit = np.zeros(len(gaps["place"]), bool)
        inside = np.zeros(len(at_offsets["vh"]) + 1, np.int64)
        for place in np.unique(gaps["place"]).tolist():
            mine = np.flatnonzero(gaps["place"] == place)
            low, high = (
                np.searchsorted(at_offsets["place"], place),
                np.searchsorted(at_offsets["place"], place, side="right"),
            )
            offsets = at_offsets["offset"][low:high]
            first = np.searchsorted(offsets, gaps["before"][mine], side="right")
            last = np.searchsorted(offsets, gaps["offset"][mine])
            # Across a block's edge a record may be on the other side.
            over = (np.maximum(gaps["before"][mine], 0) >> BLOCK_BITS) != (gaps["offset"][mine] >> BLOCK_BITS)
            hit[mine] = (last > first) | over
            end = np.searchsorted(offsets, gaps["offset"][mine], side="right")
            np.add.at(inside, low + first[hit[mine]], 1)
            np.add.at(inside, low + end[hit[mine]], -1)
        found = at_offsets["vh"][np.cumsum(inside[:-1]) > 0]
        yield batch([*pack("back", picked(gaps, hit)), *pack("suspects", {"vh": found})])

    return scan
