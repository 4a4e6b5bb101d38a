"""Internal topics, recognized by their full names: a user's topic may begin with `__`, too.

`is_internal` is for clusters on which mirrors run: it knows the names that MirrorMaker 2 and Kafka Connect give their
own topics, too (KIP-382, KIP-690 and connect-distributed.properties). Checkers use `INTERNAL_TOPICS` alone: they skip
no other topic's log.

It cannot see: topics of a Connect cluster or a mirror whose administrator chose other names; `heartbeats`, which may be
a user's.
"""

from __future__ import annotations

import re
from typing import Final

KAFKA: Final = ("__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state")
TIERED_STORAGE: Final = ("__remote_log_metadata",)
REFERENCE_MIRROR: Final = ("__mirror_state",)
CONNECT: Final = ("connect-configs", "connect-offsets", "connect-status")
INTERNAL_TOPICS: Final = (*KAFKA, *TIERED_STORAGE, *REFERENCE_MIRROR)

_MIRRORMAKER: Final = re.compile(
    r"mm2-(configs|offsets|status|offset-syncs)[._-].+[._-]internal|.+[._-]checkpoints[._-]internal"
)  # the separator is `replication.policy.separator`


def is_internal(topic: str) -> bool:
    """Whether a topic of this name is Kafka's, Connect's, MirrorMaker 2's or the reference mirror's own."""
    return topic in INTERNAL_TOPICS or topic in CONNECT or _MIRRORMAKER.fullmatch(topic) is not None
