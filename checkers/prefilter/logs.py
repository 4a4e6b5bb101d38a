"""First pass over the authoritative logs: their records as reads, next to those of the events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from checkers.prefilter import spans
from checkers.prefilter.buckets import by_place, by_value
from checkers.prefilter.coded import Coded, ints
from checkers.prefilter.events import as_first
from checkers.prefilter.packed import Map, picked
from checkers.prefilter.places import Context, located
from checkers.prefilter.rows import HELD_ABORTED, NEVER, NONE, STORED


def stored_pass(context: Context) -> Map:
    """A function for `mapInArrow` over the records of the authoritative logs (columns cluster, topic, partition, era,
    offset, vh, aborted); gives rows of FIRST."""

    def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        held: list[pa.RecordBatch] = []
        for some in batches:
            held.append(some)
            if sum(len(b) for b in held) >= spans.SPAN_ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in pieces(batches):
            cluster, topic = Coded(some["cluster"]), Coded(some["topic"])
            partition, era = ints(some["partition"], NONE), ints(some["era"])
            place, target, _ = located(context, cluster, topic, partition, era=era)
            count = len(place)
            reads = {"vh": ints(some["vh"]), "place": place, "target": target, "offset": ints(some["offset"])}
            aborted = some["aborted"].to_numpy(zero_copy_only=False).astype(bool)
            bits = np.where(aborted, HELD_ABORTED, STORED)
            reads = {**reads, "txn": np.zeros(count, np.int64), "bits": bits, "first": np.full(count, NEVER)}
            there = by_place(context.buckets, picked(reads, ~aborted))
            yield as_first([*by_value(context.buckets, "reads", reads), *there])

    return scan
