"""One setting of one topic: read, alter, restore, each change recorded in table `configs`."""

from __future__ import annotations

import contextlib
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from harness.clusters.base import Cluster
from harness.errors import ClusterError, StorageError
from harness.history.recording import Recorder

REQUEST_S = 10.0


def read(cluster: Cluster, topic: str, name: str) -> str | None:
    """The topic's own value, None when it only inherits one.

    Raises: ClusterError.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        future = cluster.admin().describe_configs([resource], request_timeout=REQUEST_S)[resource]
        entry = future.result(timeout=REQUEST_S + 1).get(name)
    except Exception as error:
        raise ClusterError(f"cluster {cluster.name} does not tell {name} of {topic}: {error}") from error
    if entry is None or entry.source != ConfigSource.DYNAMIC_TOPIC_CONFIG.value:
        return None
    return str(entry.value)


def alter(recorder: Recorder, cluster: Cluster, topic: str, name: str, value: str) -> None:
    """Set it.

    Raises: ClusterError.
    """
    _change(recorder, cluster, topic, name, value, AlterConfigOpType.SET)


def restore(recorder: Recorder, cluster: Cluster, topic: str, name: str, before: str | None) -> None:
    """Set it to what it was, or delete it where the topic had none of its own.

    Raises: ClusterError.
    """
    if before is None:
        _change(recorder, cluster, topic, name, None, AlterConfigOpType.DELETE)
    else:
        _change(recorder, cluster, topic, name, before, AlterConfigOpType.SET)


def _change(recorder: Recorder, cluster: Cluster, topic: str, name: str, value: str | None, operation: Any) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    try:
        future = cluster.admin().incremental_alter_configs([resource], request_timeout=REQUEST_S)[resource]
        future.result(timeout=REQUEST_S + 1)
    except Exception as error:
        raise ClusterError(f"cluster {cluster.name} does not change {name} of {topic}: {error}") from error
    with contextlib.suppress(StorageError):  # a full disk must not stop a healing; the run ends by it anyway
        recorder.row("configs", cluster=cluster.name, event="alter", actor="admin", topic=topic, name=name, value=value)
