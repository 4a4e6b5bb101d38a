"""Looks through the admin client: group offsets and topic configurations.

ACLs are not looked at, because the clusters run without an authorizer, and share groups' offsets are not, because no
client library offers them yet: table `acls` stays absent, and kind `share` does not occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from harness.clusters.base import Cluster
from harness.history.recording import Recorder

Notes = list[str]

_TIMEOUT_S: Final = 10.0


def look_group_offsets(cluster: Cluster, recorder: Recorder, *, groups: Sequence[str] | None = None) -> Notes:
    """One row of `group_offsets` (event look) per partition that a consumer group has committed.

    groups: only these; all when None. A group that cannot be described is a note.
    """
    admin = cluster.admin()
    try:
        if groups is None:
            listed = admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S)
            groups = sorted(group.group_id for group in listed.valid)
        if not groups:
            return []
        described = admin.describe_consumer_groups(list(groups), request_timeout=_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        return [f"groups of cluster {cluster.name}: {_words(error)}"]
    notes: Notes = []
    for group, future in described.items():
        try:
            description = future.result(_TIMEOUT_S)
            offsets = _offsets(admin, group)
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
                    state=description.state.name,
                    members=len(description.members),
                    topic=found.topic,
                    partition=found.partition,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                )
    return notes


def _offsets(admin: Any, group: str) -> Sequence[Any]:
    request = [ConsumerGroupTopicPartitions(group)]
    futures = admin.list_consumer_group_offsets(request, request_timeout=_TIMEOUT_S)
    answer = futures[group].result(_TIMEOUT_S)
    return list(answer.topic_partitions or [])


def look_configs(cluster: Cluster, topics: Sequence[str], recorder: Recorder, *, look: int) -> Notes:
    """One row of `configs` (event look) per entry that was set on a topic itself (not a broker's default)."""
    try:
        there = set(cluster.topics()) & set(topics)
        if not there:
            return []
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(there)]
        futures = cluster.admin().describe_configs(resources, request_timeout=_TIMEOUT_S)
        found = {resource.name: future.result(_TIMEOUT_S) for resource, future in futures.items()}
    except Exception as error:  # the admin client's and our own errors alike: a look raises nothing
        return [f"configs of cluster {cluster.name}: {_words(error)}"]
    for topic, entries in found.items():
        for name, entry in sorted(entries.items()):
            if not entry.is_default and entry.value is not None and _own(entry):
                recorder.row(
                    "configs", cluster=cluster.name, look=look, event="look", topic=topic, name=name, value=entry.value
                )
    return []


def _own(entry: Any) -> bool:
    """Whether the topic itself sets it (ConfigSource.DYNAMIC_TOPIC_CONFIG)."""
    return int(entry.source) == 1


def _words(error: BaseException) -> str:
    first: Any = error.args[0] if error.args else None
    return str(first.str()) if hasattr(first, "str") else (str(error) or type(error).__name__)
