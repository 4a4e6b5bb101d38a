"""Sends and reads as rows of numbers: their bits, and the rows of one key combined into one."""

from __future__ import annotations

import numpy as np

from checkers.prefilter.hashing import mixed
from checkers.prefilter.packed import Columns, picked, runs

DONE, OK, FAIL, WHOLE, STEPPED, COMMITTED, ABORTED, CONFUSED, STRADDLES = (1 << n for n in range(9))
"""Bits of `sends`: it has a completion, an ok, a fail; it is a transaction as one operation, or a step of one; that
transaction was committed, aborted; its events name different places; it may be of several incarnations of its topic."""
READ, FINAL, BY_COMMITTED, STORED, HELD_ABORTED = (1 << n for n in range(5))
"""Bits of `reads`: a poll returned it, a final one did, a read_committed one did; the log that counts holds it; holds
it aborted."""
NONE = -1
"""An unknown offset, time or index."""
NEVER = np.iinfo(np.int64).max
"""Index of an event that did not happen."""


def combined_sends(rows: Columns) -> Columns:
    """One row per value and operation; its place is that of its completion, else that of any event."""
    order = np.lexsort((rows["bits"] & DONE, rows["op"], rows["vh"]))
    rows = picked(rows, order)
    starts = runs(rows["vh"], rows["op"])
    if len(starts) == len(order):
        return rows
    lasts = np.append(starts[1:], len(order)) - 1
    most = {n: np.maximum.reduceat(rows[n], starts) for n in ("offset", "txn", "ended", "asked")}
    placed = {n: np.maximum.reduceat(rows[n], starts) for n in ("place", "target", "line")}
    least = np.minimum.reduceat(np.where(rows["place"] == 0, np.iinfo(np.int64).max, rows["place"]), starts)
    confused = (placed["place"] != 0) & (least != placed["place"])
    known = rows["place"][lasts] != 0
    return {
        **{n: rows[n][starts] for n in ("vh", "op")},
        **most,
        **{n: np.where(known, rows[n][lasts], column) for n, column in placed.items()},
        "bits": np.bitwise_or.reduceat(rows["bits"], starts) | np.where(confused, CONFUSED, 0),
        "invoked": np.minimum.reduceat(rows["invoked"], starts),
    }


def combined_reads(rows: Columns) -> Columns:
    """One row per value, place, offset and transaction of the reader."""
    seen_at = mixed(rows["place"], rows["offset"], rows["txn"])
    order = np.lexsort((seen_at, rows["vh"]))
    rows, seen_at = picked(rows, order), seen_at[order]
    starts = runs(rows["vh"], seen_at)
    if len(starts) == len(order):
        return rows
    bits, first = np.bitwise_or.reduceat(rows["bits"], starts), np.minimum.reduceat(rows["first"], starts)
    return {**picked(rows, starts), "bits": bits, "first": first}
