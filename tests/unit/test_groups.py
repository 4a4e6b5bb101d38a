"""The pure parts of the workload `groups` and of MirrorMaker 2's checkpoints."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer, ShareConsumer

from harness.core.testspec import parse_spec
from harness.run.plan import make_plan
from mirrors.mm2.checkpoints import Checkpoint, checkpoints_topic, decode
from workloads.clients.kafka_config import member_config, share_config
from workloads.group_roles import ROLES, GroupRole, Stay, stays_of

pytestmark = pytest.mark.unit


def stays(role: GroupRole, home: str | None, *others: str) -> list[Stay]:
    return stays_of(role, home=home, others=others, first="A", early_s=2.0)


def test_a_group_works_where_clients_write() -> None:
    role = GroupRole(name="g")
    assert stays(role, "A", "B") == [Stay(cluster="A")]
    assert stays(role, "B") == [Stay(cluster="B")]
    assert stays(role, None, "A", "B") == []


def test_a_group_that_moves_early_leaves_for_the_destination_once_its_offsets_are_there() -> None:
    role = GroupRole(name="g", moves_early=True)
    assert stays(role, "A", "B") == [Stay(cluster="A", seconds=2.0), Stay(cluster="B", synced=True)]
    assert stays(role, "B") == [Stay(cluster="B")]
    assert stays(role, "B", "A") == [Stay(cluster="B", seconds=2.0), Stay(cluster="A", synced=True)]


def test_a_group_that_stays_is_on_its_first_cluster_alone() -> None:
    role = GroupRole(name="g", stays=True)
    assert stays(role, "A", "B") == [Stay(cluster="A")]
    assert stays(role, "B") == []


def test_the_roles_cover_what_the_workload_promises() -> None:
    assert {role.protocol for role in ROLES} == {"classic", "consumer", "share"}
    assert {role.isolation for role in ROLES} == {"read_committed", "read_uncommitted"}
    dirty = {role.reset for role in ROLES if role.isolation == "read_uncommitted" and role.protocol != "share"}
    assert dirty == {"latest", "earliest"}
    assert sum(role.moves_early for role in ROLES) == sum(role.stays for role in ROLES) == 1
    assert len({role.name for role in ROLES}) == len(ROLES)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


KEY = _string("g") + _string("A.t") + struct.pack(">i", 3)
VALUE = struct.pack(">hqq", 0, 700, 450) + _string("note")


def test_a_checkpoint_is_decoded() -> None:
    expected = Checkpoint(group="g", topic="A.t", partition=3, source_offset=700, offset=450, metadata="note")
    assert decode(KEY, VALUE) == expected
    assert checkpoints_topic("A") == "A.checkpoints.internal"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (KEY[:-1], VALUE),
        (KEY, VALUE[:-1]),
        (KEY, struct.pack(">hqq", 1, 700, 450) + _string("")),
        (struct.pack(">h", 900) + KEY, VALUE),
        (struct.pack(">h", 2) + b"\xff\xff" + KEY, VALUE),
    ],
)
def test_records_that_are_not_checkpoints_are_ignored(key: bytes, value: bytes) -> None:
    assert decode(key, value) is None


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_client_library_takes_the_configuration_of_every_role(role: GroupRole) -> None:
    """No broker is needed: the clients are created, and closed before they reach one."""
    bootstrap = "127.0.0.1:1"
    if role.protocol == "share":
        ShareConsumer(share_config(bootstrap, "c", group="g")).close()
        return
    config = member_config(
        bootstrap, "c", group="g", protocol=role.protocol, isolation=role.isolation, reset=role.reset
    )
    Consumer(config).close()


def test_group_sync_is_switched_on_where_it_is_optional() -> None:
    def options(**values: object) -> Mapping[str, str]:
        return make_plan(parse_spec(values, where="test")).spec.mirror_options

    assert options(workload="groups", mirror="mm2") == {"group_offsets": "true"}
    chosen = {"group_offsets": "false"}
    assert options(workload="groups", mirror="mm2", mirror_options=chosen) == chosen
    assert options(workload="groups", mirror="reference") == {}
    assert options(workload="append", mirror="mm2") == {}
