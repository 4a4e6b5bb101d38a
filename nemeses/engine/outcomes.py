"""The outcome of each fault of a schedule, and of healing them all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nemeses.base import FaultSpec
from nemeses.engine.health import Health


class FaultState(StrEnum):
    """The state of one fault."""

    WAITING = "waiting"  # its time has not come
    INJECTING = "injecting"
    LIVE = "live"
    HEALED = "healed"
    UNHEALED = "unhealed"  # healing failed, or the system was not healthy after it
    SKIPPED = "skipped"  # deliberately not injected; `why` has the reason
    FAILED = "failed"  # could not be injected; acts done so far were undone
    UNDONE = "undone"  # the run ended during its injection; acts done so far were undone


@dataclass(frozen=True, kw_only=True)
class FaultOutcome:
    """One fault. bit: whether it was proven to take effect; None before that is known. why: what was seen, or the
    error."""

    spec: FaultSpec
    state: FaultState
    bit: bool | None = None
    target: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Healing:
    """How healing everything ended. errors: failed undos and failed health checks, in order."""

    errors: tuple[str, ...]
    health: Health

    @property
    def ok(self) -> bool:
        """Whether everything is undone and healthy."""
        return not self.errors and self.health.ok
