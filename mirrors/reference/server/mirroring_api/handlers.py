"""The handlers of API keys 94 to 104."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from harness.core.errors import MirrorError
from harness.wire import cluster_mirror_api as api
from harness.wire.cluster_mirror_api import MirrorErrorCode
from harness.wire.frames import WireError
from harness.wire.server import Request, WireServer
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.mirroring_api.forwarding import FORWARDED, Forwarding
from mirrors.reference.server.mirroring_api.properties import (
    BOOTSTRAP,
    REQUIRED,
    SOURCE_ID,
    PropertyRequests,
    mirror_config,
)
from mirrors.reference.server.mirroring_api.rows import last_mirror_epochs, topics_of
from mirrors.reference.server.mirroring_api.rules import Action, Refusal, delete_refusal, topic_refusal
from mirrors.reference.server.operations import Operations
from mirrors.reference.server.peers import Peers

DESCRIBE_CONFIGS, ALTER_CONFIGS = 32, 44

_NONE: Final = 0
_OK: Final = Refusal(_NONE, "")
_NO_ANSWER: Final = int(ErrorCode.request_timed_out)
_BAD_REQUEST: Final = int(ErrorCode.invalid_request)
_NO_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
_OTHER_ID: Final = int(ErrorCode.inconsistent_topic_id)

TopicsRequest = (
    api.StartMirrorTopicsRequest
    | api.StopMirrorTopicsRequest
    | api.PauseMirrorTopicsRequest
    | api.ResumeMirrorTopicsRequest
)


class MirroringApi:
    """One per process. `serve` adds it to a server that passes requests on already."""

    def __init__(
        self,
        operations: Operations,
        mirrors: Mirrors,
        lifecycle: Lifecycle,
        peers: Peers,
        forwarding: Forwarding,
    ) -> None:
        self._operations = operations
        self._mirrors = mirrors
        self._life = lifecycle
        self._peers = peers
        self._forwarding = forwarding
        self._properties = PropertyRequests(mirrors, lifecycle.store)
        self._changing = asyncio.Lock()  # mirrors come and go one at a time

    def serve(self, server: WireServer) -> None:
        """Answer the requests on this server."""
        handlers: Mapping[int, Callable[[Request], Awaitable[Any]]] = {
            api.CREATE: self.create,
            api.START: self._topics_handler(Action.START, api.StartMirrorTopicsResponse),
            api.STOP: self._topics_handler(Action.STOP, api.StopMirrorTopicsResponse),
            api.PAUSE: self._topics_handler(Action.PAUSE, api.PauseMirrorTopicsResponse),
            api.RESUME: self._topics_handler(Action.RESUME, api.ResumeMirrorTopicsResponse),
            api.DELETE: self.delete,
            api.LIST: self.list_mirrors,
            api.DESCRIBE: self.describe,
        }
        for key, handler in handlers.items():
            server.add(key, (0, 0), handler)
        server.intercept(DESCRIBE_CONFIGS, self._properties.describe)
        server.intercept(ALTER_CONFIGS, self._properties.alter)

    def close(self) -> None:
        """Drop the connections to other processes."""
        self._forwarding.close()

    # --- mirrors -------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> api.CreateClusterMirrorResponse:
        """CreateClusterMirror."""
        asked: api.CreateClusterMirrorRequest = request.decode()
        refusal = await _refused(lambda: self._create(asked), code=_BAD_REQUEST)
        return api.CreateClusterMirrorResponse(error_code=refusal.code, error_message=refusal.why or None)

    async def _create(self, asked: api.CreateClusterMirrorRequest) -> Refusal:
        name = asked.mirror_name
        properties = {one.name: one.value for one in asked.config if one.value is not None}
        async with self._changing:
            await self._learn()
            if name in self._mirrors.configs:
                return Refusal(MirrorErrorCode.CLUSTER_MIRROR_ALREADY_EXISTS, f"mirror {name} exists already")
            if any(not properties.get(one) for one in REQUIRED):
                return Refusal(_BAD_REQUEST, "")  # the authors' build says no more than that
            config = mirror_config(name, properties)
            config.check()
            await self._properties.keep(name, properties)
            await self._operations.create(config)
        return _OK

    async def delete(self, request: Request) -> api.DeleteClusterMirrorResponse:
        """DeleteClusterMirror."""
        asked: api.DeleteClusterMirrorRequest = request.decode()
        forwarded = request.client_id == FORWARDED
        refusal = await _refused(
            lambda: self._delete(asked, forwarded=forwarded), code=MirrorErrorCode.CLUSTER_MIRROR_NOT_EMPTY
        )
        return api.DeleteClusterMirrorResponse(error_code=refusal.code, error_message=refusal.why or None)

    async def _delete(self, asked: api.DeleteClusterMirrorRequest, *, forwarded: bool) -> Refusal:
        name = asked.mirror_name
        async with self._changing:
            await self._learn()
            if name not in self._mirrors.configs:
                return _OK if forwarded else _unknown(name)
            refusal = delete_refusal(name, self._life.records.values())
            if refusal is not None:
                return refusal
            if not forwarded and (errors := await self._forwarding.to_others(asked)):
                return Refusal(_NO_ANSWER, "; ".join(errors))
            await self._operations.delete(name)
            await self._properties.keep(name, None)
        return _OK

    async def list_mirrors(self, request: Request) -> api.ListClusterMirrorsResponse:
        """ListClusterMirrors."""
        asked: api.ListClusterMirrorsRequest = request.decode()
        refusal = await _refused(self._learned, code=_NO_ANSWER)
        if refusal.code != _NONE:
            return api.ListClusterMirrorsResponse(error_code=refusal.code, error_message=refusal.why)
        listed = []
        for name in sorted(self._mirrors.configs):
            topics = sorted({key.topic for key in self._life.records if key.mirror == name})
            properties = self._properties.of(name)
            listed.append(
                api.ListedMirror(
                    mirror_name=name,
                    source_bootstrap=properties[BOOTSTRAP],
                    source_cluster_id=properties.get(SOURCE_ID, ""),
                    topic_count=len(topics),
                    topic_names=tuple(topics) if asked.include_topic_names else (),
                )
            )
        return api.ListClusterMirrorsResponse(error_code=_NONE, mirrors=tuple(listed))

    async def describe(self, request: Request) -> api.DescribeClusterMirrorsResponse:
        """DescribeClusterMirrors: the partitions that this process has."""
        asked: api.DescribeClusterMirrorsRequest = request.decode()
        if any(name not in self._mirrors.configs for name in asked.mirror_names):
            refusal = await _refused(self._learned, code=_NO_ANSWER)
            if refusal.code != _NONE:
                return api.DescribeClusterMirrorsResponse(error_code=refusal.code, error_message=refusal.why)
        own = [record for record in self._life.records.values() if record.owner == self._life.hub.me]
        described = []
        for name in asked.mirror_names or sorted(self._mirrors.configs):
            known = name in self._mirrors.configs
            records = [record for record in own if known and record.key.mirror == name]
            described.append(
                api.DescribedMirror(
                    error_code=_NONE if known else MirrorErrorCode.UNKNOWN_CLUSTER_MIRROR,
                    mirror_name=name,
                    topics=topics_of(records, lambda record: self._life.mirrored(record.key)),
                )
            )
        epochs = last_mirror_epochs(asked.last_mirror_epoch_lookups, own, source_cluster=asked.cluster_id)
        return api.DescribeClusterMirrorsResponse(error_code=_NONE, mirrors=tuple(described), lookup_results=epochs)

    # --- topics --------------------------------------------------------------------------------------------------

    def _topics_handler(
        self, action: Action, response: type[api.TopicsResponse]
    ) -> Callable[[Request], Awaitable[api.TopicsResponse]]:
        async def handler(request: Request) -> api.TopicsResponse:
            asked: TopicsRequest = request.decode()
            results: dict[str, Refusal] = {}
            forwarded = request.client_id == FORWARDED
            refusal = await _refused(
                lambda: self._act(action, asked, results, forwarded=forwarded),
                code=MirrorErrorCode.INVALID_MIRROR_STATE,
            )
            return response(
                error_code=refusal.code,
                error_message=refusal.why or None,
                topics=tuple(
                    api.TopicResult(name=name, error_code=one.code, error_message=one.why or None)
                    for name, one in results.items()
                ),
            )

        return handler

    async def _act(
        self, action: Action, asked: TopicsRequest, results: dict[str, Refusal], *, forwarded: bool
    ) -> Refusal:
        """Do it for the topics that may; `results` gets one entry per topic. Returns the error of the whole request."""
        await self._learned()
        if asked.mirror_name not in self._mirrors.configs:
            return _unknown(asked.mirror_name)
        topics = await self._named(asked)
        if not forwarded:
            results.update(await self._refusals(action, asked, topics))
        accepted = [topic for topic in topics if topic not in results]
        if not accepted:
            return _OK
        done = await _refused(
            lambda: self._operate(action, asked.mirror_name, accepted), code=MirrorErrorCode.INVALID_MIRROR_STATE
        )
        if done is _OK and not forwarded and (errors := await self._forwarding.to_others(_only(asked, accepted))):
            done = Refusal(_NO_ANSWER, "; ".join(errors))
        results.update(dict.fromkeys(accepted, done))
        return _OK

    async def _operate(self, action: Action, mirror: str, topics: Sequence[str]) -> Refusal:
        operation = getattr(self._operations, action)
        await operation(mirror, topics)
        return _OK

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

    async def _refusals(self, action: Action, asked: TopicsRequest, topics: Iterable[str]) -> dict[str, Refusal]:
        found: dict[str, Refusal] = {}
        if isinstance(asked, api.StartMirrorTopicsRequest):
            found = await self._not_on_the_source(asked, topics)
        records, live = list(self._life.records.values()), self._peers.live()
        for topic in topics:
            refusal = topic_refusal(action, asked.mirror_name, topic, records, live=live)
            if refusal is not None:
                found.setdefault(topic, refusal)
        return found

    async def _not_on_the_source(self, asked: api.StartMirrorTopicsRequest, topics: Iterable[str]) -> dict[str, Refusal]:
        there = {topic.name: topic.topic_id for topic in await self._mirrors.discover(asked.mirror_name)}
        ids = {topic.topic_name: topic.topic_id for topic in asked.topics}
        found = {}
        for topic in topics:
            if topic not in there:
                found[topic] = Refusal(_NO_TOPIC, f"the source of mirror {asked.mirror_name} has no topic {topic}")
            elif ids.get(topic) not in (None, there[topic]):
                found[topic] = Refusal(_OTHER_ID, f"topic {topic} has id {there[topic]} on the source")
        return found

    # --- other processes -----------------------------------------------------------------------------------------

    async def _learned(self) -> Refusal:
        async with self._changing:
            await self._learn()
        return _OK

    async def _learn(self) -> None:
        """Know the mirrors and records of other processes, if there are any."""
        if not self._peers.alone:
            await self._mirrors.learn()
            await self._peers.learn()


async def _refused(work: Callable[[], Awaitable[Refusal]], *, code: int) -> Refusal:
    """What work returns, or why it failed; code: for a state that does not allow it."""
    try:
        return await work()
    except MirrorError as error:
        return Refusal(code, str(error))
    except (WireError, TimeoutError) as error:
        return Refusal(_NO_ANSWER, str(error) or "no answer in time")


def _unknown(mirror: str) -> Refusal:
    return Refusal(MirrorErrorCode.UNKNOWN_CLUSTER_MIRROR, f"no mirror is called {mirror!r}")


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
