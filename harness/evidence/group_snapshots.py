"""Snapshots of groups' offsets: consumer groups through the admin client, share groups' start offsets by raw requests.

Each row has two times: `began_ns` before the brokers were asked, `time_ns` when the answer came. Its values
held at some moment between them.

It cannot see: groups of brokers that do not answer (they are a note), and what happened between two snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from kio.schema.describe_share_group_offsets.v0 import request as describe_share
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5 import request as list_groups
from kio.schema.types import GroupId

from harness.history.recording import Recorder
from harness.topology.clusters import Cluster
from harness.wire.client import WireError
from harness.wire.view import ClusterView

Notes = list[str]

_TIMEOUT_S: Final = 10.0
_SHARE: Final = "share"
_CONSUMERS_PROTOCOL: Final = ("consumer", "")  # classic groups of another protocol, such as Connect's, consume nothing
_CONSUMER: Final = ("consumer", "classic")


def snapshot_groups(
    cluster: Cluster, recorder: Recorder, *, view: ClusterView | None = None, groups: Collection[str] | None = None
) -> Notes:
    """One row of `group_offsets` (event look) per partition that a consumer group has committed, or that a share group
    has a start offset of. groups: only these; all when None. Failures are notes."""
    own = view is None
    view = view or ClusterView(cluster.bootstrap)
    try:
        answers, failures = view.ask_all(list_groups.ListGroupsRequest(states_filter=(), types_filter=()))
    except WireError as error:
        return [f"groups of cluster {cluster.name}: {error}"]
    else:
        listed = [group for answer in answers if answer.error_code is ErrorCode.none for group in answer.groups]
        listed = [group for group in listed if groups is None or str(group.group_id) in groups]
        states = {str(g.group_id): str(g.group_state) for g in listed}
        consumers = [
            str(g.group_id)
            for g in listed
            if g.group_type.lower() in _CONSUMER and g.protocol_type in _CONSUMERS_PROTOCOL
        ]
        shares = [str(g.group_id) for g in listed if g.group_type.lower() == _SHARE]
        notes = [f"groups of cluster {cluster.name}: {failure}" for failure in failures]
        notes += _snapshot_consumer_groups(cluster, consumers, recorder)
        return notes + _snapshot_share_groups(cluster.name, view, {name: states[name] for name in shares}, recorder)
    finally:
        if own:
            view.close()


def _snapshot_consumer_groups(cluster: Cluster, groups: Sequence[str], recorder: Recorder) -> Notes:
    if not groups:
        return []
    admin = cluster.admin()
    notes: Notes = []
    began = recorder.clock.now_ns()
    try:
        described = admin.describe_consumer_groups(list(groups), request_timeout=_TIMEOUT_S)
        asked = {group: _ask_offsets(admin, group) for group in groups}
    except KafkaException as error:
        return [f"groups of cluster {cluster.name}: {_words(error)}"]
    for group in groups:
        try:
            offsets = asked[group].result(_TIMEOUT_S).topic_partitions or []
            there = recorder.clock.now_ns()
            description = described[group].result(_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            notes.append(f"group {group} of cluster {cluster.name}: {_words(error)}")
            continue
        for found in offsets:
            if found.error is None and found.offset >= 0:
                recorder.row(
                    "group_offsets",
                    cluster=cluster.name,
                    group=group,
                    kind="consumer",
                    event="look",
                    began_ns=began,
                    time_ns=there,
                    state=description.state.name,
                    members=len(description.members),
                    topic=found.topic,
                    partition=found.partition,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                )
    return notes


def _ask_offsets(admin: Any, group: str) -> Any:
    request = [ConsumerGroupTopicPartitions(group)]
    return admin.list_consumer_group_offsets(request, request_timeout=_TIMEOUT_S)[group]


def _snapshot_share_groups(letter: str, view: ClusterView, states: Mapping[str, str], recorder: Recorder) -> Notes:
    """states: group → its state. Every broker is asked, and answers for the groups that it coordinates; one without
    groups, such as a mirror that is a broker, need not answer."""
    if not states:
        return []
    request = describe_share.DescribeShareGroupOffsetsRequest(
        groups=tuple(
            describe_share.DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None)
            for group in sorted(states)
        )
    )
    began = recorder.clock.now_ns()
    try:
        answers, failures = view.ask_all(request)
    except WireError as error:
        return [f"share groups of cluster {letter}: {error}"]
    there = recorder.clock.now_ns()
    described = {str(g.group_id) for answer in answers for g in answer.groups if g.error_code is ErrorCode.none}
    for group, topic, partition, offset, epoch in _start_offsets(answers):
        recorder.row(
            "group_offsets",
            cluster=letter,
            group=group,
            kind="share",
            event="look",
            began_ns=began,
            time_ns=there,
            state=states[group],
            topic=topic,
            partition=partition,
            offset=offset,
            leader_epoch=epoch,
        )
    return [f"share group {g} of cluster {letter}: {'; '.join(failures)}" for g in sorted(states.keys() - described)]


def _start_offsets(answers: Iterable[Any]) -> Iterable[tuple[str, str, int, int, int]]:
    for answer in answers:
        for group in answer.groups:
            if group.error_code is not ErrorCode.none:
                continue  # another broker coordinates it
            for topic in group.topics:
                for part in topic.partitions:
                    if part.error_code is ErrorCode.none and part.start_offset >= 0:
                        yield (
                            str(group.group_id),
                            str(topic.topic_name),
                            int(part.partition_index),
                            int(part.start_offset),
                            int(part.leader_epoch),
                        )


def _words(error: BaseException) -> str:
    first: Any = error.args[0] if error.args else None
    return str(first.str()) if hasattr(first, "str") else (str(error) or type(error).__name__)
