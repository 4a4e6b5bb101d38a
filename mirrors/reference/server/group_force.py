"""Writes offsets of a group that has members, which a coordinator could do by itself and a guard forbids.

A plain commit by a non-member is refused while a group has members. A transactional commit without a member id is not:
brokers accept it for clients from before KIP-447.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

from kio.schema.add_offsets_to_txn.v3 import request as add_offsets
from kio.schema.end_txn.v3 import request as end_txn
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import request as init_producer
from kio.schema.txn_offset_commit.v3 import request as txn_commit
from kio.schema.types import GroupId, ProducerId, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from harness.wire.cluster import TRANSACTION, Cluster
from harness.wire.frames import WireError
from mirrors.reference.server.group_wire import Committed, TopicPartition, commit_topics

_TIMEOUT: Final = i32Timedelta.parse(datetime.timedelta(seconds=10))


async def force_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, str]:
    """Write offsets whether the group has members or not. Returns what was refused. Raises WireError."""
    name = TransactionalId(f"__mirror-group-sync-{group}")
    producer, epoch = await _begin(cluster, name, group)
    answer = await cluster.call_coordinator(group, _commit(name, group, producer, epoch, offsets))
    refused = {
        (str(topic.name), int(part.partition_index)): part.error_code.name
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code is not ErrorCode.none
    }
    end = end_txn.EndTxnRequest(
        transactional_id=name, producer_id=ProducerId(producer), producer_epoch=i16(epoch), committed=True
    )
    ended = await cluster.call_coordinator(str(name), end, kind=TRANSACTION)
    if ended.error_code is not ErrorCode.none:
        raise WireError(f"offsets of group {group} cannot be committed: {ended.error_code.name}")
    return refused


async def _begin(cluster: Cluster, name: TransactionalId, group: str) -> tuple[int, int]:
    init = init_producer.InitProducerIdRequest(transactional_id=name, transaction_timeout=_TIMEOUT)
    made = await cluster.call_coordinator(str(name), init, kind=TRANSACTION)
    if made.error_code is not ErrorCode.none:
        cluster.forget_coordinator(str(name), TRANSACTION)
        raise WireError(f"no transaction for the offsets of group {group}: {made.error_code.name}")
    producer, epoch = int(made.producer_id), int(made.producer_epoch)
    add = add_offsets.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=ProducerId(producer), producer_epoch=i16(epoch), group_id=GroupId(group)
    )
    added = await cluster.call_coordinator(str(name), add, kind=TRANSACTION)
    if added.error_code is not ErrorCode.none:
        raise WireError(f"no transaction for the offsets of group {group}: {added.error_code.name}")
    return producer, epoch


def _commit(
    name: TransactionalId, group: str, producer: int, epoch: int, offsets: Mapping[TopicPartition, Committed]
) -> txn_commit.TxnOffsetCommitRequest:
    return txn_commit.TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=GroupId(group),
        producer_id=ProducerId(producer),
        producer_epoch=i16(epoch),
        generation_id=i32(-1),
        member_id="",
        topics=commit_topics(
            txn_commit.TxnOffsetCommitRequestTopic, txn_commit.TxnOffsetCommitRequestPartition, offsets
        ),
    )
