"""States of a mirrored partition and the transitions between them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class PartitionState(StrEnum):
    """The state of one mirrored partition."""

    PREPARING = "PREPARING"
    MIRRORING = "MIRRORING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


_S = PartitionState

EDGES: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    _S.PREPARING: frozenset({_S.MIRRORING, _S.STOPPING, _S.FAILED}),
    _S.MIRRORING: frozenset({_S.PREPARING, _S.PAUSING, _S.STOPPING, _S.FAILED}),
    _S.PAUSING: frozenset({_S.PAUSED, _S.STOPPING, _S.FAILED}),
    _S.PAUSED: frozenset({_S.PREPARING, _S.MIRRORING, _S.STOPPING, _S.FAILED}),
    _S.STOPPING: frozenset({_S.STOPPED, _S.FAILED}),
    _S.STOPPED: frozenset({_S.PREPARING}),
    _S.FAILED: frozenset({_S.PREPARING, _S.STOPPING}),
}


ENDED: Final = frozenset({_S.STOPPED, _S.FAILED})


def allowed(old: PartitionState, new: PartitionState) -> bool:
    """Whether a partition may go from one state to another."""
    return new in EDGES[old]
