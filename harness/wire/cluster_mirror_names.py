"""Names of Cluster Mirroring (KIP-1279) that differ between builds, by the name that this package uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# settings of brokers, mirrors and topics → their names, newest first
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "mirror.acl.include": ("mirror.acl.include", "mirror.acls.include"),
    "mirror.groups.include": ("mirror.groups.include", "mirror.group.include"),
    "mirror.groups.exclude": ("mirror.groups.exclude", "mirror.group.exclude"),
    "mirror.support.unclean.leader.election": (
        "mirror.support.unclean.leader.election",
        "mirror.unclean.leader.election.enable",
    ),
    "mirror.state.topic.num.partitions": ("mirror.state.topic.num.partitions", "mirror.topic.num.partitions"),
    "mirror.state.topic.replication.factor": (
        "mirror.state.topic.replication.factor",
        "mirror.topic.replication.factor",
    ),
}

# states that some builds report → states of harness.wire.cluster_mirror_api.State that stand for them
STATES: Final[Mapping[str, str]] = {
    "PREPARING": "LOG_TRUNCATION",
    "TRUNCATING": "LOG_TRUNCATION",
    "ULE_RECOVERY": "LOG_TRUNCATION",
}


def names_of(setting: str) -> tuple[str, ...]:
    """The names of a setting, the first of which is the one used here."""
    return SETTINGS.get(setting, (setting,))
