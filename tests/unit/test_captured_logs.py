"""Which replicas' logs are complete: one that ends before the log end of the last snapshot is not."""

from __future__ import annotations

import pytest

from harness.evidence.completeness import Decoded, rows

pytestmark = pytest.mark.unit
PLACE = ("B", "t", 0, 1)


def why(end: int | None, decoded: Decoded | None, *, start: int | None = 0, failure: str | None = None) -> str | None:
    failures = {("B", 1): failure} if failure else {}
    (row,) = rows({PLACE: (start, end)}, {PLACE: decoded} if decoded else {}, failures, look=1)
    assert row["complete"] == (row["why"] is None)
    return row["why"]


@pytest.mark.parametrize(
    ("end", "decoded"),
    [
        (9, Decoded(batches=3, records=9, end=9)),
        (9, Decoded(batches=4, records=10, end=10)),  # written after the snapshot
        (9, Decoded(end=9)),  # retention has emptied it: its only segment begins there
        (9, Decoded(batches=3, records=9, end=9, tails=["x.log: zeros"])),
        (0, Decoded()),
        (0, None),
        (None, Decoded(batches=1, records=1, end=1)),  # its broker did not answer: no log end to compare with
    ],
)
def test_whole(end: int | None, decoded: Decoded | None) -> None:
    assert why(end, decoded) is None


@pytest.mark.parametrize(
    ("decoded", "said"),
    [
        (Decoded(batches=1, records=4, end=4, tails=["x.log: truncated at byte 7"]), "x.log: truncated at byte 7"),
        (Decoded(batches=1, records=4, end=4), "decoded up to 4, its log end was 9: the offsets between are not in"),
        (Decoded(), "decoded up to 0, its log end was 9"),  # a segment file of no bytes
        (Decoded(batches=3, records=9, end=9, holes=["x.log: bad"]), "has a hole: x.log: bad"),
        (None, "no log of t-0 was captured from broker 1 of B"),
    ],
)
def test_not_whole(decoded: Decoded | None, said: str) -> None:
    told = why(9, decoded)
    assert told is not None
    assert said in told


def test_a_cut_off_log_without_a_known_end_is_not_whole() -> None:
    cut = Decoded(batches=1, records=4, end=4, tails=["x.log: truncated at byte 7"], torn=True)
    told = why(None, cut)
    assert told is not None
    assert "is cut off, and no snapshot shows its log end: x.log: truncated at byte 7" in told
    assert why(4, cut) is None, "what was being written is beyond the log end"
