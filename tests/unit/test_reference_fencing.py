"""A process whose partitions another one has taken over: its requests are held back, its records no longer count."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.elect_leaders.v2 import response as elected
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.list_offsets.v7 import response as offsets
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32Timedelta

from harness.wire.addresses import Address
from harness.wire.server import Request, WireServer
from mirrors.reference.server.fencing import CHANGES, FencedError, newest
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.settings import Destination, Settings
from mirrors.reference.server.states import PartitionState

LIST_OFFSETS, ELECT_LEADERS = 2, 43
RECORD = PartitionRecord(
    key=PartitionKey("AB", "t", 0),
    state=PartitionState.MIRRORING,
    topic_id=uuid.UUID(int=1),
    source_topic_id=uuid.UUID(int=2),
)


class TestStoredRecords:
    """Which of several records of one partition counts."""

    def test_the_one_with_the_highest_token_whenever_it_was_written(self) -> None:
        later = replace(RECORD, fence=1, owner=101)
        assert newest(RECORD, later) is later
        assert newest(later, RECORD) is later

    def test_of_two_under_one_token_the_last(self) -> None:
        stopped = replace(RECORD, state=PartitionState.STOPPED)
        assert newest(RECORD, stopped) is stopped

    def test_of_a_recreated_topic_the_last(self) -> None:
        anew = replace(RECORD, topic_id=uuid.UUID(int=3))
        assert newest(replace(RECORD, fence=2), anew) is anew

    def test_the_token_is_stored(self) -> None:
        assert PartitionRecord.from_bytes(replace(RECORD, fence=3).to_bytes()).fence == 3


def test_in_doubt_only_requests_that_change_nothing_are_sent() -> None:
    sent: list[int] = []
    zero = i32Timedelta.parse(datetime.timedelta())
    asks = list_offsets.ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=())
    changes = elect.ElectLeadersRequest(election_type=i8(0), topic_partitions=(), timeout=zero)
    answers = {
        LIST_OFFSETS: offsets.ListOffsetsResponse(throttle_time=zero, topics=()),
        ELECT_LEADERS: elected.ElectLeadersResponse(
            throttle_time=zero, error_code=ErrorCode.none, replica_election_results=()
        ),
    }

    async def answer(request: Request) -> Any:
        sent.append(request.api_key)
        return answers[request.api_key]

    async def body() -> None:
        now = 0.0
        nobody = Destination(bootstrap="127.0.0.1:1", controllers="127.0.0.1:1")
        hub = Hub(Settings(broker_id=100, destination=nobody, listeners=()), clock=lambda: now)
        server = WireServer({LIST_OFFSETS: ((1, 9), answer), ELECT_LEADERS: ((0, 2), answer)})
        connection = hub.destination.connection(Address("127.0.0.1", await server.listen("CLIENTS", "127.0.0.1", 0)))
        try:
            hub.on_heartbeat_ack(now)
            await connection.call(changes)
            now = 60.0  # it was paused
            await connection.call(asks)
            with pytest.raises(FencedError, match="had no word from the controller"):
                await connection.call(changes)
            await connection.call(asks)  # the connection is as good as before
        finally:
            hub.destination.close()
            await server.close()

    assert ELECT_LEADERS in CHANGES
    asyncio.run(body())
    assert sent == [ELECT_LEADERS, LIST_OFFSETS, LIST_OFFSETS]
