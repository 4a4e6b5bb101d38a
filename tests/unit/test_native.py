"""Mirror native without brokers: rows of several brokers as one, states, cuts, retries, settings, plans, refusals."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4 import response as epoch_ends
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from harness.cli.campaigns import run_campaign
from harness.clusters.docker.images import BrokerImage, ImageSet
from harness.core.errors import MirrorError, RequestRefusedError, UsageError
from harness.core.testspec import parse_spec
from harness.run.plan import RunPlan, check_images, images_of_mirror, make_plan, topology_spec
from harness.topology.mirror import Capability, PartitionState
from harness.wire import cluster_mirror_api as api
from harness.wire.cluster_mirror_api import State
from harness.wire.frames import WireError
from mirrors.native import changes, cut
from mirrors.native.abilities import Found, capabilities, check_brokers
from mirrors.native.brokers import NEEDED, Abilities
from mirrors.native.config import broker_config, mirror_settings, parse_options
from mirrors.native.filters import UNCLEAN, Filters, names_to_try
from mirrors.native.requests import Refusal, refusals
from mirrors.native.rows import Partition, Row, merged, rows_of, shown, state_of
from mirrors.native.state_log import change_in
from mirrors.native.statuses import status_of

pytestmark = pytest.mark.unit

S = PartitionState
ON_A, ON_B = uuid.UUID(int=1), uuid.UUID(int=2)


def row(partition: int = 0, state: PartitionState = S.MIRRORING, topic: str = "t", **more: Any) -> Row:
    return Row(topic=topic, partition=partition, state=state, **more)


# --- rows -----------------------------------------------------------------------------------------


def merge(by_broker: dict[int, Row], leader: int | None, silent: dict[int, str] | None = None) -> Row:
    listed = {broker: {("t", 0): one} for broker, one in by_broker.items()}
    return merged(listed, {("t", 0): leader}, silent=silent or {})["t", 0]


def test_the_leaders_row_counts_whatever_others_say() -> None:
    old, new = row(state=S.MIRRORING, source_offset=9), row(state=S.STOPPED)
    assert merge({1: old, 2: new}, leader=2) is new
    assert merge({1: old, 2: new}, leader=1) is old


def test_a_leader_that_did_not_answer_leaves_the_state_unknown() -> None:
    found = merge({1: row()}, leader=2, silent={2: "nothing within 2 s"})
    assert (found.state, found.error) == (S.UNKNOWN, "its leader, broker 2, did not answer: nothing within 2 s")


def test_a_leader_that_does_not_list_its_partition_leaves_the_state_unknown() -> None:
    found = merged({1: {("t", 0): row()}, 2: {}}, {("t", 0): 2}, silent={})["t", 0]
    assert (found.state, found.error) == (S.UNKNOWN, "its leader, broker 2, does not list it")


def test_where_the_leader_has_no_such_request_the_row_that_says_most_counts() -> None:
    assert merge({100: row(state=S.UNKNOWN), 101: row(state=S.STOPPED)}, leader=1).state is S.STOPPED
    assert merge({100: row(state=S.UNKNOWN, error="x")}, leader=1).error == "x"
    assert merge({}, leader=1).error == "no broker lists it"


def test_a_partition_without_leader_is_unknown_and_one_without_metadata_is_as_listed() -> None:
    assert merge({1: row()}, leader=None).error == "it has no leader"
    assert merged({1: {("t", 0): row()}}, {}, silent={})["t", 0].state is S.MIRRORING


def test_rows_are_those_of_the_asked_mirror_and_minus_one_is_no_offset() -> None:
    def described(name: str, code: int, state: str) -> api.DescribedMirror:
        part = api.DescribedPartition(partition_index=3, source_offset=8, state_value=state, error_message="e")
        topic = api.DescribedTopic(topic_name="t", partitions=(part,))
        return api.DescribedMirror(error_code=code, mirror_name=name, topics=(topic,))

    mirrors = (described("A-B", 0, "FAILED"), described("B-A", 0, "MIRRORING"))
    answer = api.DescribeClusterMirrorsResponse(error_code=0, mirrors=mirrors)
    (found,) = rows_of(answer, "A-B").values()
    assert (found.state, found.source_offset, found.destination_offset, found.lag) == (S.FAILED, 8, None, None)
    assert str(found) == "t-3 is FAILED (e)"
    refused = api.DescribeClusterMirrorsResponse(error_code=0, mirrors=(described("A-B", 137, "MIRRORING"),))
    assert rows_of(refused, "A-B") == {}


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("LOG_TRUNCATION", S.PREPARING),
        ("EPOCH_FENCING", S.PREPARING),
        ("ULE_RECOVERY", S.PREPARING),
        ("mirroring", S.MIRRORING),
        ("PAUSING", S.PAUSING),
        ("STOPPED", S.STOPPED),
        ("UNKNOWN", S.UNKNOWN),
        ("SOMETHING_NEW", S.UNKNOWN),
    ],
)
def test_states_of_builds_in_our_words(said: str, means: PartitionState) -> None:
    assert state_of(said) is means


def test_every_state_of_the_build_has_a_word_and_an_unknown_one_is_named() -> None:
    assert {state_of(state.name) for state in State} == set(PartitionState)
    part = api.DescribedPartition(partition_index=0, state_value="SOMETHING_NEW")
    described = api.DescribedMirror(
        error_code=0, mirror_name="m", topics=(api.DescribedTopic(topic_name="t", partitions=(part,)),)
    )
    (found,) = rows_of(api.DescribeClusterMirrorsResponse(error_code=0, mirrors=(described,)), "m").values()
    assert found.error == "its state 'SOMETHING_NEW' is not known here"


def test_a_record_of_the_state_topic_is_a_state_of_this_mirror() -> None:
    where = api.StateKey(mirror_name="A-B", topic_id=ON_A, partition=3)
    failed = api.MirrorPartitionStateValue(state=int(State.FAILED), retry_attempt=2, error_message="no source")
    key, value = api.encode_state(where, failed)
    assert change_in(key, value, mirror="A-B") == (ON_A, 3, "FAILED", "no source")
    assert change_in(key, value, mirror="B-A") is None
    assert change_in(key, None, mirror="A-B") is None
    assert change_in(*api.encode_state(where, api.LastMirrorEpochsValue(last_mirror_epoch=4)), mirror="A-B") is None
    assert change_in(*api.encode_state(where, api.MirrorPartitionStateValue(state=77)), mirror="A-B") is None
    assert change_in(b'["mirror","A-B"]', b"{}", mirror="A-B") is None


def test_many_rows_are_shown_as_some_and_a_number() -> None:
    assert shown([]) == "no partition is known"
    assert shown([row(n) for n in range(3)], most=2) == "t-0 is MIRRORING, t-1 is MIRRORING and 1 more"


def test_lag_is_counted_from_what_the_source_had_when_the_look_began() -> None:
    stale = row(source_offset=90, destination_offset=90, lag=0)
    assert status_of(stale, 95, None).lag == 5
    assert status_of(stale, 90, None).lag == 0
    assert status_of(stale, None, None).lag is None
    assert status_of(row(source_offset=97, destination_offset=90, lag=7), 95, None).lag == 7


def test_a_stopped_partition_keeps_its_cut() -> None:
    status = status_of(row(state=S.STOPPED), 95, (77, 77))
    assert (status.source_offset, status.destination_offset, status.lag) == (77, 77, None)
    assert status_of(row(source_offset=1), 95, (77, 77)).source_offset == 1


# --- cuts -----------------------------------------------------------------------------------------


def answer(*epochs: tuple[uuid.UUID, int, int]) -> api.DescribeClusterMirrorsResponse:
    return api.DescribeClusterMirrorsResponse(
        error_code=0,
        lookup_results=tuple(
            api.FoundEpochs(topic_id=t, partitions=(api.FoundEpoch(partition_index=p, last_mirror_epoch=epoch),))
            for t, p, epoch in epochs
        ),
    )


def test_last_epochs_are_the_highest_that_any_broker_names_by_either_id() -> None:
    ids = {"t": (ON_A, ON_B)}
    answers = [answer((ON_A, 0, 4), (ON_A, 1, -1)), answer((ON_B, 0, 7)), answer((uuid.UUID(int=9), 1, 3))]
    assert cut.last_epochs(answers, ids) == {("t", 0): 7}


def test_lookups_name_each_id_once() -> None:
    asked = cut.lookups({"t": (ON_A, ON_A), "u": (ON_A, ON_B)}, [("t", 1), ("t", 0), ("u", 2), ("gone", 0)])
    assert asked == (
        api.EpochLookup(topic_id=ON_A, partitions=(0, 1)),
        api.EpochLookup(topic_id=ON_A, partitions=(2,)),
        api.EpochLookup(topic_id=ON_B, partitions=(2,)),
    )


def test_the_ends_of_epochs_are_asked_as_a_consumer_and_errors_are_left_out() -> None:
    request = cut.end_request({("t", 1): 5, ("t", 0): 4})
    assert int(request.replica_id) == -1
    assert [(int(p.partition), int(p.leader_epoch)) for p in request.topics[0].partitions] == [(0, 4), (1, 5)]

    def end(partition: int, offset: int, code: ErrorCode = ErrorCode.none) -> epoch_ends.EpochEndOffset:
        return epoch_ends.EpochEndOffset(error_code=code, partition=i32(partition), end_offset=i64(offset))

    ends = (end(0, 77), end(1, -1), end(2, 5, ErrorCode.not_leader_or_follower))
    parts = epoch_ends.OffsetForLeaderTopicResult(topic=TopicName("t"), partitions=ends)
    whole = epoch_ends.OffsetForLeaderEpochResponse(
        throttle_time=i32Timedelta.parse(datetime.timedelta()), topics=(parts,)
    )
    assert cut.ends_in(whole) == {("t", 0): 77}


def test_the_cut_is_the_end_of_the_last_epoch_and_an_unknown_one_is_left_out() -> None:
    places: list[Partition] = [("t", n) for n in range(4)]
    found = cut.offsets(places, {("t", 0): 4, ("t", 1): 4}, {("t", 0): 77}, [("t", 2)])
    assert found == {("t", 0): (77, 77), ("t", 2): (0, 0)}  # 1: no answer; 3: a log without any mirrored epoch


# --- requests and their retries -------------------------------------------------------------------


def test_refusals_are_of_the_whole_request_or_by_topic() -> None:
    topics = (api.TopicResult(name="t", error_code=145, error_message="no"), api.TopicResult(name="u", error_code=140))
    found = refusals("pause", api.PauseMirrorTopicsResponse(error_code=0, topics=topics), fine=(140,))
    assert [str(one) for one in found] == ["pause t: INVALID_MIRROR_STATE (145): no"]
    (whole,) = refusals("stop", api.StopMirrorTopicsResponse(error_code=41, error_message="", topics=topics))
    assert str(whole) == "stop: NOT_CONTROLLER (41)"


@pytest.mark.parametrize(
    ("code", "passes"), [(145, True), (15, True), (137, True), (144, False), (42, False), (135, False)]
)
def test_only_states_that_can_change_are_asked_again(code: int, passes: bool) -> None:
    assert Refusal("x", code).may_pass is passes


def test_a_refusal_that_passes_is_repeated_and_another_ends_it() -> None:
    answers: list[Any] = [WireError("silent"), (Refusal("start t", 145),), ()]

    def ask() -> Any:
        one = answers.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    changes.repeated(ask, "it cannot start", again_s=0.0)
    assert answers == []
    answers[:] = [(Refusal("start t", 144, "you may not"),)]
    with pytest.raises(
        RequestRefusedError, match=r"it cannot start: start t: CLUSTER_MIRROR_AUTHORIZATION_FAILED \(144\): you"
    ):
        changes.repeated(ask, "it cannot start", again_s=0.0)
    answers[:] = [(Refusal("start t", 145),)]
    with pytest.raises(RequestRefusedError, match="it cannot start, refused for 0 s: start t: INVALID_MIRROR_STATE"):
        changes.repeated(ask, "it cannot start", limit_s=0.0)
    answers[:] = [WireError("nobody")]
    with pytest.raises(MirrorError, match="it cannot start, unanswered for 0 s: nobody"):
        changes.repeated(ask, "it cannot start", limit_s=0.0)


def test_a_start_asks_only_for_what_does_not_mirror_already() -> None:
    rows = [
        *(row(0, topic="on"), row(1, S.PREPARING, topic="on")),
        *(row(0, S.PAUSED, topic="paused"), row(1, topic="paused")),
        *(row(0, S.STOPPED, topic="stopped"), row(1, S.PAUSED, topic="stopped")),
        row(0, S.FAILED, topic="failed"),
    ]
    assert changes.due_at_start(["on", "paused", "stopped", "failed", "new"], rows) == (
        ["stopped", "failed", "new"],
        ["paused"],
    )


def test_a_stop_is_asked_again_until_it_is_accepted_and_when_it_shows_nowhere() -> None:
    stop = changes.Stop("A-B")
    running = [row()]
    assert stop.due(running, 0.0)
    stop.asked([Refusal("stop t", 145)], 0.0)
    assert not stop.due(running, 0.5)
    assert stop.due(running, 1.1)
    stop.unanswered("silent", 1.2)
    assert stop.due(running, 2.3)
    stop.asked((), 2.3)
    assert not stop.due(running, 9.0)
    assert stop.due(running, 12.4)
    assert not stop.due([row(state=S.STOPPING)], 12.4)


def test_a_stop_that_does_not_end_says_whether_it_was_refused_and_where_it_stands() -> None:
    refused, accepted, silent = (changes.Stop("A-B", limit_s=9, refused_s=3) for _ in range(3))
    rows = [row(0, S.STOPPED), row(1, S.FAILED, error="Failed to get source metadata")]
    refused.asked([Refusal("stop t", 145, "not now")], 0.0)
    error = refused.over(rows)
    assert isinstance(error, RequestRefusedError)
    assert str(error) == (
        "mirror A-B refused to stop for 3 s: stop t: INVALID_MIRROR_STATE (145): not now; "
        "t-1 is FAILED (Failed to get source metadata)"
    )
    accepted.asked([Refusal("stop t", 145)], 0.0)
    assert (refused.limit_s(), accepted.limit_s()) == (3, 3)
    accepted.asked((), 1.0)
    assert accepted.limit_s() == 9
    silent.unanswered("nobody", 0.0)
    assert silent.limit_s() == 9
    assert not isinstance(silent.over(rows), RequestRefusedError)
    assert "did not answer for 9 s: nobody; t-1" in str(silent.over(rows))
    assert not isinstance(accepted.over(rows), RequestRefusedError)
    assert "accepted a stop and did not end within 9 s: t-1 is FAILED" in str(accepted.over(rows))
    with pytest.raises(
        RequestRefusedError, match=r"mirror A-B refuses to stop: stop t: TOPIC_NOT_IN_CLUSTER_MIRROR \(139\)"
    ):
        refused.asked([Refusal("stop t", 139)], 1.0)


# --- what a build has -----------------------------------------------------------------------------


WHOLE = Abilities(requests=frozenset(NEEDED), level=1)
STOCK = Abilities(requests=frozenset({0, 1, 3}), level=0)


def test_stock_brokers_are_refused_with_their_image_and_the_fix() -> None:
    check_brokers({1: STOCK, 100: WHOLE}, {}, cluster="B", image="k")
    with pytest.raises(MirrorError) as caught:
        check_brokers({1: STOCK, 2: STOCK}, {}, cluster="B", image="apache/kafka:4.3.1")
    for words in ("cluster B (image apache/kafka:4.3.1)", "CreateClusterMirror (94)", "--kafka-image", "--kafka-tgz"):
        assert words in str(caught.value)
    with pytest.raises(MirrorError, match="no broker of cluster B answers: silent"):
        check_brokers({}, {1: "silent"}, cluster="B", image="")


def test_capabilities_follow_from_what_was_found() -> None:
    refused = {"mirror.acl.include": "it has none"}
    found = Found(brokers={1: WHOLE, 2: STOCK}, filters=Filters(refused=refused), same_ids=True, epochs_told=False)
    can = capabilities(found)
    assert {name for name, support in can.items() if not support.yes} == {Capability.ACL_SYNC, Capability.CUT_BY_EPOCH}
    assert can[Capability.ACL_SYNC].why == "it has none"
    stock = capabilities(Found(brokers={100: Abilities(requests=frozenset(NEEDED), level=0)}, same_ids=False))
    assert not stock[Capability.PID_RESET_HONOURED].yes
    assert "mirror.version" in stock[Capability.PID_RESET_HONOURED].why
    assert stock[Capability.TOPIC_ID].why == "its topics have other ids than the source's"


def test_settings_are_set_by_the_name_that_the_build_lists_else_tried_by_each() -> None:
    wanted = {"mirror.acl.include": "*", "mirror.groups.include": ".*", "mirror.groups.exclude": "", UNCLEAN: "true"}
    listed = {"mirror.acls.include": "TOPIC", "mirror.groups.include": ".*", "bootstrap.servers": "x"}
    assert names_to_try(listed, wanted) == {"mirror.acl.include": ("mirror.acls.include",), UNCLEAN: ()}
    assert names_to_try({"mirror.unclean.leader.election.enable": None}, {UNCLEAN: "true"}) == {
        UNCLEAN: ("mirror.unclean.leader.election.enable",)
    }
    assert names_to_try({}, wanted)["mirror.acl.include"] == ("mirror.acl.include", "mirror.acls.include")


def test_options_become_settings_of_brokers_and_of_the_mirror() -> None:
    config = broker_config(2, {"refresh-ms": "500", "state_partitions": "3"})
    assert config["unstable.feature.versions.enable"] == config["unstable.api.versions.enable"] == "true"
    assert config["mirror.metadata.refresh.interval.ms"] == "500"
    assert config["mirror.state.topic.replication.factor"] == config["mirror.topic.replication.factor"] == "2"
    assert config["mirror.state.topic.num.partitions"] == "3"
    assert mirror_settings(parse_options({"exclude_configs": "retention.ms"})) == {
        "mirror.groups.include": ".*",
        "mirror.groups.exclude": "",
        "mirror.acl.include": "*",
        UNCLEAN: "true",
        "mirror.topic.properties.exclude": "retention.ms",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"refresh": "1"}, "mirror native has no option 'refresh'"),
        ({"refresh_ms": "soon"}, "it must be a number such as 2000"),
        ({"unclean": "yes"}, "it must be true or false"),
        ({"groups": "a,b"}, "brokers split it at its commas"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_options(given)


# --- plans ----------------------------------------------------------------------------------------


def plan(**values: Any) -> RunPlan:
    return make_plan(parse_spec({"mirror": "native", **values}, where="test"))


def images(source: str | None = None, destination: str | None = None) -> ImageSet:
    return ImageSet(
        kafka="build",
        mirror="m",
        toxiproxy="p",
        reference="r",
        tools="t",
        kafka_version="4.2.0-SNAPSHOT",
        own_kafka=False,
        source=BrokerImage(source, "4.4.0") if source else None,
        destination=BrokerImage(destination, "4.2.0-SNAPSHOT") if destination else None,
    )


def test_both_clusters_are_set_up_for_it_and_the_users_own_settings_win() -> None:
    given = {"mirror.metadata.refresh.interval.ms": "60000", "B:unstable.api.versions.enable": "false"}
    spec = topology_spec(plan(broker_config=given, scenario="failover"), images(), "run", keep=False)
    a, b = spec.clusters
    assert a.format_features == b.format_features == {"mirror.version": "1"}
    assert a.config["mirror.metadata.refresh.interval.ms"] == b.config["mirror.metadata.refresh.interval.ms"] == "60000"
    assert (a.config["unstable.api.versions.enable"], b.config["unstable.api.versions.enable"]) == ("true", "false")
    chosen = topology_spec(plan(format_feature={"mirror.version": "0"}), images(), "run", keep=False)
    assert chosen.clusters[0].format_features == {"mirror.version": "0"}


def test_an_old_source_with_an_image_of_its_own_is_left_as_it_is_unless_it_is_mirrored_to() -> None:
    old = {"source_image": "4.4.0", "destination_image": "build"}
    a, b = topology_spec(plan(**old, scenario="failover"), images("old", "build"), "run", keep=False).clusters
    assert (a.format_features, b.format_features) == ({}, {"mirror.version": "1"})
    assert "unstable.api.versions.enable" not in a.config
    a, _ = topology_spec(plan(**old, scenario="failback"), images("old", "build"), "run", keep=False).clusters
    assert a.format_features == {"mirror.version": "1"}


def test_a_run_without_an_image_of_a_build_is_refused_before_it_starts() -> None:
    with pytest.raises(UsageError, match=r"part of the brokers of cluster B.*--kafka-image or --destination-image"):
        check_images(plan())
    with pytest.raises(UsageError, match=r"part of the brokers of cluster A.*--kafka-image or --source-image"):
        check_images(plan(destination_image="build", scenario="failback"))
    check_images(plan(kafka_image="build", scenario="round-trip"))
    check_images(plan(destination_image="build", scenario="failover"))
    check_images(make_plan(parse_spec({"mirror": "reference"}, where="test")))


def test_the_campaign_without_an_image_is_refused_before_its_first_container(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the image of a build that has it with --kafka-image"):
        run_campaign("native", out=tmp_path / "runs", master="local[1]", kafka_image=None)
    assert list(tmp_path.iterdir()) == []


def test_the_images_that_have_to_hold_the_mirror_are_those_of_the_destinations() -> None:
    assert images_of_mirror(plan(scenario="failover"), images("old", "build")) == ("build",)
    assert images_of_mirror(plan(scenario="failback"), images("old", "build")) == ("old", "build")
    assert images_of_mirror(make_plan(parse_spec({"mirror": "mm2"}, where="test")), images()) == ()


def test_faults_of_a_mirrors_own_containers_and_of_a_link_that_it_does_not_use_are_refused() -> None:
    with pytest.raises(
        UsageError, match="mirror-kill cannot act on this run: it needs a mirror that runs in containers"
    ):
        plan(nemesis="mirror-kill")
    with pytest.raises(UsageError, match="no cluster 'B' to act on"):
        plan(nemesis="link-partition:B")
    assert {fault.params["link"] for fault in plan(nemesis="link-partition", time_limit=60).schedule} == {"A"}
    with pytest.raises(UsageError, match="leave --mirror-nodes out"):
        plan(mirror_nodes=2)


def test_it_is_judged_by_the_newest_revision_of_its_design() -> None:
    assert plan().contract == "cluster-mirror/kip-2026-07"
    assert plan(contract="cluster-mirror/strict").contract == "cluster-mirror/strict"
