"""One setting of one topic, changed for a fault; each change is recorded in table `configs`."""

from __future__ import annotations

import contextlib

from harness.core.errors import StorageError
from harness.history.recording import Recorder
from harness.topology.clusters import Cluster
from nemeses.base import FaultContext
from nemeses.support.direct import set_topic_setting, topic_setting


def change(context: FaultContext, cluster: Cluster, topic: str, name: str, value: str) -> None:
    """Set it, after registering how to restore it: the topic's previous own value, or none.

    Raises: ClusterError.
    """
    before = topic_setting(cluster, topic, name)
    if before == value:
        return
    context.undo.push(f"restore {name} of {topic}", lambda: _set(context.recorder, cluster, topic, name, before))
    _set(context.recorder, cluster, topic, name, value)


def _set(recorder: Recorder, cluster: Cluster, topic: str, name: str, value: str | None) -> None:
    set_topic_setting(cluster, topic, name, value)
    with contextlib.suppress(StorageError):  # a full disk must not stop a healing; it ends the run anyway
        recorder.row("configs", cluster=cluster.name, event="alter", actor="admin", topic=topic, name=name, value=value)
