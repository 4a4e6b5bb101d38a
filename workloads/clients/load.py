"""Running clients, each in a thread of its own: implements workloads.base.Load for any set of clients."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

from harness.core.errors import ShatterError, WaitTimeoutError
from workloads.base import LoadCounts
from workloads.clients.control import StopSignal, Tally

log = logging.getLogger(__name__)

_ALLOCATIONS: Final = 500_000  # allocations between two runs of the cycle collector during a load
_CLIENT_SHARE: Final = 0.8  # share of the time for stopping; the rest is for closing clients


def _calm_collector() -> tuple[int, int, int] | None:
    """Make Python search for reference cycles rarely; returns the thresholds to restore, None if already set.

    A load creates tens of thousands of small tuples a second and keeps them until the next flush. With the default
    thresholds the collector scanned all of them again and again, which halved a load's throughput.
    """
    before = gc.get_threshold()
    if before[0] == 0 or before[0] >= _ALLOCATIONS:
        return None
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    return before


class Client(Protocol):
    """The work of one thread."""

    tally: Tally

    def run(self) -> None:
        """Work until the load's StopSignal is set, then close everything and return."""
        ...


class ThreadedLoad:
    """Starts every client at once. clients: thread name → client."""

    def __init__(self, clients: Mapping[str, Client], stop: StopSignal) -> None:
        self._clients = dict(clients)
        self._stop = stop
        self._error: Exception | None = None
        self._error_lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(name, client), name=name, daemon=True)
            for name, client in self._clients.items()
        ]
        self._calm = _calm_collector()
        for thread in self._threads:
            thread.start()

    def counts(self) -> LoadCounts:
        """Figures so far; never blocks."""
        tallies = [client.tally for client in self._clients.values()]
        polled: Counter[str] = Counter()
        for tally in tallies:
            polled[tally.cluster] += tally.polled_records
        return LoadCounts(
            ok_sends=sum(t.ok_sends for t in tallies),
            failed_sends=sum(t.failed_sends for t in tallies),
            info_sends=sum(t.info_sends for t in tallies),
            acked_records=sum(t.acked_records for t in tallies),
            ok_polls=sum(t.ok_polls for t in tallies),
            polled_records=dict(polled),
        )

    def error(self) -> Exception | None:
        """The first error that ended a client thread."""
        return self._error

    def stop(self, *, timeout_s: float) -> None:
        """End every client within the time; pending operations complete as info, error `stopped`.

        Raises WaitTimeoutError, naming the clients, when some did not end. Safe to call twice.
        """
        deadline = time.monotonic() + timeout_s
        self._stop.set(within_s=timeout_s * _CLIENT_SHARE)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            raise WaitTimeoutError(f"waited {timeout_s:g} s for clients to end; instead: {', '.join(alive)} still run")
        if self._calm:
            gc.set_threshold(*self._calm)
            self._calm = None

    def _run(self, name: str, client: Client) -> None:
        try:
            client.run()
        except Exception as error:
            cause = error.__cause__ if isinstance(error, SystemError) else None  # an exception inside a callback
            found = cause if isinstance(cause, Exception) else error
            if not isinstance(found, ShatterError):  # a ShatterError is a complete sentence, and ends the run
                log.exception("client %s ended", name)
            with self._error_lock:
                self._error = self._error or found
