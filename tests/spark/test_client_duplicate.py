"""`duplicate`: planted histories and their clean twins."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize(
    ("error", "second_epoch", "source", "found"),
    [
        ("_MSG_TIMED_OUT", 1, "shatter", 0),
        ("_TRANSPORT", 1, "shatter", 1),
        ("_MSG_TIMED_OUT", 0, "shatter", 1),
        ("_MSG_TIMED_OUT", 1, "jsonl", 1),
    ],
    ids=["new-epoch", "nothing-timed-out", "same-epoch", "imported"],
)
def test_librdkafka_sends_again_under_a_new_epoch_after_a_time_out(
    find: Find, error: str, second_epoch: int, source: str, found: int
) -> None:
    """The whole batch of a record that timed out is appended, and what of it did not time out is sent again."""
    h = History(source=source)
    record = {"action": "send", "topic": "t", "partition": 0, "value": "late"}
    send = h.event("p0", "invoke", "send", [record], cluster="A")
    h.send("p1", "A", "t", 0, "v0", offset=2)
    h.event("p0", "info", "send", [record], cluster="A", invoke_index=send, error=error)
    first = {"producer_id": 5, "producer_epoch": 0, "sequence": 0}
    again = {"producer_id": 5, "producer_epoch": second_epoch, "sequence": 7}
    h.log("A", "t", 0, (0, "late", first), (1, "v0", {**first, "sequence": 1}), (2, "v0", again), broker=1)
    assert len(find(CHECKER, h)) == found
