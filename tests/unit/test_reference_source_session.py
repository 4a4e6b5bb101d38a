"""Fetch sessions with a source broker: the partitions in each request, and the state after each response."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from harness.wire import frames
from harness.wire.cluster import Cluster
from mirrors.reference.server.follower_sessions import Session
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.source import Mirrored, SourceLink
from mirrors.reference.server.source_session import Asked, SourceSession
from mirrors.reference.server.stamping import Stamp

pytestmark = pytest.mark.unit

TOPIC, SOURCE_TOPIC = uuid.uuid4(), uuid.uuid4()


class Scene:
    """Partitions of one follower, fetched from one broker."""

    def __init__(self) -> None:
        self.source = SourceSession()
        self._session = Session(1, follower=1)
        self._link = SourceLink("AB", Cluster("127.0.0.1:1"))
        self._mirrored: dict[int, Mirrored] = {}

    def ask(self, partition: int, offset: int, *, generation: int = 0) -> tuple[uuid.UUID, int]:
        if partition not in self._mirrored:
            led = LedPartition(me=100, topic="t", partition=partition, topic_id=TOPIC)
            self._mirrored[partition] = Mirrored(led=led, link=self._link, source_topic_id=SOURCE_TOPIC, stamp=Stamp())
        mirrored = self._mirrored[partition]
        cursor = self._session.place((TOPIC, partition), mirrored.led)
        one = Asked(cursor, mirrored, offset, generation, 5, 7)
        self.source.ask(one)
        return one.key

    def request(self) -> dict[str, Any]:
        """The session and partitions of the next request, which must be encodable."""
        request = self.source.request(isolation=1, max_bytes=1000, wait_s=0.5)
        assert frames.encode(request)
        return {
            "session": (int(request.session_id), int(request.session_epoch)),
            "told": {int(p.partition): int(p.fetch_offset) for t in request.topics for p in t.partitions},
            "forgotten": [int(p) for t in request.forgotten_topics_data for p in t.partitions],
        }


def answer(session: int = 9, error: ErrorCode = ErrorCode.none) -> Any:
    return SimpleNamespace(session_id=session, error_code=error)


def test_after_the_first_request_only_changes_are_sent() -> None:
    async def body() -> None:
        scene = Scene()
        keys = [scene.ask(partition, 10) for partition in range(3)]
        assert scene.request() == {"session": (0, 0), "told": {0: 10, 1: 10, 2: 10}, "forgotten": []}
        assert scene.source.took(answer())
        assert scene.request() == {"session": (9, 1), "told": {}, "forgotten": []}
        assert scene.source.took(answer())
        scene.ask(1, 12)
        scene.source.drop(keys[2])
        assert scene.request() == {"session": (9, 2), "told": {1: 12}, "forgotten": [2]}
        assert scene.source.took(answer())
        scene.ask(2, 10)
        assert scene.request()["told"] == {2: 10}

    asyncio.run(body())


def test_a_partition_dropped_during_a_request_still_belongs_to_its_response() -> None:
    async def body() -> None:
        scene = Scene()
        key = scene.ask(0, 10)
        scene.request()
        scene.source.drop(key)
        assert scene.source.sent[key].offset == 10
        scene.ask(0, 4, generation=1)
        assert scene.source.sent[key].generation == 0  # the response that comes now is to the old request
        scene.source.took(answer())
        assert scene.request() == {"session": (9, 1), "told": {0: 4}, "forgotten": []}
        assert scene.source.sent[key].generation == 1

    asyncio.run(body())


@pytest.mark.parametrize("how", ["refused", "broken"])
def test_after_an_error_everything_is_sent_again(how: str) -> None:
    async def body() -> None:
        scene = Scene()
        keys = [scene.ask(partition, 10) for partition in range(2)]
        scene.request()
        scene.source.took(answer())
        scene.source.drop(keys[0])
        scene.request()
        if how == "refused":
            assert not scene.source.took(answer(error=ErrorCode.fetch_session_id_not_found))
        else:
            scene.source.reset()
        assert scene.request() == {"session": (0, 0), "told": {1: 10}, "forgotten": []}

    asyncio.run(body())


def test_a_broker_without_room_for_a_session_gets_full_requests() -> None:
    async def body() -> None:
        scene = Scene()
        scene.ask(0, 10)
        scene.request()
        assert scene.source.took(answer(session=0))
        assert scene.request() == {"session": (0, 0), "told": {0: 10}, "forgotten": []}

    asyncio.run(body())
