"""An administrator of one cluster: reads its ACLs and topic configurations, and changes them.

Controllers acknowledge a change before every broker knows of it, and a broker that was paused answers with its old
state. So an answer counts only when all brokers that answer agree; and after a change the caller can wait until all of
them show it, so that later readers see it.

It cannot see: a broker that does not answer at all; such a broker may have older state until it has caught up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from harness.wire import acls, topic_configs
from harness.wire.acls import Binding
from harness.wire.client import WireError
from harness.wire.view import ClusterView

T = TypeVar("T")

AGREE_S: Final = 10.0
SHOWN_S: Final = 3.0
_AGAIN_S: Final = 0.1

Entries = Mapping[str, str | None]


class Administrator:
    """One thread per object. bootstrap: of the clients' listener. Limits in seconds.

    agree_s: how long brokers may take to agree on an answer; shown_s: to show a change.
    """

    def __init__(self, bootstrap: str, *, agree_s: float = AGREE_S, shown_s: float = SHOWN_S) -> None:
        self._view = ClusterView(bootstrap)
        self._agree_s, self._shown_s = agree_s, shown_s

    def bindings(self) -> frozenset[Binding] | None:
        """All access rules; None without an authorizer. Raises: WireError when brokers do not agree in time."""
        return self._agreed(acls.all_bindings(), acls.bindings_in, what="access rules", within_s=self._agree_s)

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Topic → its own entries, of those that exist. Raises: WireError when brokers do not agree in time."""
        request = topic_configs.own_entries(topics)
        if not request.resources:
            return {}
        return self._agreed(request, topic_configs.entries_in, what="topic configurations", within_s=self._agree_s)

    def create(self, bindings: Iterable[Binding]) -> None:
        """Create access rules. Raises: WireError when they are refused."""
        wanted = frozenset(bindings)
        acls.check_done(wanted, self._view.ask_any(acls.creation(wanted)).results, "created")

    def delete(self, bindings: Iterable[Binding]) -> None:
        """Delete access rules. Raises: WireError when that is refused."""
        gone = frozenset(bindings)
        acls.check_done(gone, self._view.ask_any(acls.deletion(gone)).filter_results, "deleted")

    def alter(self, topic: str, entries: Entries) -> None:
        """Set entries of a topic, None removes one. Raises: WireError when that is refused."""
        topic_configs.check_altered(topic, self._view.ask_any(topic_configs.alteration(topic, entries)))

    def await_bindings(self, *, there: Iterable[Binding] = (), gone: Iterable[Binding] = ()) -> bool:
        """Wait until every broker shows a change that was acknowledged; False when none did in time, e.g. because a
        mirror had undone it before."""
        present, absent = frozenset(there), frozenset(gone)
        return self._shown(
            acls.all_bindings(),
            acls.bindings_in,
            lambda found: found is not None and present <= found and not absent & found,
        )

    def await_config(self, topic: str, entries: Entries) -> bool:
        """The same for entries of a topic."""

        def holds(found: dict[str, dict[str, str]]) -> bool:
            own = found.get(topic, {})
            return all(own.get(name) == value for name, value in entries.items())

        return self._shown(topic_configs.own_entries([topic]), topic_configs.entries_in, holds)

    def close(self) -> None:
        """Drop all connections."""
        self._view.close()

    def _shown(self, request: Any, read: Callable[[Any], T], holds: Callable[[T], bool]) -> bool:
        try:
            self._agreed(request, read, holds=holds, within_s=self._shown_s, what="a change")
        except WireError:
            return False
        return True

    def _agreed(
        self,
        request: Any,
        read: Callable[[Any], T],
        *,
        what: str,
        within_s: float,
        holds: Callable[[T], bool] = lambda _: True,
    ) -> T:
        def ask() -> tuple[list[T], list[str]]:
            answers, failures = self._view.ask_all(request)
            return [read(answer) for answer in answers], failures

        return agreed(ask, holds, within_s=within_s, what=what)


def agreed(
    ask: Callable[[], tuple[list[T], list[str]]],
    holds: Callable[[T], bool],
    *,
    within_s: float,
    what: str,
    again_s: float = _AGAIN_S,
) -> T:
    """The answer that all brokers give and that holds. ask: the answers, and why other brokers did not answer.

    Raises: WireError when there is none in time.
    """
    deadline = time.monotonic() + within_s
    while True:
        found, failures = ask()
        if found and all(one == found[0] for one in found) and holds(found[0]):
            return found[0]
        if time.monotonic() >= deadline:
            silent = f" ({'; '.join(failures)})" if failures else ""
            raise WireError(f"waited {within_s:g} s for all brokers to show {what}{silent}")
        time.sleep(again_s)
