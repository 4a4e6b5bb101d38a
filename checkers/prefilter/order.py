"""Order along a line (one process at one partition): of acknowledged sends, and of a consumer's reads.

A position that the consumer was given counts as a read of the offset before it, at position GIVEN of its event. From
there it must not skip existing records; a given position itself may be anywhere, whatever was read before.

A range is tested by itself and yields its first and last row of every line; then the seams between ranges are tested.
"""

from __future__ import annotations

import numpy as np

from checkers.prefilter.hashing import Ints
from checkers.prefilter.packed import Columns, picked, runs
from checkers.prefilter.rows import DONE, FAIL

GIVEN = -1


def _sorted(rows: Columns, *keys: str) -> Columns:
    return picked(rows, np.lexsort(tuple(rows[key] for key in reversed(keys))))


def _lasts(starts: Ints, count: int) -> Ints:
    return np.append(starts[1:], count) - 1 if len(starts) else starts


def sends_in_order(rows: Columns) -> Columns:
    """`order` of a range. rows: line, op, position, offset, bits, of sends.

    Acknowledged offsets of aborted sends are included: what is in order with them is in order without them, too.
    """
    acknowledged = (rows["line"] != 0) & (rows["offset"] >= 0) & (rows["bits"] & DONE != 0) & (rows["bits"] & FAIL == 0)
    rows = _sorted(picked(rows, acknowledged), "line", "op", "position")
    starts = runs(rows["line"])
    back = np.zeros(len(rows["line"]), bool)
    back[1:] = (rows["offset"][1:] < rows["offset"][:-1]) & (rows["line"][1:] == rows["line"][:-1])
    lasts = _lasts(starts, len(back))
    return {
        "line": rows["line"][starts],
        "first_op": rows["op"][starts],
        "last_op": rows["op"][lasts],
        "first_offset": rows["offset"][starts],
        "last_offset": rows["offset"][lasts],
        "bad": (np.logical_or.reduceat(back, starts) if len(starts) else back).astype(np.int64),
    }


def bad_lines(order: Columns) -> Columns:
    """`bad_lines`: lines along which an offset goes back, within a range or from one to the next."""
    rows = _sorted(order, "line", "first_op")
    same = rows["line"][1:] == rows["line"][:-1]
    bad = rows["bad"] != 0
    # Operations of one process do not overlap; where they do, the close check decides.
    seam = (rows["first_op"][1:] < rows["last_op"][:-1]) | (rows["first_offset"][1:] < rows["last_offset"][:-1])
    bad[1:] |= same & seam
    return {"line": np.unique(rows["line"][bad])}


def polls_of(rows: Columns) -> tuple[Columns, Columns, Columns]:
    """`polls`, `back` and `gaps` of a range. rows: line, place, index, position, offset, of records that were read and
    of positions that were given."""
    rows = _sorted(rows, "line", "index", "position")
    starts = runs(rows["line"])
    lasts = _lasts(starts, len(rows["line"]))
    ends = {f"first_{name}": rows[name][starts] for name in ("index", "position", "offset")}
    ends |= {f"last_{name}": rows[name][lasts] for name in ("index", "position", "offset")}
    before = {name: column[:-1] for name, column in rows.items()}
    after = {name: column[1:] for name, column in rows.items()}
    back, gaps = _steps(before, after)
    return {"line": rows["line"][starts], "place": rows["place"][starts], **ends}, back, gaps


def poll_seams(polls: Columns) -> tuple[Columns, Columns]:
    """`back` and `gaps` from the last read of a range to the first of the next range that continues the line."""
    rows = _sorted(polls, "line", "first_index")

    def shaped(edge: str, part: slice) -> Columns:
        names = {n: f"{edge}_{n}" for n in ("index", "position", "offset")}
        return {n: rows[column][part] for n, column in {**names, "line": "line", "place": "place"}.items()}

    return _steps(shaped("last", slice(None, -1)), shaped("first", slice(1, None)))


def _steps(before: Columns, after: Columns) -> tuple[Columns, Columns]:
    same = (before["line"] == after["line"]) & (after["position"] != GIVEN)
    rows = {**after, "before": before["offset"], "before_index": before["index"]}
    back = picked(rows, same & (after["offset"] <= before["offset"]) & (before["position"] != GIVEN))
    return back, picked(rows, same & (after["offset"] > before["offset"] + 1))
