"""`duplicate`: planted histories and their clean twins."""

from __future__ import annotations

from conftest import Find
from literal import History

from checkers.clients.duplicate import CHECKER


def test_a_value_polled_at_two_offsets(find: Find) -> None:
    h = History()
    h.send("p", "A", "t", 0, "v0", offset=0)
    h.poll("c", "A", "t", 0, (0, "v0"), (1, "v0"))
    rows = find(CHECKER, h)
    assert [(r["value"], r["offset"]) for r in rows] == [("v0", 1)], "the second copy's offset"
    assert rows[0]["explain"] == "v0 is 2 times in t-0 on A: at offsets 0, 1"


def test_a_value_polled_twice_at_its_one_offset_is_clean(find: Find) -> None:
    h = History()
    h.send("p", "A", "t", 0, "v0", offset=0)
    h.poll("c1", "A", "t", 0, (0, "v0"))
    h.poll("c2", "A", "t", 0, (0, "v0"))
    assert find(CHECKER, h) == []


def test_a_value_stored_twice_and_never_polled(find: Find) -> None:
    h = History()
    h.send("p", "A", "t", 0, "v0", offset=0)
    h.log("A", "t", 0, (0, "v0"), (1, "v0"), broker=1)
    assert [r["value"] for r in find(CHECKER, h)] == ["v0"]


def test_an_aborted_copy_is_clean(find: Find) -> None:
    h = History()
    first = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    h.log(
        "B",
        "t",
        0,
        (0, "v0", first),
        (1, None, {**first, "control_type": "ABORT"}),
        (2, "v0", {**first, "producer_epoch": 1}),
        (3, None, {**first, "producer_epoch": 1, "control_type": "COMMIT"}),
    )
    assert find(CHECKER, h) == []
