"""Snapshots that need an administrator: topic configurations and ACL bindings.

Table `acls` stays absent where the clusters run without an authorizer.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.history.recording import Recorder
from harness.wire.administration import Administrator
from harness.wire.client import WireError

Notes = list[str]


def snapshot_configs(
    letter: str, admin: Administrator, topics: Sequence[str], recorder: Recorder, *, look: int
) -> Notes:
    """One row of `configs` (event look) per entry that was set on a topic itself (not a broker's default).

    The time is taken before the brokers are asked.
    """
    began = recorder.clock.now_ns()
    try:
        found = admin.configs(topics)
    except WireError as error:
        return [f"configs of cluster {letter}: {error}"]
    for topic, entries in sorted(found.items()):
        for name, value in sorted(entries.items()):
            recorder.row(
                "configs",
                cluster=letter,
                time_ns=began,
                look=look,
                event="look",
                topic=topic,
                name=name,
                value=value,
            )
    return []


def snapshot_acls(letter: str, admin: Administrator, recorder: Recorder, *, look: int) -> Notes:
    """One row of `acls` (event look) per binding, one without a binding where there is none; nothing where the cluster
    has no authorizer. The time is taken before the brokers are asked.
    """
    began = recorder.clock.now_ns()
    try:
        found = admin.bindings()
    except WireError as error:
        return [f"ACLs of cluster {letter}: {error}"]
    if found is None:
        return []
    lines: list[str | None] = [*sorted(binding.line() for binding in found)]
    for line in lines or [None]:
        recorder.row("acls", cluster=letter, time_ns=began, look=look, event="look", binding=line)
    return []
