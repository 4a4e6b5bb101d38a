"""What the reference mirror's syncs do, for every value of their switches."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from harness.wire.acls import Binding
from harness.wire.metadata import PartitionMeta, TopicMeta
from mirrors.reference.server.design import (
    STRICT,
    AclSync,
    Design,
    GroupGuard,
    GroupOffsets,
    LeaderEpoch,
    Toggle,
)
from mirrors.reference.server.group_wire import Committed, Group, GroupKind, Groups
from mirrors.reference.server.guard import deny_write, min_isr
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.states import PartitionState as S
from mirrors.reference.server.sync_acls import AclChanges, acl_changes, any_mirrored
from mirrors.reference.server.sync_configs import config_changes, synced_topics
from mirrors.reference.server.sync_groups import GroupChange, Room, clamped, group_changes, is_due, wanted_groups
from mirrors.reference.server.topics import missed_since, topic_changes

pytestmark = pytest.mark.unit

T0, T1 = ("t", 0), ("t", 1)
ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)


def record(topic: str = "t", partition: int = 0, state: S = S.MIRRORING) -> PartitionRecord:
    key = PartitionKey("AB", topic, partition)
    return PartitionRecord(key=key, state=state, topic_id=uuid.UUID(int=9), source_topic_id=ID, owner=100)


def topic(name: str = "t", partitions: int = 1, topic_id: uuid.UUID = ID) -> TopicMeta:
    meta = {
        p: PartitionMeta(topic=name, partition=p, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        for p in range(partitions)
    }
    return TopicMeta(name=name, topic_id=topic_id, internal=False, partitions=meta)


# --- groups -------------------------------------------------------------------------------------------------------


def group(state: str = "Empty", name: str = "g", kind: GroupKind = GroupKind.CONSUMER) -> Group:
    return Group(name=name, kind=kind, state=state, coordinator=1)


def changes(
    design: Design = STRICT,
    *,
    offset: int = 50,
    epoch: int = 7,
    there: Group | None = None,
    old: int | None = None,
    silent: frozenset[int] = frozenset(),
    last_written: int | None = None,
    room: Room | None = None,
) -> list[GroupChange]:
    key = ("g", GroupKind.CONSUMER)
    return group_changes(
        design,
        [group("Stable")],
        {key: {T0: Committed(offset=offset, leader_epoch=epoch, metadata="m"), T1: Committed(offset=1)}},
        Groups(found={} if there is None else {"g": there}, silent=silent),
        {} if there is None else {key: {} if old is None else {T0: Committed(offset=old)}},
        {T0: room or Room(log_start=10, log_end=100)},
        {} if last_written is None else {("g", T0): last_written},
    )


def new(found: list[GroupChange]) -> list[int]:
    return [change.new.offset for change in found]


@pytest.mark.parametrize(("offset", "expected"), [(50, 50), (5, 10), (10, 10), (100, 100), (120, 100)])
def test_clamped_offsets_lie_within_the_log(offset: int, expected: int) -> None:
    assert new(changes(offset=offset)) == [expected]
    assert clamped(offset, Room(log_start=10, log_end=100)) == expected


def test_raw_offsets_are_copied() -> None:
    raw = replace(STRICT, group_offsets=GroupOffsets.RAW)
    assert new(changes(raw, offset=120)) == [120]
    assert new(changes(raw, offset=5)) == [5]


def test_clamping_uses_the_destinations_offsets_where_they_differ() -> None:
    closed_gap = Room(log_start=0, log_end=100, shift=lambda offset: offset - 20)
    assert new(changes(offset=50, room=closed_gap)) == [30]


def test_source_epochs_are_dropped_where_epochs_are_rewritten() -> None:
    assert changes()[0].new.leader_epoch == -1
    preserved = replace(STRICT, leader_epoch=LeaderEpoch.PRESERVE)
    assert changes(preserved)[0].new.leader_epoch == 7


def test_only_groups_without_members_are_written() -> None:
    assert new(changes(there=group("Empty"), old=20)) == [50]
    for state in ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        assert changes(there=group(state), old=20) == []


def test_without_the_guard_active_groups_are_written() -> None:
    unguarded = replace(STRICT, group_guard=GroupGuard.NONE)
    (found,) = changes(unguarded, there=group("Stable"), old=70)
    assert (found.new.offset, found.active, found.state) == (50, True, "Stable")


def test_a_group_whose_coordinator_did_not_answer_may_be_active() -> None:
    assert changes(silent=frozenset({2})) == []
    assert new(changes(silent=frozenset({2}), there=group(), old=20)) == [50]


def test_a_group_of_the_destination_whose_offsets_are_unknown_is_left_alone() -> None:
    key = ("g", GroupKind.CONSUMER)
    source = {key: {T0: Committed(offset=50)}}
    there = Groups(found={"g": group()}, silent=frozenset())
    assert group_changes(STRICT, [group()], source, there, {}, {T0: Room(log_start=0, log_end=99)}, {}) == []


def test_only_partitions_that_are_mirrored_here_are_written() -> None:
    assert [change.partition for change in changes()] == [T0]


def test_offsets_go_back_only_over_what_the_mirror_wrote() -> None:
    assert new(changes(there=group(), old=80, last_written=80)) == [50]
    assert changes(there=group(), old=80, last_written=60) == []
    assert changes(there=group(), old=80) == []
    assert changes(there=group(), old=50) == []
    assert is_due(80, 50, last_written=None, guard=GroupGuard.NONE)
    assert is_due(None, 0, last_written=None, guard=GroupGuard.INACTIVE_ONLY)


def test_patterns_choose_groups_by_their_whole_names() -> None:
    config = MirrorConfig(name="AB", source="a:1", groups="orders.*|pay", exclude_groups=".*-test")
    names = ("orders-1", "pay", "payments", "orders-test")
    assert [g.name for g in wanted_groups(config, [group(name=n) for n in names])] == ["orders-1", "pay"]


# --- configurations -----------------------------------------------------------------------------------------------


def test_a_mirrored_topic_is_configured_as_its_source() -> None:
    found = config_changes(
        "t",
        {"retention.ms": "1", "cleanup.policy": "compact", "leader.replication.throttled.replicas": "0:1"},
        {"retention.ms": "2", "segment.bytes": "9", "min.insync.replicas": "4"},
        exclude=["min.insync.replicas"],
    )
    assert [(c.name, c.old, c.value) for c in found] == [
        ("cleanup.policy", None, "compact"),
        ("retention.ms", "2", "1"),
        ("segment.bytes", "9", None),
    ]
    assert config_changes("t", {"a": "1"}, {"a": "1"}) == []


@pytest.mark.parametrize("state", list(S))
def test_configurations_are_synced_while_every_partition_is_mirrored(state: S) -> None:
    records = [record(), record(partition=1, state=state)]
    mirrored = state in {S.PREPARING, S.MIRRORING, S.PAUSING, S.PAUSED}
    assert synced_topics(records, after_stop=Toggle.OFF) == (["t"] if mirrored else [])
    assert synced_topics(records, after_stop=Toggle.ON) == (["t"] if mirrored or state is S.STOPPED else [])


# --- access rules -------------------------------------------------------------------------------------------------


def rule(line: str) -> Binding:
    permission, principal, operation, resource = line.split()
    kind, name = resource.split(":")
    return Binding(permission=permission, principal=principal, operation=operation, resource=kind, name=name)


BOTH, ON_A, ON_B = rule("ALLOW User:a READ TOPIC:t"), rule("ALLOW User:b READ TOPIC:t"), rule("DENY User:c ALL TOPIC:t")
GONE = rule("ALLOW User:d READ TOPIC:t")  # mirrored, and deleted on the source


def rules(policy: AclSync, *, mirrored: bool = True, pattern: str = ".*", more: tuple[Binding, ...] = ()) -> AclChanges:
    return acl_changes(
        policy,
        source={BOTH, ON_A},
        destination={BOTH, ON_B, GONE, *more},
        brought={BOTH, GONE},
        pattern=pattern,
        topics=["t"],
        mirrored=mirrored,
    )


def test_keep_local_deletes_only_mirrored_rules() -> None:
    assert rules(AclSync.KEEP_LOCAL) == AclChanges(create=frozenset({ON_A}), delete=frozenset({GONE}))


def test_source_wins_deletes_what_only_the_destination_has() -> None:
    assert rules(AclSync.SOURCE_WINS) == AclChanges(create=frozenset({ON_A}), delete=frozenset({ON_B, GONE}))
    outside = rule("DENY User:z READ GROUP:other")
    assert outside in rules(AclSync.SOURCE_WINS, pattern=".*TOPIC:.*", more=(outside,)).delete


def test_off_changes_nothing() -> None:
    assert not rules(AclSync.OFF)


@pytest.mark.parametrize("policy", list(AclSync))
def test_nothing_changes_while_everything_is_stopped(policy: AclSync) -> None:
    assert not rules(policy, mirrored=False)
    assert not any_mirrored([record(state=S.STOPPED), record(partition=1, state=S.FAILED)])
    assert any_mirrored([record(state=S.STOPPED), record(partition=1, state=S.PAUSED)])


def test_the_filter_is_for_the_one_line_form() -> None:
    assert rules(AclSync.KEEP_LOCAL, pattern=r"ALLOW User:x .*").create == frozenset()
    assert rules(AclSync.KEEP_LOCAL, pattern=r"ALLOW User:b .* TOPIC:t").create == {ON_A}


def test_a_rule_that_both_clusters_got_from_their_administrators_survives_its_removal_on_the_source() -> None:
    found = acl_changes(
        AclSync.KEEP_LOCAL,
        source=set(),
        destination={BOTH},
        brought=set(),
        pattern=".*",
        topics=["t"],
        mirrored=True,
    )
    assert not found


@pytest.mark.parametrize("policy", [AclSync.KEEP_LOCAL, AclSync.SOURCE_WINS])
def test_guards_are_neither_synced_nor_deleted(policy: AclSync) -> None:
    guard = deny_write("t")
    on_destination = rules(policy, more=(guard,))
    assert guard not in on_destination.delete
    from_source = acl_changes(
        policy, source={guard}, destination=set(), brought=set(), pattern=".*", topics=["t"], mirrored=True
    )
    assert not from_source


def test_bindings_as_lines_and_values() -> None:
    prefixed = Binding(
        permission="ALLOW",
        principal="User:a",
        operation="READ",
        resource="TOPIC",
        name="or",
        pattern="PREFIXED",
        host="10.0.0.1",
    )
    assert prefixed.line() == "ALLOW User:a@10.0.0.1 READ TOPIC/PREFIXED:or"
    assert ON_B.line() == "DENY User:c ALL TOPIC:t"
    assert Binding.of(prefixed.values()) == prefixed


def test_the_guard_asks_for_one_replica_more_than_is_real() -> None:
    assert min_isr([(100, 1, 2, 3), (101, 2)]) == 4
    assert min_isr([(1, 2, 3)]) == 4


# --- topics -------------------------------------------------------------------------------------------------------


def test_new_partitions_are_found() -> None:
    found = topic_changes([record()], {"t": topic(partitions=3)}, missed_before=())
    assert (found.grown, found.failed) == (("t",), {})
    assert topic_changes([record()], {"t": topic()}, missed_before=()).grown == ()


def test_stopped_or_failed_partitions_do_not_make_a_topic_grown() -> None:
    known = [record(), record(partition=1, state=S.STOPPED), record(partition=2, state=S.FAILED)]
    assert topic_changes(known, {"t": topic(partitions=3)}, missed_before=()).grown == ()
    assert topic_changes(known, {"t": topic(partitions=4)}, missed_before=()).grown == ("t",)


def test_a_recreated_topic_fails_and_is_not_grown() -> None:
    found = topic_changes([record()], {"t": topic(partitions=3, topic_id=OTHER_ID)}, missed_before=())
    assert found.grown == ()
    assert "deleted and created again" in found.failed[PartitionKey("AB", "t", 0)]


def test_a_topic_is_gone_only_at_the_second_snapshot() -> None:
    assert not topic_changes([record()], {}, missed_before=()).failed
    found = topic_changes([record()], {}, missed_before={"t"})
    assert found.failed == {PartitionKey("AB", "t", 0): "topic t is not on the source any more"}


def test_a_topic_that_comes_back_and_goes_is_missed_from_then_on() -> None:
    first = missed_since({}, {"t", "u"}, now=1.0)
    assert first == {"t": 1.0, "u": 1.0}
    assert missed_since(first, {"t"}, now=1.1) == {"t": 1.0}
    assert missed_since(missed_since(first, {"t"}, now=1.1), {"t", "u"}, now=3.0) == {"t": 1.0, "u": 3.0}


@pytest.mark.parametrize("state", [S.STOPPING, S.STOPPED, S.FAILED])
def test_changes_of_topics_that_are_not_mirrored_are_ignored(state: S) -> None:
    stopped = [record(state=state)]
    assert not topic_changes(stopped, {}, missed_before={"t"}).failed
    assert topic_changes(stopped, {"t": topic(partitions=2)}, missed_before=()).grown == ()
