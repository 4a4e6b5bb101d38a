"""Names of Cluster Mirroring (KIP-1279) that differ between builds, by the name that this package uses.

The first alias that a build has counts; which it has is found by `known_name` in what it lists itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

# settings of brokers and mirrors → their names, newest first
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "mirror.acl.include": ("mirror.acl.include", "mirror.acls.include"),
    "mirror.acl.exclude": ("mirror.acl.exclude", "mirror.acls.exclude"),
    "mirror.support.unclean.leader.election": (
        "mirror.support.unclean.leader.election",
        "mirror.unclean.leader.election.enable",
    ),
    "mirror.state.topic.num.partitions": ("mirror.state.topic.num.partitions", "mirror.topic.num.partitions"),
    "mirror.state.topic.replication.factor": (
        "mirror.state.topic.replication.factor",
        "mirror.topic.replication.factor",
    ),
    "mirror.topic.properties.exclude": ("mirror.topic.properties.exclude", "mirror.properties.exclude"),
}

# states that builds report → states of harness.wire.cluster_mirror_api.State, or one of these themselves
STATES: Final[Mapping[str, str]] = {
    "PREPARING": "LOG_TRUNCATION",
    "TRUNCATING": "LOG_TRUNCATION",
    "ULE_RECOVERY": "LOG_TRUNCATION",
}


def known_name(setting: str, listed: Collection[str]) -> str | None:
    """The name that a build has for a setting, by the names that it lists; None when it has none of them."""
    return next((name for name in SETTINGS.get(setting, (setting,)) if name in listed), None)
