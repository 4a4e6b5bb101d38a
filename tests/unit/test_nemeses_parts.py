"""Small parts of the nemeses: undo stacks, reservations, bounded calls, the leader epoch file."""

from __future__ import annotations

import threading
import time

import pytest

from harness.core.errors import FaultError, WaitTimeoutError
from nemeses.engine.health import bounded
from nemeses.reservations import FaultSkippedError, Reservations
from nemeses.support.epochs import EpochStart, parse
from nemeses.undo import UndoStack

pytestmark = pytest.mark.unit


def test_undo_runs_last_first_keeps_what_failed_and_goes_on() -> None:
    done: list[str] = []
    broken = True

    def second() -> None:
        if broken:
            raise OSError("no")
        done.append("second")

    undo = UndoStack()
    undo.push("first", lambda: done.append("first"))
    undo.push("second", second)
    undo.push("third", lambda: done.append("third"))
    assert undo.run() == ["cannot second: no"]
    assert done == ["third", "first"]
    assert len(undo) == 1
    broken = False
    assert undo.run() == []
    assert done == ["third", "first", "second"]
    assert undo.run() == []
    assert len(done) == 3
    assert undo.run_again() == []
    assert done[3:] == ["third", "second", "first"]


def test_a_closed_undo_stack_takes_no_further_act() -> None:
    undo = UndoStack()
    undo.close()
    with pytest.raises(FaultError, match="given up before it could be injected"):
        undo.push("start n1", lambda: None)


def test_claims_are_all_or_nothing_and_bounded_by_group() -> None:
    reservations = Reservations()
    reservations.take(1, ["a"], group="quorum of A", limit=1)
    reservations.take(1, ["a"], group="quorum of A", limit=1)  # its own
    with pytest.raises(FaultSkippedError, match="a is held by fault 1"):
        reservations.take(2, ["b", "a"])
    with pytest.raises(FaultSkippedError, match=r"of A tolerates the loss of 1 node at once, not 2 \(a already\)"):
        reservations.take(2, ["b"], group="quorum of A", limit=1)
    assert reservations.held() == {"a": 1}
    reservations.take(2, ["b"], group="quorum of B", limit=1)
    reservations.release(1)
    reservations.take(3, ["a"], group="quorum of A", limit=1)
    assert reservations.held() == {"b": 2, "a": 3}


def test_claims_of_many_threads_never_exceed_the_limit() -> None:
    reservations = Reservations()
    taken: list[int] = []

    def take(number: int) -> None:
        try:
            reservations.take(number, [f"n{number}"], group="g", limit=3)
        except FaultSkippedError:
            return
        taken.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 3
    assert len(reservations.held()) == 3


def test_a_bounded_call_returns_raises_or_gives_up() -> None:
    assert bounded(lambda: 5, timeout_s=1, what="add") == 5
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, timeout_s=1, what="divide")
    began = time.monotonic()
    with pytest.raises(WaitTimeoutError, match=r"waited 0\.05 s to sleep"):
        bounded(lambda: time.sleep(1), timeout_s=0.05, what="sleep")
    assert time.monotonic() - began < 0.8


def test_the_leader_epoch_file() -> None:
    assert parse("0\n2\n0 0\n3 463\n") == (EpochStart(0, 0), EpochStart(3, 463))
    assert parse("0\n0\n") == ()


@pytest.mark.parametrize("text", ["", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\n0 x\n", "cat: no such file"])
def test_a_malformed_leader_epoch_file_is_refused(text: str) -> None:
    with pytest.raises(FaultError, match="not a leader-epoch-checkpoint file"):
        parse(text)
