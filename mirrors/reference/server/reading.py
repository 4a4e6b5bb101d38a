"""Reading one partition at its leader or a follower, at once: records at an offset, or an offset by timestamp."""

from __future__ import annotations

import datetime
import uuid
from typing import Final

from kio.schema.fetch.v13 import request as fetch
from kio.schema.fetch.v13.response import PartitionData
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.list_offsets.v7.response import ListOffsetsPartitionResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.wire.cluster import Cluster

EARLIEST, LATEST = -2, -1
ONE_BATCH: Final = 1  # a broker sends the first batch whole, however small the limit is

_NO_WAIT: Final = i32Timedelta.parse(datetime.timedelta())


async def read(
    cluster: Cluster, broker: int, *, topic_id: uuid.UUID, partition: int, offset: int, max_bytes: int
) -> PartitionData:
    """A broker's answer for one partition, its error included. Raises WireError without an answer."""
    part = fetch.FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes))
    request = fetch.FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=_NO_WAIT,
        min_bytes=i32(0),
        topics=(fetch.FetchTopic(topic_id=topic_id, partitions=(part,)),),
        forgotten_topics_data=(),
    )
    found: PartitionData = (await cluster.call_broker(broker, request)).responses[0].partitions[0]
    return found


async def listed_offset(
    cluster: Cluster, broker: int, topic: str, partition: int, which: int, *, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    """A leader's answer for its EARLIEST or LATEST offset, its error included. Raises WireError without an answer.

    leader_epoch: as the asker knows it; -1: not compared.
    """
    part = list_offsets.ListOffsetsPartition(
        partition_index=i32(partition), current_leader_epoch=i32(leader_epoch), timestamp=i64(which)
    )
    request = list_offsets.ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(list_offsets.ListOffsetsTopic(name=TopicName(topic), partitions=(part,)),),
    )
    found: ListOffsetsPartitionResponse = (await cluster.call_broker(broker, request)).topics[0].partitions[0]
    return found
