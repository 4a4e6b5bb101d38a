"""The requests of Cluster Mirroring at the reference mirror: refusals, states' names, rows, epochs, and real bytes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.describe_configs.v4 import request as describe_configs
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.static.primitive import i8

from harness.core.errors import MirrorError, UsageError
from harness.wire import cluster_mirror_api as api
from harness.wire.addresses import Address
from harness.wire.aio import Connection
from harness.wire.cluster import Cluster
from harness.wire.cluster_mirror_api import MirrorErrorCode, State
from harness.wire.server import Request
from mirrors.reference.server.mirroring_api.properties import altered, mirror_config
from mirrors.reference.server.mirroring_api.rows import last_mirror_epochs, partition_row, state_of
from mirrors.reference.server.mirroring_api.rules import Action, delete_refusal, topic_refusal
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.partition import LedPartition
from mirrors.reference.server.process import MirrorProcess
from mirrors.reference.server.settings import settings_from
from mirrors.reference.server.source import Mirrored, SourceLink, SourceView
from mirrors.reference.server.stamping import Stamp
from mirrors.reference.server.states import PartitionState as S

pytestmark = pytest.mark.unit

ON_B, ON_A = uuid.UUID(int=1), uuid.UUID(int=2)
GIVEN = {"bootstrap.servers": "a:1", "mirror.source.cluster.id": "id-of-a"}


def record(state: S, partition: int = 0, *, mirror: str = "AB", topic: str = "t", **more: Any) -> PartitionRecord:
    values = {"owner": 100, "source_cluster": "id-of-a", **more}
    key = PartitionKey(mirror, topic, partition)
    return PartitionRecord(key=key, state=state, topic_id=ON_B, source_topic_id=ON_A, **values)


def mirrored(*, leading: bool, log_end: int, high_watermark: int | None = None, source: int = -1) -> Mirrored:
    led = LedPartition(me=100, topic="t", partition=0, topic_id=ON_B)
    led.leading, led.log_end, led.high_watermark = leading, log_end, high_watermark
    link = SourceLink("AB", Cluster("a:1"))
    view = SourceView(high_watermark=source, last_stable=source, log_start=0)
    return Mirrored(led=led, link=link, source_topic_id=ON_A, stamp=Stamp(), view=view)


# --- refusals -------------------------------------------------------------------------------------------------------

E = MirrorErrorCode
NOT_ALLOWED = E.INVALID_MIRROR_STATE


@pytest.mark.parametrize(
    ("action", "codes"),
    [
        (Action.START, dict.fromkeys(set(S) - {S.STOPPED}, NOT_ALLOWED)),
        (Action.STOP, dict.fromkeys(set(S) - {S.MIRRORING, S.PAUSED}, NOT_ALLOWED)),
        (
            Action.PAUSE,
            {
                S.PREPARING: NOT_ALLOWED,
                S.PAUSING: E.MIRROR_TOPIC_ALREADY_PAUSED,
                S.PAUSED: E.MIRROR_TOPIC_ALREADY_PAUSED,
                S.STOPPING: E.MIRROR_TOPIC_BEING_STOPPED,
                S.STOPPED: NOT_ALLOWED,
                S.FAILED: NOT_ALLOWED,
            },
        ),
        (
            Action.RESUME,
            {
                S.PREPARING: E.MIRROR_TOPIC_NOT_PAUSED,
                S.MIRRORING: E.MIRROR_TOPIC_NOT_PAUSED,
                S.PAUSING: E.MIRROR_TOPIC_NOT_PAUSED,
                S.STOPPING: E.MIRROR_TOPIC_BEING_STOPPED,
                S.STOPPED: NOT_ALLOWED,
                S.FAILED: NOT_ALLOWED,
            },
        ),
    ],
)
def test_one_partition_in_another_state_refuses_the_topic(action: Action, codes: dict[S, int]) -> None:
    valid = set(S) - codes.keys()
    for state in S:
        records = [record(next(iter(valid)), 0), record(state, 1)]
        refusal = topic_refusal(action, "AB", "t", records, live=(100,))
        assert (None if refusal is None else refusal.code) == codes.get(state), state
        if refusal is not None:
            assert f"t-1 is {state}" in refusal.why


def test_a_topic_that_is_not_in_the_mirror_can_only_be_started() -> None:
    others = [record(S.MIRRORING, topic="other")]
    refused = {action: topic_refusal(action, "AB", "t", others, live=(100,)) for action in Action}
    assert refused.pop(Action.START) is None
    assert {one.code for one in refused.values() if one} == {E.TOPIC_NOT_IN_CLUSTER_MIRROR}
    assert len(refused) == 3


@pytest.mark.parametrize(("state", "code"), [(S.PAUSED, E.TOPIC_ALREADY_IN_CLUSTER_MIRROR), (S.STOPPED, None)])
def test_a_topic_that_another_mirror_has_can_be_started_once_it_is_stopped_there(state: S, code: int | None) -> None:
    refusal = topic_refusal(Action.START, "AB", "t", [record(state, mirror="CB")], live=(100,))
    assert (None if refusal is None else refusal.code) == code


def test_a_partition_of_a_dead_process_is_asked_for_again_later() -> None:
    refusal = topic_refusal(Action.STOP, "AB", "t", [record(S.MIRRORING, owner=101)], live=(100,))
    assert refusal is not None
    assert refusal.code == ErrorCode.broker_not_available
    assert "broker 101" in refusal.why


def test_a_mirror_is_deleted_once_all_its_partitions_are_stopped() -> None:
    there = [record(S.STOPPED), record(S.MIRRORING, mirror="CB")]
    assert delete_refusal("AB", there) is None
    refusal = delete_refusal("AB", [*there, record(S.FAILED, 1)])
    assert refusal is not None
    assert refusal.code == E.CLUSTER_MIRROR_NOT_EMPTY
    assert "t-1 of mirror AB is FAILED" in refusal.why


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [s for s in S if s is not S.PREPARING])
def test_states_keep_their_names(state: S) -> None:
    assert state_of(record(state), None).name == state.name


def test_preparing_is_truncation_until_the_log_is_cut() -> None:
    failback = record(S.PREPARING, cut=5)
    assert state_of(failback, None) is State.LOG_TRUNCATION
    assert state_of(failback, mirrored(leading=False, log_end=0)) is State.LOG_TRUNCATION
    assert state_of(failback, mirrored(leading=True, log_end=7)) is State.LOG_TRUNCATION
    assert state_of(failback, mirrored(leading=True, log_end=5)) is State.EPOCH_FENCING
    assert state_of(record(S.PREPARING), None) is State.EPOCH_FENCING


def test_offsets_are_shown_only_while_mirroring() -> None:
    there = mirrored(leading=True, log_end=9, high_watermark=7, source=12)
    row = partition_row(record(S.MIRRORING, 3), there)
    assert (row.partition_index, row.source_offset, row.destination_offset, row.lag) == (3, 12, 7, 5)
    assert row.error_message is None
    for state in set(S) - {S.MIRRORING}:
        row = partition_row(record(state, error="why"), there)
        assert (row.source_offset, row.destination_offset, row.lag) == (-1, -1, -1)
        assert row.error_message == "why"


def test_offsets_that_are_not_known_yet_are_not_shown() -> None:
    row = partition_row(record(S.MIRRORING), mirrored(leading=True, log_end=9, high_watermark=7))
    assert (row.source_offset, row.destination_offset, row.lag) == (-1, -1, -1)
    row = partition_row(record(S.MIRRORING), mirrored(leading=True, log_end=9, source=12))
    assert (row.source_offset, row.destination_offset, row.lag) == (12, -1, -1)


@pytest.mark.parametrize("topic_id", [ON_A, ON_B])
def test_last_mirror_epochs_of_stopped_partitions_by_either_id(topic_id: uuid.UUID) -> None:
    stopped = record(S.STOPPED, 0, last_mirrored=40, last_mirrored_epoch=6)
    records = [stopped, record(S.MIRRORING, 1), record(S.STOPPED, 2, last_mirrored=0)]
    lookups = (api.EpochLookup(topic_id=topic_id, partitions=(0, 1, 2, 3)),)
    (found,) = last_mirror_epochs(lookups, records, source_cluster="id-of-a")
    assert found.topic_id == topic_id
    assert {p.partition_index: p.last_mirror_epoch for p in found.partitions} == {0: 6, 1: -1, 2: -1, 3: -1}
    (other,) = last_mirror_epochs(lookups, records, source_cluster="another")
    assert {p.last_mirror_epoch for p in other.partitions} == {-1}
    (anyone,) = last_mirror_epochs(lookups, records, source_cluster=None)
    assert anyone == found


# --- properties -----------------------------------------------------------------------------------------------------


def test_properties_become_the_mirror_s_configuration() -> None:
    made = mirror_config("AB", {**GIVEN, "mirror.groups.exclude": "x.*, y", "mirror.topic.properties.exclude": "a,b"})
    assert made == MirrorConfig(
        name="AB", source="a:1", groups="(?:.*)", exclude_groups="(?:x.*)|(?:y)", exclude_configs=("a", "b")
    )
    made.check()


def test_what_identifies_the_source_cannot_be_altered() -> None:
    def change(name: str, operation: int, value: str | None) -> dict[str, str]:
        one = alter_configs.AlterableConfig(name=name, config_operation=i8(operation), value=value)
        return altered({**GIVEN, "old": "1"}, (one,))

    assert change("new", 0, "2") == {**GIVEN, "old": "1", "new": "2"}
    assert change("old", 1, None) == GIVEN
    with pytest.raises(MirrorError, match=r"bootstrap\.servers of a mirror cannot be changed"):
        change("bootstrap.servers", 0, "b:1")
    with pytest.raises(MirrorError, match="only entries as a whole"):
        change("old", 2, "2")


# --- a process's server, over real connections ----------------------------------------------------------------------


def values(**more: Any) -> dict[str, Any]:
    return {
        "broker_id": 100,
        "destination": {"bootstrap": "127.0.0.1:1", "controllers": "127.0.0.1:1"},
        "listeners": [],
        "design": {"leader_epoch": "preserve", "epoch_bump": "proactive"},
        "mirroring_api": True,
        **more,
    }


def test_the_api_needs_preserved_epochs() -> None:
    with pytest.raises(UsageError, match="mirroring_api needs the design leader_epoch=preserve"):
        settings_from(values(design={}))


async def no_broker(_: Request) -> Any:
    raise AssertionError("a request about mirrors alone needs no broker")


@asynccontextmanager
async def served(*records: PartitionRecord) -> AsyncIterator[Connection]:
    """A connection to a process that has these records and mirror AB, and reaches no cluster."""
    process = MirrorProcess(settings_from(values()))
    for key in (32, 44):
        process.server.add(key, (1, 4) if key == 32 else (0, 1), no_broker)
    process.mirroring_api.serve(process.server)
    process.lifecycle.records.update({one.key: one for one in records})
    process.mirrors.configs["AB"] = mirror_config("AB", GIVEN)
    port = await process.server.listen("CLIENTS", "127.0.0.1", 0)
    connection = Connection(Address("127.0.0.1", port))
    try:
        yield connection
    finally:
        connection.close()
        await process.server.close()


def ask(body: Any, *records: PartitionRecord) -> Any:
    async def asking() -> Any:
        async with served(*records) as connection:
            return await connection.call(body)

    return asyncio.run(asking())


def test_the_keys_are_offered_in_version_0() -> None:
    async def body() -> None:
        async with served() as connection:
            offered = await connection.versions()
            assert {key: offered.get(key) for key in api.PAYLOADS} == dict.fromkeys(api.PAYLOADS, (0, 0))

    asyncio.run(body())


def settings(**given: str) -> tuple[api.ClusterMirrorConfig, ...]:
    names = {"source": "bootstrap.servers", "source_id": "mirror.source.cluster.id"}
    return tuple(api.ClusterMirrorConfig(name=names[name], value=value) for name, value in given.items())


def test_creation_is_refused_without_the_source_and_under_a_name_that_is_taken() -> None:
    both = settings(source="a:1", source_id="x")
    answers = [
        ask(api.CreateClusterMirrorRequest(mirror_name=name, config=config))
        for name, config in [("new", both[:1]), ("new", both[1:]), ("AB", both)]
    ]
    assert [(one.error_code, bool(one.error_message)) for one in answers] == [(42, False), (42, False), (136, True)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (api.StopMirrorTopicsRequest(mirror_name="AB", topics=(api.NamedTopic(topic_name="t"),)), 145),
        (api.PauseMirrorTopicsRequest(mirror_name="AB", topics=(api.NamedTopic(topic_name="t"),)), 142),
        (api.ResumeMirrorTopicsRequest(mirror_name="AB", topics=(api.NamedTopic(topic_name="t"),)), 142),
        (api.PauseMirrorTopicsRequest(mirror_name="AB", topics=(api.NamedTopic(topic_name="none"),)), 139),
        (api.StopMirrorTopicsRequest(mirror_name="AB", topics=(), patterns=("T|t",)), 145),
    ],
)
def test_the_topic_s_result_has_the_error(body: Any, code: int) -> None:
    answer = ask(body, record(S.STOPPING))
    assert answer.error_code == 0
    assert [(one.error_code, bool(one.error_message)) for one in answer.topics] == [(code, True)]
    unknown = ask(replace(body, mirror_name="BA"), record(S.STOPPING))
    assert (unknown.error_code, unknown.topics) == (137, ())


def test_a_mirror_with_topics_that_are_not_stopped_is_not_deleted() -> None:
    body = api.DeleteClusterMirrorRequest(mirror_name="AB")
    assert ask(body, record(S.MIRRORING)).error_code == 143
    assert ask(replace(body, mirror_name="BA")).error_code == 137


def test_listing_and_describing() -> None:
    records = [record(S.PAUSED), record(S.PREPARING, 1, cut=3), record(S.FAILED, topic="u", error="gone")]
    elsewhere = record(S.MIRRORING, 2, owner=101)
    listed = ask(api.ListClusterMirrorsRequest(include_topic_names=True), *records)
    assert [(m.mirror_name, m.source_bootstrap, m.topic_names) for m in listed.mirrors] == [("AB", "a:1", ("t", "u"))]
    answer = ask(api.DescribeClusterMirrorsRequest(mirror_names=()), *records, elsewhere)
    (described,) = answer.mirrors
    found = {(t.topic_name, p.partition_index): p.state_value for t in described.topics for p in t.partitions}
    assert found == {("t", 0): "PAUSED", ("t", 1): "LOG_TRUNCATION", ("u", 0): "FAILED"}


def test_properties_are_described_without_a_broker() -> None:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=i8(api.CONFIG_RESOURCE), resource_name="AB", configuration_keys=None
    )
    answer = ask(describe_configs.DescribeConfigsRequest(resources=(resource,)))
    (result,) = answer.results
    assert result.error_code is ErrorCode.none
    assert {c.name: c.value for c in result.configs}["bootstrap.servers"] == "a:1"
    answer = ask(describe_configs.DescribeConfigsRequest(resources=(replace(resource, resource_name="BA"),)))
    assert answer.results[0].error_code is ErrorCode.invalid_request
