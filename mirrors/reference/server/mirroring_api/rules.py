"""When a request about a topic is refused, by the states of the topic's partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from kio.schema.errors import ErrorCode

from harness.wire.cluster_mirror_api import MirrorErrorCode
from mirrors.reference.server.mirroring_api.outcomes import Outcome
from mirrors.reference.server.model import PartitionRecord
from mirrors.reference.server.states import PartitionState


class Action(StrEnum):
    """A request about topics; its name is the method of `operations.Operations`."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"


S = PartitionState
E = MirrorErrorCode

_VALID: Final[Mapping[Action, frozenset[PartitionState]]] = {
    Action.START: frozenset({S.STOPPED}),
    Action.STOP: frozenset({S.MIRRORING, S.PAUSED}),
    Action.PAUSE: frozenset({S.MIRRORING}),
    Action.RESUME: frozenset({S.PAUSED}),
}
"""States that every partition has to be in."""

_BY_STATE: Final[Mapping[tuple[Action, PartitionState], MirrorErrorCode]] = {
    (Action.PAUSE, S.PAUSING): E.MIRROR_TOPIC_ALREADY_PAUSED,
    (Action.PAUSE, S.PAUSED): E.MIRROR_TOPIC_ALREADY_PAUSED,
    (Action.PAUSE, S.STOPPING): E.MIRROR_TOPIC_BEING_STOPPED,
    (Action.RESUME, S.STOPPING): E.MIRROR_TOPIC_BEING_STOPPED,
    (Action.RESUME, S.PREPARING): E.MIRROR_TOPIC_NOT_PAUSED,
    (Action.RESUME, S.MIRRORING): E.MIRROR_TOPIC_NOT_PAUSED,
    (Action.RESUME, S.PAUSING): E.MIRROR_TOPIC_NOT_PAUSED,
}
"""Errors other than INVALID_MIRROR_STATE."""


def topic_refusal(
    action: Action, mirror: str, topic: str, records: Iterable[PartitionRecord], *, live: Iterable[int]
) -> Outcome | None:
    """Why a request of a mirror about one topic is refused, None when it is not.

    records: of all mirrors, all topics and all processes. live: the processes that are alive.
    """
    of_topic = [record for record in records if record.key.topic == topic]
    own = sorted((r for r in of_topic if r.key.mirror == mirror), key=lambda r: r.key)
    if action is Action.START:
        other = next((r for r in of_topic if r.key.mirror != mirror and r.state is not S.STOPPED), None)
        if other is not None:
            why = f"topic {topic} is in mirror {other.key.mirror}, where it is not stopped"
            return Outcome(E.TOPIC_ALREADY_IN_CLUSTER_MIRROR, why)
    elif not own:
        return Outcome(E.TOPIC_NOT_IN_CLUSTER_MIRROR, f"topic {topic} is not in mirror {mirror}")
    return _by_state(action, own) or _by_owner(own, frozenset(live))


def delete_refusal(mirror: str, records: Iterable[PartitionRecord]) -> Outcome | None:
    """Why a mirror cannot be deleted, None when it can be: all its partitions are stopped."""
    for record in records:
        if record.key.mirror == mirror and record.state is not S.STOPPED:
            name = f"{record.key.topic}-{record.key.partition}"
            return Outcome(E.CLUSTER_MIRROR_NOT_EMPTY, f"{name} of mirror {mirror} is {record.state}; stop it first")
    return None


def _by_state(action: Action, records: Sequence[PartitionRecord]) -> Outcome | None:
    for record in records:
        if record.state not in _VALID[action]:
            code = _BY_STATE.get((action, record.state), E.INVALID_MIRROR_STATE)
            name = f"{record.key.topic}-{record.key.partition}"
            valid = " or ".join(sorted(_VALID[action]))
            return Outcome(code, f"{name} is {record.state}; a request to {action} needs {valid}")
    return None


def _by_owner(records: Sequence[PartitionRecord], live: frozenset[int]) -> Outcome | None:
    """A process that is not alive cannot act; another one takes over within seconds."""
    for record in records:
        if record.owner not in live:
            why = f"broker {record.owner}, which mirrors {record.key.topic}-{record.key.partition}, is not alive"
            return Outcome(int(ErrorCode.broker_not_available), f"{why}; ask again once another one has taken over")
    return None
