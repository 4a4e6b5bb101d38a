"""How each fault of a schedule went, and how the healing of them all ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nemeses.base import FaultSpec
from nemeses.engine.health import Health


class FaultState(StrEnum):
    """Where one fault is."""

    WAITING = "waiting"  # its time has not come
    INJECTING = "injecting"
    LIVE = "live"
    HEALED = "healed"
    UNHEALED = "unhealed"  # healing failed, or the system was not well after it
    SKIPPED = "skipped"  # not injected, on purpose; `why` says for what
    FAILED = "failed"  # could not be injected; what had been done of it was undone
    UNDONE = "undone"  # the run ended while it was injected; what had been done of it was undone


@dataclass(frozen=True, kw_only=True)
class FaultOutcome:
    """One fault. bit: whether it was proven to act; None before that is known. why: what was seen, or the error."""

    spec: FaultSpec
    state: FaultState
    bit: bool | None = None
    target: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Healing:
    """How healing everything ended. errors: what could not be undone or seen well, in the order met."""

    errors: tuple[str, ...]
    health: Health

    @property
    def ok(self) -> bool:
        """Whether everything is undone and well."""
        return not self.errors and self.health.ok
