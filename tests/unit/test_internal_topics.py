"""Which topics are internal to Kafka, Connect and mirrors, and which topics a mirror takes for a user's."""

from __future__ import annotations

import pytest

from harness.core.internal_topics import INTERNAL_TOPICS, is_internal
from mirrors.reference.server.model import MirrorConfig
from mirrors.reference.server.state_topic import TOPIC

pytestmark = pytest.mark.unit

USERS = [
    "__x",
    "__orders",
    "A.__x",
    "__consumer_offsets.copy",
    "consumer_offsets",
    "A.__consumer_offsets",
    "heartbeats",
    "orders.internal",
    "mm2-orders",
    "checkpoints.internal",
    "connect-status-of-mine",
    "__",
]
INTERNAL = [
    *INTERNAL_TOPICS,
    "mm2-offsets.A.internal",
    "mm2-status.us-east.internal",
    "mm2-configs.A.internal",
    "mm2-offset-syncs.B.internal",
    "mm2-offset-syncs_B_internal",  # another separator
    "A.checkpoints.internal",
    "connect-configs",
    "connect-offsets",
    "connect-status",
]


@pytest.mark.parametrize("topic", USERS)
def test_a_users_topic_is_a_users(topic: str) -> None:
    assert not is_internal(topic)
    assert MirrorConfig(name="AB", source="a:1").wants(topic)


@pytest.mark.parametrize("topic", INTERNAL)
def test_an_internal_topic_is_not(topic: str) -> None:
    assert is_internal(topic)
    assert not MirrorConfig(name="AB", source="a:1", topics=".*").wants(topic)


def test_what_the_patterns_of_a_mirror_let_through() -> None:
    config = MirrorConfig(name="AB", source="a:1", topics="__orders|t.*", exclude_topics="tmp.*")
    assert [topic for topic in ("__orders", "t1", "tmp1", "u", "__orders2") if config.wants(topic)] == [
        "__orders",
        "t1",
    ]


def test_the_reference_mirrors_own_topic_is_known() -> None:
    assert TOPIC in INTERNAL_TOPICS
