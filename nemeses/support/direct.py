"""Requests to one chosen broker, without a client library that still uses brokers which have just been killed.

librdkafka sends elections and configuration changes to the last known controller, and waits for it until its own
time-outs; a fault cannot. Brokers forward such requests to the active controller themselves.
"""

from __future__ import annotations

import datetime
from typing import Any

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.clusters.kafka.node_requests import request
from harness.core.errors import ClusterError
from harness.topology.clusters import Cluster, NodeState
from harness.wire.client import WireError
from harness.wire.metadata import PartitionMeta
from harness.wire.topic_configs import alteration, entries_in, own_entries
from nemeses.support.recovery import client_address

REQUEST_S = 8.0
_UNCLEAN = i8(1)
_LATEST = i64(-1)


def high_watermark(cluster: Cluster, info: PartitionMeta) -> int:
    """The partition's high watermark according to its leader (of `info`).

    Raises: ClusterError when that broker does not answer, or no longer leads it.
    """
    part = ListOffsetsPartition(partition_index=i32(info.partition), timestamp=_LATEST)
    topic = ListOffsetsTopic(name=TopicName(info.topic), partitions=(part,))
    message = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(topic,))
    if info.leader is None:
        raise ClusterError(f"{info.topic}-{info.partition} on cluster {cluster.name} has no leader")
    found = ask(cluster, info.leader, message).topics[0].partitions[0]
    if found.error_code is not ErrorCode.none:
        raise ClusterError(
            f"broker {info.leader} of cluster {cluster.name} does not report the end of {info.topic}-{info.partition}: "
            f"{found.error_code.name}"
        )
    return int(found.offset)


def delete_records(cluster: Cluster, info: PartitionMeta, offset: int) -> int:
    """Delete records below an offset, at the partition's leader; returns its log start afterwards.

    Raises: ClusterError.
    """
    if info.leader is None:
        raise ClusterError(f"{info.topic}-{info.partition} on cluster {cluster.name} has no leader")
    part = DeleteRecordsPartition(partition_index=i32(info.partition), offset=i64(offset))
    message = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=TopicName(info.topic), partitions=(part,)),),
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=REQUEST_S - 1)),
    )
    found = ask(cluster, info.leader, message).topics[0].partitions[0]
    if found.error_code is not ErrorCode.none:
        raise ClusterError(
            f"records of {info.topic}-{info.partition} on cluster {cluster.name} cannot be deleted: "
            f"{found.error_code.name}"
        )
    return int(found.low_watermark)


def elect_unclean(cluster: Cluster, info: PartitionMeta) -> str | None:
    """Request an unclean leader election; returns the error, None when it was done.

    Raises: ClusterError when no broker answers.
    """
    message = ElectLeadersRequest(
        election_type=_UNCLEAN,
        topic_partitions=(TopicPartitions(topic=TopicName(info.topic), partitions=(i32(info.partition),)),),
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=REQUEST_S - 1)),
    )
    answer = _ask_any(cluster, message)
    if answer.error_code is not ErrorCode.none:
        return str(answer.error_code.name)
    for result in answer.replica_election_results:
        for part in result.partition_result:
            if part.error_code is not ErrorCode.none:
                return f"{part.error_code.name}: {part.error_message}"
    return None


def topic_setting(cluster: Cluster, topic: str, name: str) -> str | None:
    """The topic's own value of a setting, None when it only inherits one.

    Raises: ClusterError.
    """
    answer = _ask_any(cluster, own_entries((topic,)))
    result = answer.results[0]
    if result.error_code is not ErrorCode.none:
        raise ClusterError(f"cluster {cluster.name} does not report {name} of {topic}: {result.error_code.name}")
    return entries_in(answer)[topic].get(name)


def set_topic_setting(cluster: Cluster, topic: str, name: str, value: str | None) -> None:
    """Set it, or delete the topic's own value (None).

    Raises: ClusterError.
    """
    answer = _ask_any(cluster, alteration(topic, {name: value})).responses[0]
    if answer.error_code is not ErrorCode.none:
        raise ClusterError(
            f"cluster {cluster.name} does not change {name} of {topic}: {answer.error_code.name} {answer.error_message}"
        )


def ask(cluster: Cluster, broker: int, message: Any) -> Any:
    """One request to one broker. Raises: ClusterError when it does not answer, or serves no clients."""
    address = client_address(cluster, cluster.brokers[broker])
    if address is None:
        raise ClusterError(f"broker {broker} of cluster {cluster.name} serves no clients")
    try:
        return request(*address, message, timeout_s=REQUEST_S)
    except WireError as error:
        raise ClusterError(f"broker {broker} of cluster {cluster.name} does not answer: {error}") from error


def _ask_any(cluster: Cluster, message: Any) -> Any:
    """The first answer of a broker whose container runs."""
    errors = []
    running = [broker for broker, node in sorted(cluster.brokers.items()) if node.state() is NodeState.RUNNING]
    for broker in running:
        try:
            return ask(cluster, broker, message)
        except ClusterError as error:
            errors.append(str(error))
    raise ClusterError("; ".join(errors) or f"no broker of cluster {cluster.name} runs")
