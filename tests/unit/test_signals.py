"""Ctrl-C: raised once outside shields, only counted inside them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from harness.signals import Interrupts

pytestmark = pytest.mark.unit


def _send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # a point at which Python runs the handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_raises_and_stops(number: int) -> None:
    said: list[str] = []
    with Interrupts(say=said.append).installed() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            _send(number)
        assert interrupts.stop.is_set()
        assert not interrupts.hurried
    assert said
    assert "healing" in said[0]


def test_a_shield_counts_and_does_not_raise() -> None:
    with Interrupts().installed() as interrupts:
        with interrupts.shielded():
            _send(signal.SIGINT)
            _send(signal.SIGINT)
        assert interrupts.count == 2
        assert interrupts.hurried
        with pytest.raises(KeyboardInterrupt):
            _send(signal.SIGINT)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts().installed():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
