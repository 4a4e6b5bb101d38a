"""Which fault holds what: no two faults act on one node or link, and no cluster loses more nodes than it tolerates."""

from __future__ import annotations

import threading
from collections.abc import Collection

from harness.core.errors import FaultError


class FaultSkippedError(FaultError):
    """The fault was deliberately not injected; the text is the recorded reason."""


class Reservations:
    """Thread-safe ledger of what live faults hold. Names are those of nodes, or `link-A`, `link-B`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, str]] = {}  # name → fault id, group

    def take(self, fault_id: int, names: Collection[str], *, group: str = "", limit: int | None = None) -> None:
        """Hold all the names for this fault, or none of them.

        group and limit: at most `limit` names of the group may be held at once, over all faults.
        Raises: FaultSkippedError with the reason.
        """
        with self._lock:
            for name in names:
                holder = self._held.get(name)
                if holder is not None and holder[0] != fault_id:
                    raise FaultSkippedError(f"{name} is held by fault {holder[0]}")
            if limit is not None:
                victims = {name for name, (_, held_group) in self._held.items() if held_group == group}
                after = victims | set(names)
                if len(after) > limit:
                    held = f" ({', '.join(sorted(victims))} already)" if victims else ""
                    raise FaultSkippedError(
                        f"{group} tolerates the loss of {limit} {'node' if limit == 1 else 'nodes'} at once, "
                        f"not {len(after)}{held}"
                    )
            for name in names:
                self._held[name] = (fault_id, group)

    def release(self, fault_id: int) -> None:
        """Give back everything that this fault holds."""
        with self._lock:
            self._held = {name: holder for name, holder in self._held.items() if holder[0] != fault_id}

    def held(self) -> dict[str, int]:
        """Name → fault id, now."""
        with self._lock:
            return {name: fault_id for name, (fault_id, _) in self._held.items()}
