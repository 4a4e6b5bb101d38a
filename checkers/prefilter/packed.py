"""Packed columns: many rows of integers as one binary value, so that Spark moves blocks instead of rows.

A block holds columns of one length, one after the other, eight bytes a number. `KINDS` names the kinds of block and
their columns. Frames of blocks have the columns of `SCHEMA`: kind, bucket, data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from checkers.prefilter.hashing import Ints, Mask

Columns = dict[str, Ints]
Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`."""
Blocks = Iterator[tuple[str, int, bytes]]
"""kind, bucket and data of some blocks."""

KINDS: Mapping[str, tuple[str, ...]] = {
    # by value: sends, one row per value and operation (bits: see rows.DONE)
    "sends": ("vh", "op", "place", "target", "offset", "line", "txn", "bits", "invoked", "ended", "asked"),
    # by value: where it was seen (bits: see rows.READ; txn: of the operation that read it, 0 outside; first: index of
    # the first read_committed poll that returned it)
    "reads": ("vh", "place", "target", "offset", "txn", "bits", "first"),
    # by place: which value was seen, or acknowledged, at which offset
    "at_offsets": ("place", "offset", "vh"),
    # by line: a range's first and last acknowledged send of a line; bad: they were not in order
    "order": ("line", "first_op", "last_op", "first_offset", "last_offset", "bad"),
    # by line: a range's first and last read of a line
    "polls": (
        *("line", "place", "first_index", "first_position", "first_offset"),
        *("last_index", "last_position", "last_offset"),
    ),
    # steps from read to read that go back, or over a gap
    "back": ("index", "position", "offset", "before", "before_index"),
    "gaps": ("place", "index", "position", "offset", "before", "before_index"),
    "wide": ("place", "index", "position", "offset", "before", "before_index"),
    # results
    "suspects": ("vh",),
    "bad_lines": ("line",),
    "shown": ("txn", "vh", "bits"),
}
SCHEMA = "kind string, bucket int, data binary"
ARROW = pa.schema([("kind", pa.string()), ("bucket", pa.int32()), ("data", pa.binary())])


def pack(kind: str, columns: Mapping[str, Ints], bucket: Ints | None = None) -> Blocks:
    """Rows of a frame of blocks: one per bucket that has any row; without buckets one at most."""
    names = KINDS[kind]
    rows = len(columns[names[0]])
    if not rows:
        return
    if bucket is None:
        yield kind, 0, b"".join(np.ascontiguousarray(columns[n], np.int64).tobytes() for n in names)
        return
    few = bucket.astype(np.uint16)  # a narrow type, because its sort is linear
    order = np.argsort(few, kind="stable")
    few = few[order]
    starts = np.flatnonzero(np.diff(few, prepend=np.int64(-1)))
    whole = [np.ascontiguousarray(columns[n], np.int64)[order] for n in names]
    for start, end in zip(starts, [*starts[1:], rows], strict=True):
        yield kind, int(few[start]), b"".join(column[start:end].tobytes() for column in whole)


def unpack(kind: str, blocks: Iterable[bytes]) -> Columns:
    """The columns of some blocks, concatenated."""
    names = KINDS[kind]
    parts = [np.frombuffer(block, np.int64).reshape(len(names), -1) for block in blocks]
    whole = np.concatenate(parts, axis=1) if parts else np.zeros((len(names), 0), np.int64)
    return dict(zip(names, whole, strict=True))


def batch(rows: Iterable[tuple[str, int, bytes]]) -> pa.RecordBatch:
    """Rows of `pack` as Arrow."""
    kinds, buckets, data = [], [], []
    for kind, bucket, block in rows:
        kinds.append(kind)
        buckets.append(bucket)
        data.append(block)
    columns = (pa.array(kinds, pa.string()), pa.array(buckets, pa.int32()), pa.array(data, pa.binary()))
    return pa.RecordBatch.from_arrays(list(columns), schema=ARROW)


def unpacked_by_kind(batches: Iterable[pa.RecordBatch]) -> dict[str, Columns]:
    """kind → columns, of all blocks of a task; every kind is there."""
    found: dict[str, list[bytes]] = {kind: [] for kind in KINDS}
    for some in batches:
        for kind, data in zip(some.column("kind").to_pylist(), some.column("data").to_pylist(), strict=True):
            if data is not None:
                found[kind].append(data)
    return {kind: unpack(kind, blocks) for kind, blocks in found.items()}


def picked(columns: Mapping[str, Ints], rows: Ints | Mask) -> Columns:
    """Some rows: a mask, or row numbers."""
    return {name: column[rows] for name, column in columns.items()}


def runs(*keys: Ints) -> Ints:
    """Where rows with equal keys begin, of columns that are sorted by them."""
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    first = np.ones(len(keys[0]), bool)
    for n, key in enumerate(keys):
        differs = key[1:] != key[:-1]
        first[1:] = differs if n == 0 else first[1:] | differs
    return np.flatnonzero(first)
