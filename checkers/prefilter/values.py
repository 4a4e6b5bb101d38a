"""Second pass: everything known about one value, and whether it needs a close check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from checkers.prefilter.buckets import by_blocks
from checkers.prefilter.hashing import Ints, Mask, mixed
from checkers.prefilter.order import bad_lines, poll_seams
from checkers.prefilter.packed import Columns, Map, batch, pack, picked, runs, unpacked_by_kind
from checkers.prefilter.rows import (
    ABORTED,
    BY_COMMITTED,
    COMMITTED,
    CONFUSED,
    FAIL,
    FINAL,
    HELD_ABORTED,
    NEVER,
    NONE,
    OK,
    READ,
    STEPPED,
    STORED,
    STRADDLES,
    WHOLE,
    combined_reads,
    combined_sends,
)

MUST, UNDONE, FAILED, UNSURE = 3, 2, 1, 0
"""How a send ended: acknowledged or committed; aborted; failed for certain; unknown."""
SHOWN, HIDDEN = 1, 2
"""Bits of `shown`: a read_committed reader was shown the value; one skipped it."""
_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Ends:
    """`partitions.final_state` of each place, in order of `place`; the first row is a placeholder. `snapshot_ns` and
    `final_ns`: -1 without a snapshot or final read; `excused`: deleted since, so that missing values need not be
    lost; `final_polls`: the cluster's final reads are polls of the phase final; rc_start, rc_end: the range that
    read_committed final reads covered."""

    place: Ints
    snapshot_ns: Ints
    log_start: Ints
    final_ns: Ints
    final_polls: Mask
    excused: Mask
    rc_start: Ints
    rc_end: Ints
    imported: bool
    buckets: int

    def of(self, place: Ints) -> tuple[Ints, Mask]:
        """Row numbers of places, and which are known at all."""
        at = np.minimum(np.searchsorted(self.place, place), len(self.place) - 1)
        return at, self.place[at] == place


def second_pass(ends: Ends) -> Map:
    """A function for `mapInArrow` over the blocks of one bucket; gives blocks of results."""

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = unpacked_by_kind(batches)
        suspects, lines, shown = by_value(ends, rows["sends"], rows["reads"])
        found = np.unique(np.concatenate([suspects, conflicts(rows["at_offsets"])]))
        lines = np.union1d(lines, bad_lines(rows["order"])["line"])
        back, gaps = poll_seams(rows["polls"])
        out = [*pack("suspects", {"vh": found}), *pack("bad_lines", {"line": lines})]
        out += [*pack("shown", shown, shown["txn"] % ends.buckets)]
        yield batch([*out, *pack("back", back), *by_blocks(ends.buckets, gaps)])

    return scan


def conflicts(at_offsets: Columns) -> Ints:
    """Values that share an offset: two or more were seen, or acknowledged, there."""
    order = np.lexsort((at_offsets["vh"], at_offsets["offset"], at_offsets["place"]))
    rows = picked(at_offsets, order)
    starts = runs(rows["place"], rows["offset"])
    counts = np.diff(starts, append=len(order))
    last = starts + counts - 1
    mixed = np.repeat(rows["vh"][starts] != rows["vh"][last], counts) if len(starts) else np.zeros(0, bool)
    return np.asarray(rows["vh"][mixed])


def outcomes(sends: Columns, *, imported: bool) -> Ints:
    """As `history._outcome`, in numbers."""
    bits = sends["bits"]

    def has(bit: int) -> Mask:
        return np.asarray(bits & bit != 0)

    ok, fail = has(OK) & ~has(FAIL), has(FAIL) & ~has(OK)
    acked = ok if imported else ok | (~fail & (sends["offset"] >= 0))
    whole = np.select([ok, fail], [MUST, UNDONE], UNSURE)
    decided = np.select([~has(STEPPED), has(COMMITTED)], [MUST, MUST], UNSURE)
    return np.select([has(WHOLE), has(STEPPED) & has(ABORTED), fail, ~acked], [whole, UNDONE, FAILED, UNSURE], decided)


class _Seen:
    """Where values were seen, beside their sends (`send`: one per value). Copies that the log holds aborted, and nobody
    read, are left out."""

    def __init__(self, values: Ints, send: Columns, reads: Columns) -> None:
        self.reads = picked(reads, reads["bits"] != HELD_ABORTED)
        self.value = np.searchsorted(values, self.reads["vh"])  # for every read the row of its value
        self.count = len(values)
        self.in_place = self.reads["place"] == send["place"][self.value]
        self.acknowledged = self.in_place & (self.reads["offset"] == send["offset"][self.value])

    def any(self, where: Mask) -> Mask:
        """Values of which such a read is there."""
        return np.bincount(self.value[where], minlength=self.count) > 0

    def with_bit(self, bit: int) -> Mask:
        """Values with a read with this bit."""
        return self.any(self.reads["bits"] & bit != 0)

    def as_acknowledged(self, bit: int) -> Mask:
        """Values with a read with this bit at their acknowledged offset."""
        return self.any(self.acknowledged & (self.reads["bits"] & bit != 0))

    def strayed(self) -> Mask:
        """Values in the place that they were sent to, but not at the acknowledged offset."""
        return self.any(self.in_place & ~self.acknowledged)


def by_value(ends: Ends, sends: Columns, reads: Columns) -> tuple[Ints, Ints, Columns]:
    """Values that need a close check; lines with a value that is not at its acknowledged offset; `shown`."""
    sends, reads = combined_sends(sends), combined_reads(reads)
    values = np.union1d(sends["vh"], reads["vh"])
    first = np.minimum(np.searchsorted(sends["vh"], values), max(0, len(sends["vh"]) - 1))
    count = np.searchsorted(sends["vh"], values, side="right") - np.searchsorted(sends["vh"], values)
    if not len(sends["vh"]):
        return values, np.zeros(0, np.int64), {name: np.zeros(0, np.int64) for name in ("txn", "vh", "bits")}
    send = picked(sends, first)  # one per value; values with another number of sends are kept anyway
    outcome = outcomes(send, imported=ends.imported)
    seen = _Seen(values, send, reads)
    aborted = np.isin(values, reads["vh"][reads["bits"] & HELD_ABORTED != 0])
    bad = (count != 1) | _too_early(values, sends, reads) | (aborted & seen.with_bit(BY_COMMITTED))
    bad |= _wrongly_seen(send, outcome, seen) | _not_where_due(ends, send, outcome, seen)
    again = np.zeros(len(sends["vh"]), bool)
    again[1:] = sends["vh"][1:] == sends["vh"][:-1]
    again[:-1] |= again[1:]
    loose = (outcome == MUST) & (seen.strayed() | (send["offset"] < 0))
    lines = np.append(send["line"][loose], sends["line"][again])
    return values[bad], np.unique(lines[lines != 0]), _shown(ends, sends, reads)


def _wrongly_seen(send: Columns, outcome: Ints, seen: _Seen) -> Mask:
    """Values that were seen in another place, by their own transaction, twice in one place, or although undone."""
    reads, value = seen.reads, seen.value
    bad = seen.any(reads["target"] != send["target"][value])
    bad |= seen.any((reads["txn"] != 0) & (reads["txn"] == send["txn"][value]))
    bad |= _copies(value, reads, seen.count)
    bad |= (outcome == UNDONE) & seen.with_bit(BY_COMMITTED)
    bad |= (outcome == FAILED) & seen.with_bit(READ)
    return np.asarray(bad | (np.isin(outcome, (UNDONE, FAILED)) & seen.with_bit(STORED)))


def _not_where_due(ends: Ends, send: Columns, outcome: Ints, seen: _Seen) -> Mask:
    """Values that are not where their send was acknowledged, then or at the end, or whose send does not say where."""
    must = outcome == MUST
    answered = must | (np.isin(outcome, (UNSURE, UNDONE)) & (send["offset"] >= 0))
    bad = (send["bits"] & (CONFUSED | STRADDLES) != 0) | (answered & seen.strayed())
    at, known = ends.of(send["place"])
    when = np.where(send["ended"] >= 0, send["ended"], send["invoked"])
    in_log = (ends.snapshot_ns[at] >= when) & (send["offset"] >= ends.log_start[at])
    final = np.where(ends.final_polls[at], seen.as_acknowledged(FINAL), seen.as_acknowledged(READ))
    gone = known & ((in_log & ~seen.as_acknowledged(STORED)) | ((ends.final_ns[at] >= when) & ~final))
    excused = known & ends.excused[at] & (send["offset"] >= 0)
    bad |= must & ~excused & (~seen.any(seen.acknowledged) | gone)
    return np.asarray(bad | (must & ((send["place"] == 0) | (send["offset"] < 0))))


def _copies(value: Ints, reads: Columns, count: int) -> Mask:
    """Values at two or more offsets of one place."""
    order = np.lexsort((reads["offset"], reads["place"], value))
    v, place, offset = value[order], reads["place"][order], reads["offset"][order]
    again = (v[1:] == v[:-1]) & (place[1:] == place[:-1]) & (offset[1:] != offset[:-1])
    return np.asarray(np.bincount(v[1:][again], minlength=count) > 0)


def _too_early(values: Ints, sends: Columns, reads: Columns) -> Mask:
    """Values that a read_committed poll returned before the last request to commit their transaction."""
    asked = np.full(len(values), NONE)
    np.maximum.at(asked, np.searchsorted(values, sends["vh"]), sends["asked"])
    first = np.full(len(values), NEVER)
    np.minimum.at(first, np.searchsorted(values, reads["vh"]), reads["first"])
    return np.asarray(first < asked)


def _shown(ends: Ends, sends: Columns, reads: Columns) -> Columns:
    """Records of transactions that read_committed readers were shown, or the log holds, and those that readers skipped,
    or may have seen elsewhere, or the log does not hold."""
    sends = picked(sends, sends["txn"] != 0)
    outcome = outcomes(sends, imported=ends.imported)
    sent_at, seen_at = (
        mixed(sends["vh"], sends["place"], sends["offset"]),
        mixed(reads["vh"], reads["place"], reads["offset"]),
    )
    committed = reads["bits"] & BY_COMMITTED != 0
    seen = np.isin(sent_at, seen_at[committed])
    loose = (sends["offset"] < 0) | (sends["bits"] & (CONFUSED | STRADDLES) != 0)
    seen |= loose & np.isin(sends["vh"], reads["vh"][committed])
    stored = np.isin(sent_at, seen_at[reads["bits"] & STORED != 0])
    at, known = ends.of(sends["place"])
    passed = known & (ends.rc_start[at] <= sends["offset"]) & (sends["offset"] < ends.rc_end[at])
    gone = known & (ends.snapshot_ns[at] >= 0) & (sends["offset"] >= ends.log_start[at]) & ~stored
    hidden = np.isin(outcome, (MUST, UNSURE)) & (~seen & (passed | (sends["offset"] < 0)) | gone)
    rows = np.flatnonzero(seen | stored | hidden)
    bits = (seen | stored) * np.int64(SHOWN) | hidden * np.int64(HIDDEN)
    return {"txn": sends["txn"][rows], "vh": sends["vh"][rows], "bits": bits[rows]}
