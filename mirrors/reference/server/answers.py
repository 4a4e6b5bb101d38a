"""Responses to clients and followers: consumers are redirected to a replica that has a log, writers are refused.

Every request that concerns no partition (metadata, topics, configurations, ACLs, producer ids) is forwarded to a real
broker of the destination. Lists that an admin client collects from every broker are empty here.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import Records, i32, i32Timedelta, i64

from harness.wire import frames
from harness.wire.addresses import Address, parse_addresses
from harness.wire.frames import WireError
from harness.wire.server import Request, WireServer
from mirrors.reference.server.entities import kinds_of, make
from mirrors.reference.server.fetch_codec import FIRST_VERSION
from mirrors.reference.server.follower_fetch import FollowerFetch
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.offsets import Found, Offsets
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, EPOCH_ENDS, WRITE_MARKERS = 0, 1, 2, 21, 23, 27
LIST_GROUPS, DESCRIBE_LOG_DIRS, LIST_TRANSACTIONS = 16, 35, 66

# metadata, coordinators, topics, producer ids, ACLs, configurations, partitions, elections, reassignments, quotas,
# credentials, quorum, features, cluster, topic partitions
PASSED_ON: Final = (3, 10, 19, 20, 22, 29, 30, 31, 32, 33, 37, 43, 44, 45, 46, 48, 49, 50, 51, 55, 57, 60, 75)

READ_ONLY: Final = ErrorCode.policy_violation
READ_ONLY_MESSAGE: Final = "the topic is a mirror and read-only until it is stopped"

_CONSUMER_WAIT_S: Final = 0.2
_ZERO: Final = i32Timedelta.parse(datetime.timedelta())


class Answers:
    """The handlers of one process. refresh: requests the destination's metadata now."""

    def __init__(self, hub: Hub, refresh: Callable[[], Awaitable[object]]) -> None:
        self._hub = hub
        self._followers = FollowerFetch(hub, refresh)
        self._offsets = Offsets(hub, self._read_replica)

    def server(self) -> WireServer:
        """A server with all handlers."""
        return WireServer(
            {
                PRODUCE: ((3, 13), self.produce),
                FETCH: ((11, 18), self.fetch),
                LIST_OFFSETS: ((1, 11), self.list_offsets),
                DELETE_RECORDS: ((0, 2), self.delete_records),
                EPOCH_ENDS: ((2, 4), self.epoch_ends),
                WRITE_MARKERS: ((1, 2), self.write_markers),
                LIST_GROUPS: ((0, 5), self.nothing_here),
                DESCRIBE_LOG_DIRS: ((1, 5), self.nothing_here),
                LIST_TRANSACTIONS: ((0, 2), self.nothing_here),
            }
        )

    async def pass_on(self, server: WireServer) -> None:
        """Offer what a real broker of the destination offers. Raises WireError."""
        for address in parse_addresses(self._hub.settings.destination.bootstrap):
            try:
                theirs = await self._hub.destination.connection(address, "passed-on").versions()
            except WireError:
                continue
            server.pass_on({key: theirs[key] for key in PASSED_ON if key in theirs}, self._ask_broker)
            return
        raise WireError("no broker of the destination reports its API versions")

    async def _ask_broker(self, request: Request) -> bytes:
        failures = []
        for address in self._upstream(request.listener):
            connection = self._hub.destination.connection(address, "passed-on")
            try:
                payload, used = await connection.exchange(request.api_key, request.version, request.body, timeout_s=20)
            except WireError as error:
                failures.append(str(error))
                continue
            return payload[used:]
        raise WireError("no broker of the destination answered: " + "; ".join(failures))

    def _upstream(self, listener: str) -> Sequence[Address]:
        """Real brokers on the listener of this name: the response has addresses of the same listener."""
        settings = self._hub.settings
        named = {one.name: one.upstream for one in settings.listeners}
        return parse_addresses(named.get(listener) or settings.destination.bootstrap)

    # --- reading -----------------------------------------------------------------------------------------------

    async def fetch(self, request: Request) -> Any:
        """Fetch, of followers and consumers."""
        asked = request.decode()
        if request.version >= 15:
            follower, epoch = int(asked.replica_state.replica_id), int(asked.replica_state.replica_epoch)
        else:
            follower, epoch = int(asked.replica_id), -1
        if follower >= 0 and request.version >= FIRST_VERSION:
            return await self._followers.answer(request, asked, follower, epoch)
        answer, found = self._send_away(request.version, asked)
        if not found:  # no replica has the data yet: do not let the consumer poll in a tight loop
            await asyncio.sleep(min(_CONSUMER_WAIT_S, asked.max_wait.total_seconds()))
            answer, _ = self._send_away(request.version, asked)
        return answer

    def _send_away(self, version: int, asked: Any) -> tuple[Any, bool]:
        """The response, and whether it has an entry for any partition."""
        found = False
        kinds = kinds_of(FETCH, version)
        topics = []
        for topic in asked.topics:
            parts = []
            for part in topic.partitions:
                led = self._find(topic, int(part.partition))
                error = self._consumer_error(led, int(part.current_leader_epoch))
                replica = -1
                if led is not None and error is ErrorCode.none:
                    replica = self._read_replica(led, int(part.fetch_offset))
                found = found or replica >= 0 or error is not ErrorCode.none
                hw = -1 if led is None or led.high_watermark is None else led.high_watermark
                parts.append(
                    make(
                        kinds.PartitionData,
                        partition_index=part.partition,
                        error_code=error,
                        high_watermark=i64(hw),
                        last_stable_offset=i64(hw),
                        log_start_offset=i64(0 if led is None else led.sent_log_start),
                        aborted_transactions=None,
                        preferred_read_replica=BrokerId(replica),
                        records=Records(b""),
                    )
                )
            topics.append(
                make(
                    kinds.FetchableTopicResponse,
                    topic_id=getattr(topic, "topic_id", None),
                    topic=getattr(topic, "topic", None),
                    partitions=tuple(parts),
                )
            )
        answer = make(
            kinds.FetchResponse,
            throttle_time=_ZERO,
            error_code=ErrorCode.none,
            session_id=i32(0),
            responses=tuple(topics),
        )
        return answer, found

    def _consumer_error(self, led: LedPartition | None, epoch: int) -> ErrorCode:
        if led is None or not led.leading:
            return ErrorCode.not_leader_or_follower
        if epoch in (-1, led.leader_epoch):
            return ErrorCode.none
        return ErrorCode.fenced_leader_epoch if epoch < led.leader_epoch else ErrorCode.unknown_leader_epoch

    def _read_replica(self, led: LedPartition, offset: int = 0) -> int:
        """An in-sync follower that holds nothing but this log, and knows a high watermark at or after the offset; -1
        when there is none.

        Spread over the followers by partition; the same one every time, as long as it qualifies.
        """
        sent = {c.session.follower: c.sent_high_watermark for c in self._hub.sessions.of(led)}
        able = [b for b in sorted(led.isr) if b < FIRST_MIRROR_ID and led.matches(b) and sent.get(b, -1) >= offset]
        preferred = [b for b in led.replicas if b in able]
        return preferred[0] if preferred else -1

    async def list_offsets(self, request: Request) -> Any:
        """ListOffsets: see offsets."""
        asked = request.decode()
        kinds = kinds_of(LIST_OFFSETS, request.version)
        judged: dict[tuple[str, int], tuple[LedPartition | None, ErrorCode]] = {}
        wanted: dict[LedPartition, int] = {}
        for topic in asked.topics:
            for part in topic.partitions:
                led = self._find(topic, int(part.partition_index))
                error = self._consumer_error(led, int(getattr(part, "current_leader_epoch", -1)))
                judged[str(topic.name), int(part.partition_index)] = led, error
                if led is not None and error is ErrorCode.none:
                    wanted[led] = int(part.timestamp)
        found = await self._offsets.find(
            wanted, by_replica=int(asked.replica_id) >= 0, committed=int(getattr(asked, "isolation_level", 0)) == 1
        )

        def answer(name: str, part: Any) -> Any:
            led, error = judged[name, int(part.partition_index)]
            one = Found(error) if led is None else found.get(led, Found(error))
            return make(
                kinds.ListOffsetsPartitionResponse,
                partition_index=part.partition_index,
                error_code=one.error,
                timestamp=i64(one.time),
                offset=i64(one.offset),
                leader_epoch=i32(-1 if led is None else led.leader_epoch),
            )

        topics = tuple(
            kinds.ListOffsetsTopicResponse(
                name=topic.name, partitions=tuple(answer(str(topic.name), part) for part in topic.partitions)
            )
            for topic in asked.topics
        )
        return make(kinds.ListOffsetsResponse, throttle_time=_ZERO, topics=topics)

    async def epoch_ends(self, request: Request) -> Any:
        """OffsetForLeaderEpoch: where an epoch ended in the log that the followers have."""
        kinds = kinds_of(EPOCH_ENDS, request.version)
        topics = []
        for topic in request.decode().topics:
            parts = []
            for part in topic.partitions:
                led = self._find(topic, int(part.partition))
                error = self._consumer_error(led, int(part.current_leader_epoch))
                epoch = end = -1
                if led is not None and error is ErrorCode.none:
                    epoch, known_end = led.epochs.end_of(int(part.leader_epoch))
                    end = led.log_end if known_end is None and epoch >= 0 else -1 if known_end is None else known_end
                parts.append(
                    kinds.EpochEndOffset(
                        error_code=error, partition=part.partition, leader_epoch=i32(epoch), end_offset=i64(end)
                    )
                )
            topics.append(kinds.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(parts)))
        return make(kinds.OffsetForLeaderEpochResponse, throttle_time=_ZERO, topics=tuple(topics))

    # --- writing -----------------------------------------------------------------------------------------------

    async def produce(self, request: Request) -> Any:
        """Refused: a mirror is read-only."""
        asked = request.decode()
        kinds = kinds_of(PRODUCE, request.version)
        topics = []
        for topic in asked.topic_data:
            parts = []
            for part in topic.partition_data:
                led = self._find(topic, int(part.index))
                mirrored = led is not None and led.leading and self._hub.mirrored_of(led) is not None
                parts.append(
                    make(
                        kinds.PartitionProduceResponse,
                        index=part.index,
                        error_code=READ_ONLY if mirrored else ErrorCode.not_leader_or_follower,
                        base_offset=i64(-1),
                        log_append_time=None,
                        record_errors=(),
                        error_message=READ_ONLY_MESSAGE if mirrored else None,
                    )
                )
            topics.append(
                make(
                    kinds.TopicProduceResponse,
                    name=getattr(topic, "name", None),
                    topic_id=getattr(topic, "topic_id", None),
                    partition_responses=tuple(parts),
                )
            )
        if int(asked.acks) == 0:
            raise WireError("a producer with acks=0 wrote to a mirror, which is read-only")
        return make(kinds.ProduceResponse, responses=tuple(topics), throttle_time=_ZERO)

    async def delete_records(self, request: Request) -> Any:
        """Refused: the log start is the source's."""
        kinds = kinds_of(DELETE_RECORDS, request.version)
        topics = [
            kinds.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    kinds.DeleteRecordsPartitionResult(
                        partition_index=part.partition_index, low_watermark=i64(-1), error_code=READ_ONLY
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.decode().topics
        ]
        return make(kinds.DeleteRecordsResponse, throttle_time=_ZERO, topics=tuple(topics))

    async def write_markers(self, request: Request) -> Any:
        """Acknowledged: no record of a local transaction was ever accepted here, so there is nothing to mark.

        An error would make the coordinator retry for ever, and block its transactional id.
        """
        kinds = kinds_of(WRITE_MARKERS, request.version)
        markers = [
            kinds.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    kinds.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            kinds.WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.none)
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.decode().markers
        ]
        return kinds.WriteTxnMarkersResponse(markers=tuple(markers))

    async def nothing_here(self, request: Request) -> Any:
        """An empty list."""
        response = frames.response_type(request.api_key, request.version)
        empty: dict[str, Any] = {"throttle_time": _ZERO, "error_code": ErrorCode.none}
        for name in ("groups", "results", "transaction_states", "unknown_state_filters"):
            empty[name] = ()
        return make(response, **empty)

    def _find(self, topic: Any, partition: int) -> LedPartition | None:
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is not None:
            return self._hub.partitions.get((topic_id, partition))
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        return self._hub.by_name.get((str(name), partition))
