"""Refused requests: which may be repeated, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from harness.wire.cluster_mirror_api import MirrorErrorCode, TopicsResponse

_OURS: Final[Mapping[int, str]] = {int(code): code.name for code in MirrorErrorCode}
_RETRIED: Final = frozenset(
    {
        int(ErrorCode.leader_not_available),
        int(ErrorCode.not_leader_or_follower),
        int(ErrorCode.request_timed_out),
        int(ErrorCode.broker_not_available),
        int(ErrorCode.network_exception),
        int(ErrorCode.coordinator_load_in_progress),
        int(ErrorCode.coordinator_not_available),
        int(ErrorCode.not_coordinator),
        int(ErrorCode.not_controller),
        int(MirrorErrorCode.UNKNOWN_CLUSTER_MIRROR),  # right after it was created
        int(MirrorErrorCode.TOPIC_ALREADY_IN_CLUSTER_MIRROR),  # right after a start whose answer was lost
        int(MirrorErrorCode.INVALID_MIRROR_STATE),
        int(MirrorErrorCode.MIRROR_TOPIC_BEING_STOPPED),
        int(MirrorErrorCode.MIRROR_TOPIC_NOT_STOPPED),
    }
)
"""The state of a partition, or of a broker, that can be another one in a moment."""


def code_name(code: int) -> str:
    """Kafka's name of an error code."""
    if code in _OURS:
        return _OURS[code]
    try:
        return str(ErrorCode(code).name).upper()
    except ValueError:
        return "an unknown error"


@dataclass(frozen=True)
class Refusal:
    """One refusal. about: the topic, or what was asked."""

    about: str
    code: int
    text: str = ""

    @property
    def may_pass(self) -> bool:
        """Whether the same request may be accepted later."""
        return self.code in _RETRIED

    def __str__(self) -> str:
        return f"{self.about}: {code_name(self.code)} ({self.code}){': ' + self.text if self.text else ''}"


def refusals(what: str, answer: TopicsResponse, *, fine: Collection[int] = ()) -> tuple[Refusal, ...]:
    """What is refused in an answer, as a whole or by topic. fine: codes of topics that are as they were asked to be."""
    if answer.error_code:
        return (Refusal(what, answer.error_code, answer.error_message or ""),)
    return tuple(
        Refusal(f"{what} {topic.name}", topic.error_code, topic.error_message or "")
        for topic in answer.topics
        if topic.error_code and topic.error_code not in fine
    )
