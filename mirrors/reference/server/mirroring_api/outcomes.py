"""What becomes of a request: an error code with one sentence, or nothing wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from harness.core.errors import MirrorError
from harness.wire.cluster_mirror_api import MirrorErrorCode
from harness.wire.frames import WireError
from mirrors.reference.server.fencing import RetriableError


@dataclass(frozen=True)
class Outcome:
    """code: 0 where nothing is wrong. why: one sentence, or empty."""

    code: int = 0
    why: str = ""

    @property
    def message(self) -> str | None:
        """As responses have it."""
        return self.why or None


OK: Final = Outcome()
NO_ANSWER: Final = int(ErrorCode.request_timed_out)
BAD_REQUEST: Final = int(ErrorCode.invalid_request)


def unknown_mirror(mirror: str) -> Outcome:
    """There is no mirror of this name."""
    return Outcome(MirrorErrorCode.UNKNOWN_CLUSTER_MIRROR, f"no mirror is called {mirror!r}")


async def outcome_of(work: Callable[[], Awaitable[Outcome]], *, not_allowed: int) -> Outcome:
    """What work returns, or why it failed. not_allowed: the code for a state that does not allow it (MirrorError)."""
    try:
        return await work()
    except RetriableError as error:
        return Outcome(NO_ANSWER, str(error))
    except MirrorError as error:
        return Outcome(not_allowed, str(error))
    except (WireError, TimeoutError) as error:
        return Outcome(NO_ANSWER, str(error) or "no answer in time")
