"""The rate of operations: a token bucket that all producers share."""

from __future__ import annotations

import threading

from harness.core.clock import Clock


class TokenBucket:
    """At most `rate` tokens a second over all threads, with bursts of up to `burst_s` seconds' worth.

    A rate of 0 means no limit. Time in which nobody can send (e.g. under a fault) is not made up for later.
    """

    def __init__(self, rate: float, *, clock: Clock, burst_s: float = 0.1) -> None:
        self._rate = rate
        self._clock = clock
        self._capacity = max(1.0, rate * burst_s)
        self._tokens = 1.0
        self._filled_ns = clock.now_ns()
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """Take up to `wanted` tokens; returns how many were available. Never waits."""
        if self._rate <= 0 or wanted <= 0:
            return max(0, wanted)
        with self._lock:
            now = self._clock.now_ns()
            self._tokens = min(self._capacity, self._tokens + (now - self._filled_ns) * self._rate / 1e9)
            self._filled_ns = now
            taken = min(wanted, int(self._tokens))
            self._tokens -= taken
            return taken

    def wait_s(self) -> float:
        """Seconds until the next token; 0 when there is one, or no limit."""
        if self._rate <= 0:
            return 0.0
        with self._lock:
            now = self._clock.now_ns()
            missing = 1.0 - self._tokens - (now - self._filled_ns) * self._rate / 1e9
            return max(0.0, missing / self._rate)
