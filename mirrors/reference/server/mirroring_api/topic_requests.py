"""StartMirrorTopics, StopMirrorTopics, PauseMirrorTopics and ResumeMirrorTopics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from harness.core.errors import MirrorError
from harness.wire import cluster_mirror_api as api
from harness.wire.cluster_mirror_api import MirrorErrorCode
from harness.wire.server import Request
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirroring_api.forwarding import FORWARDED, Forwarding
from mirrors.reference.server.mirroring_api.known_mirrors import KnownMirrors
from mirrors.reference.server.mirroring_api.outcomes import NO_ANSWER, OK, Outcome, outcome_of, unknown_mirror
from mirrors.reference.server.mirroring_api.rules import Action, topic_refusal
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.operations import Operations
from mirrors.reference.server.peers import Peers

_NO_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
_OTHER_ID: Final = int(ErrorCode.inconsistent_topic_id)

TopicsRequest = (
    api.StartMirrorTopicsRequest
    | api.StopMirrorTopicsRequest
    | api.PauseMirrorTopicsRequest
    | api.ResumeMirrorTopicsRequest
)


class TopicRequests:
    """`handler` makes the handler of one request."""

    def __init__(
        self,
        operations: Operations,
        mirrors: Mirrors,
        lifecycle: Lifecycle,
        peers: Peers,
        known: KnownMirrors,
        forwarding: Forwarding,
    ) -> None:
        self._operations = operations
        self._mirrors = mirrors
        self._life = lifecycle
        self._peers = peers
        self._known = known
        self._forwarding = forwarding

    def handler(
        self, action: Action, response: type[api.TopicsResponse]
    ) -> Callable[[Request], Awaitable[api.TopicsResponse]]:
        """The handler of one action."""

        async def handle(request: Request) -> api.TopicsResponse:
            asked: TopicsRequest = request.decode()
            results: dict[str, Outcome] = {}
            forwarded = request.client_id == FORWARDED
            outcome = await outcome_of(
                lambda: self._act(action, asked, results, forwarded=forwarded),
                not_allowed=MirrorErrorCode.INVALID_MIRROR_STATE,
            )
            return response(
                error_code=outcome.code,
                error_message=outcome.message,
                topics=tuple(
                    api.TopicResult(name=name, error_code=one.code, error_message=one.message)
                    for name, one in results.items()
                ),
            )

        return handle

    async def _act(
        self, action: Action, asked: TopicsRequest, results: dict[str, Outcome], *, forwarded: bool
    ) -> Outcome:
        """Do it for the topics that may; `results` gets one entry per topic. Returns the error of the whole request."""
        await self._known.refresh()
        if asked.mirror_name not in self._operations.mirrors():
            return unknown_mirror(asked.mirror_name)
        topics = await self._named(asked)
        if not forwarded:
            results.update(await self._refusals(action, asked, topics))
        accepted = [topic for topic in topics if topic not in results]
        if not accepted:
            return OK
        own = outcome_of(
            lambda: self._operate(action, asked.mirror_name, accepted), not_allowed=MirrorErrorCode.INVALID_MIRROR_STATE
        )
        if forwarded:
            done = await own
        else:  # at once: a process moves away partitions of a topic that it was not asked to start for some seconds
            done, errors = await asyncio.gather(own, self._forwarding.to_others(_only(asked, accepted)))
            if done is OK and errors:
                done = Outcome(NO_ANSWER, "; ".join(errors))
        results.update(dict.fromkeys(accepted, done))
        return OK

    async def _operate(self, action: Action, mirror: str, topics: Sequence[str]) -> Outcome:
        operation = getattr(self._operations, action)
        await operation(mirror, topics)
        return OK

    async def _named(self, asked: TopicsRequest) -> list[str]:
        """The topics that a request names, or that match its patterns: of the source at a start, else of the mirror."""
        named = [topic.topic_name for topic in asked.topics]
        if isinstance(asked, api.StartMirrorTopicsRequest) and asked.include_patterns:
            there = [topic.name for topic in await self._mirrors.discover(asked.mirror_name)]
            left_out = set(_matching(asked.exclude_patterns, there))
            named += [topic for topic in _matching(asked.include_patterns, there) if topic not in left_out]
        if isinstance(asked, api.StopMirrorTopicsRequest) and asked.patterns:
            own = sorted({key.topic for key in self._life.records if key.mirror == asked.mirror_name})
            named += _matching(asked.patterns, own)
        return list(dict.fromkeys(named))

    async def _refusals(self, action: Action, asked: TopicsRequest, topics: Iterable[str]) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        if isinstance(asked, api.StartMirrorTopicsRequest):
            found = await self._not_on_the_source(asked, topics)
        records, live = list(self._life.records.values()), self._peers.live()
        for topic in topics:
            refusal = topic_refusal(action, asked.mirror_name, topic, records, live=live)
            if refusal is not None:
                found.setdefault(topic, refusal)
        return found

    async def _not_on_the_source(
        self, asked: api.StartMirrorTopicsRequest, topics: Iterable[str]
    ) -> dict[str, Outcome]:
        there = {topic.name: topic.topic_id for topic in await self._mirrors.discover(asked.mirror_name)}
        ids = {topic.topic_name: topic.topic_id for topic in asked.topics}
        found = {}
        for topic in topics:
            if topic not in there:
                found[topic] = Outcome(_NO_TOPIC, f"the source of mirror {asked.mirror_name} has no topic {topic}")
            elif ids.get(topic) not in (None, there[topic]):
                found[topic] = Outcome(_OTHER_ID, f"topic {topic} has id {there[topic]} on the source")
        return found


def _matching(patterns: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Raises MirrorError for a pattern that is not a regular expression."""
    known, found = list(topics), []
    for pattern in patterns:
        try:
            found += [topic for topic in known if re.fullmatch(pattern, topic)]
        except re.error as error:
            raise MirrorError(f"{pattern!r} is not a regular expression: {error}") from error
    return found


def _only(asked: TopicsRequest, topics: Iterable[str]) -> TopicsRequest:
    """A request for these topics alone, without patterns."""
    if isinstance(asked, api.StartMirrorTopicsRequest):
        ids = {topic.topic_name: topic for topic in asked.topics}
        unnamed = api.StartedTopic(topic_id=None, topic_name="", num_partitions=0)
        started = tuple(replace(ids.get(topic, unnamed), topic_name=topic) for topic in topics)
        return replace(asked, topics=started, include_patterns=(), exclude_patterns=())
    named = tuple(api.NamedTopic(topic_name=topic) for topic in topics)
    if isinstance(asked, api.StopMirrorTopicsRequest):
        return replace(asked, topics=named, patterns=())
    return replace(asked, topics=named)
