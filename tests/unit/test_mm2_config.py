"""MirrorMaker 2's options, its properties file, and the records of its internal topics. Pure."""

from __future__ import annotations

import json

import pytest

from harness.core.errors import UsageError
from mirrors import REGISTRY, MirrorSettings
from mirrors.mm2.config import Mm2Options, check_topics, mm2_properties, parse_options, remote_name, render
from mirrors.mm2.state import positions, task_partitions, task_states
from mirrors.mm2.watch import Goal


def properties(contract: str, *, topics: tuple[str, ...] = ("t",), nodes: int = 1, **options: str) -> dict[str, str]:
    return mm2_properties(
        parse_options(contract, options),
        topics,
        source="A",
        destination="B",
        source_bootstrap="10.0.0.2:20101",
        destination_bootstrap="10.0.0.2:20201",
        source_brokers=3,
        destination_brokers=2,
        mirror_nodes=nodes,
        rest_host="10.0.0.200",
    )


def test_each_contract_gives_its_guarantees_and_no_other() -> None:
    found = {
        contract: (
            made["A.consumer.isolation.level"],
            made.get("B.exactly.once.source.support"),
        )
        for contract in ("mm2-at-least-once", "mm2-read-committed", "mm2-exactly-once")
        for made in [properties(contract)]
    }
    assert found == {
        "mm2-at-least-once": ("read_uncommitted", None),
        "mm2-read-committed": ("read_committed", None),
        "mm2-exactly-once": ("read_committed", "enabled"),
    }


def test_a_contract_with_a_suffix_configures_like_its_base() -> None:
    assert properties("mm2-at-least-once+unclean") == properties("mm2-at-least-once")


def test_only_the_links_addresses_occur() -> None:
    made = properties("mm2-exactly-once")
    assert made["A.bootstrap.servers"] == "10.0.0.2:20101"
    assert made["B.bootstrap.servers"] == "10.0.0.2:20201"
    assert made["listeners"] == "http://10.0.0.200:8083"


def test_replicas_are_as_many_as_the_brokers_allow() -> None:
    made = properties("mm2-exactly-once", group_offsets="true")
    replicas = {key: value for key, value in made.items() if key.endswith("replication.factor")}
    assert set(replicas.values()) == {"2", "3"}
    assert [key for key, value in replicas.items() if value == "3"] == ["A->B.offset-syncs.topic.replication.factor"]
    assert len(replicas) == 7


def test_topics_match_literally() -> None:
    assert properties("mm2-exactly-once", topics=("a.b", "c-d_e"))["A->B.topics"] == "a[.]b,c-d_e"


def test_names_and_policy_go_together() -> None:
    identity, default = (
        parse_options("mm2-exactly-once", {}),
        parse_options("mm2-exactly-once", {"identity-names": "no"}),
    )
    assert remote_name("t", identity, source="A") == "t"
    assert remote_name("t", default, source="A") == "A.t"
    assert "replication.policy.class" in properties("mm2-exactly-once")
    assert "replication.policy.class" not in properties("mm2-exactly-once", identity_names="false")


def test_group_offsets_are_off_unless_asked_for() -> None:
    off, on = properties("mm2-exactly-once"), properties("mm2-exactly-once", group_offsets="true")
    for key in ("emit.checkpoints", "emit.offset-syncs", "sync.group.offsets"):
        assert (off[f"A->B.{key}.enabled"], on[f"A->B.{key}.enabled"]) == ("false", "true")
    # MM2 refuses any other setting of offset syncs while they are off.
    assert not [key for key in off if "offset-syncs.topic" in key]


def test_every_process_gets_a_task_by_default() -> None:
    tasks = "A->B.tasks.max"
    assert properties("mm2-exactly-once")[tasks] == "2"
    assert properties("mm2-exactly-once", nodes=5)[tasks] == "5"
    assert properties("mm2-exactly-once", nodes=5, tasks_max="3")[tasks] == "3"


def test_raw_properties_win() -> None:
    made = mm2_properties(
        parse_options("mm2-at-least-once", {"B.offset.flush.interval.ms": "77", "A->B.tasks.max": "9"}),
        ["t"],
        source="A",
        destination="B",
        source_bootstrap="a:1",
        destination_bootstrap="b:1",
        source_brokers=1,
        destination_brokers=1,
        mirror_nodes=1,
        rest_host="h",
    )
    assert (made["B.offset.flush.interval.ms"], made["A->B.tasks.max"]) == ("77", "9")


@pytest.mark.parametrize(
    ("contract", "options", "words"),
    [
        ("cluster-mirror", {}, "choose one of mm2-at-least-once"),
        ("mm2-exactly-once", {"identity": "true"}, "no option 'identity'"),
        ("mm2-exactly-once", {"identity_names": "maybe"}, "give true or false"),
        ("mm2-exactly-once", {"tasks_max": "-1"}, "whole number"),
        ("mm2-exactly-once", {"A.bootstrap.servers": "x:1"}, "bypass the proxies"),
        ("mm2-exactly-once", {"replication.policy.separator": "_"}, "use identity_names"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(contract: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        REGISTRY["mm2"].check(MirrorSettings(contract=contract, options=options), ["t"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("__consumer_offsets", "begins with __"),
        ("__orders", "begins with __"),
        (".hidden", "begins with __ or with a dot"),
        ("mm2-offsets.A.internal", "one of its own"),
        ("A.checkpoints.internal", "one of its own"),
        ("heartbeats", "its heartbeats"),
        ("door-heartbeats", "its heartbeats"),
    ],
)
def test_topics_that_mm2_skips_are_refused(topic: str, why: str) -> None:
    with pytest.raises(UsageError, match="never mirrors") as caught:
        REGISTRY["mm2"].check(MirrorSettings(), ["fine", topic])
    assert why in str(caught.value)


def test_users_topics_with_names_like_internal_ones_are_mirrored() -> None:
    REGISTRY["mm2"].check(
        MirrorSettings(), ["x.internal", "a-internal", "t.replica", "_schemas", "heartbeats-of-doors"]
    )
    renaming = parse_options("mm2-exactly-once", {"identity_names": "0"})
    check_topics(["door-heartbeats"], renaming, source="A", destination="B")
    excluded = "A->B.topics.exclude"
    assert excluded not in properties("mm2-exactly-once")
    assert (
        properties("mm2-exactly-once", topics=("t.replica",))[excluded] == r"mm2.*\.internal|.*\.checkpoints\.internal"
    )


def test_a_name_that_looks_mirrored_is_refused_only_under_default_names() -> None:
    check_topics(["B.t"], parse_options("mm2-exactly-once", {}), source="A", destination="B")
    with pytest.raises(UsageError, match="would look mirrored"):
        check_topics(["B.t"], parse_options("mm2-exactly-once", {"identity_names": "0"}), source="A", destination="B")


def test_the_file_is_escaped_as_java_reads_it() -> None:
    assert render({"k": "a\\b", "a b:c=d": " x\ny"}) == "a\\ b\\:c\\=d=\\ x\\ny\nk=a\\\\b\n"


def test_registry_entry_documents_every_option() -> None:
    assert set(REGISTRY["mm2"].options) >= {"identity_names", "group_offsets", "tasks_max"}
    assert set(REGISTRY["mm2"].contracts) == {"mm2-exactly-once", "mm2-read-committed", "mm2-at-least-once"}
    assert isinstance(parse_options("mm2-exactly-once", {}), Mm2Options)


def entry(key: object, value: object) -> tuple[bytes, bytes | None]:
    return json.dumps(key).encode(), None if value is None else json.dumps(value).encode()


def test_positions_are_the_next_offset_of_this_source_only() -> None:
    where = {"cluster": "A", "topic": "t", "partition": 3}
    found = positions(
        dict(
            [
                entry(["MirrorSourceConnector", where], {"offset": 41}),
                entry(["MirrorSourceConnector", {**where, "cluster": "C"}], {"offset": 7}),
                entry(["MirrorHeartbeatConnector", {"sourceClusterAlias": "A"}], {"offset": 0}),
                entry(["MirrorSourceConnector", {**where, "partition": 4}], None),
                (b"not json", b"{"),
            ]
        ),
        "A",
    )
    assert found == {("t", 3): 42}


def test_a_failed_task_is_reported_with_its_innermost_cause() -> None:
    trace = "org.E: outer\n\tat x\nCaused by: org.F: middle\n\tat y\nCaused by: org.G: fenced\n\tat z"
    states = task_states(
        {
            b"status-task-MirrorSourceConnector-0": json.dumps({"state": "RUNNING", "trace": None}).encode(),
            b"status-task-MirrorSourceConnector-1": json.dumps({"state": "FAILED", "trace": trace}).encode(),
            b"status-task-MirrorSourceConnector-2": None,
            b"status-task-MirrorHeartbeatConnector-0": json.dumps({"state": "FAILED"}).encode(),
        }
    )
    assert sorted(states) == [0, 1]
    assert (states[0].state, states[0].error) == ("RUNNING", None)
    assert (states[1].state, states[1].error) == ("FAILED", "org.E: outer; org.G: fenced")


def test_partitions_of_tasks_that_no_longer_exist_are_left_out() -> None:
    def task(partitions: str) -> bytes:
        return json.dumps({"properties": {"task.assigned.partitions": partitions}}).encode()

    found = task_partitions(
        {
            b"task-MirrorSourceConnector-0": task("a-b-0,t-1"),
            b"task-MirrorSourceConnector-1": task("t-9"),
            b"task-MirrorCheckpointConnector-0": task("x-0"),
            b"commit-MirrorSourceConnector": json.dumps({"tasks": 1}).encode(),
        }
    )
    assert found == {("a-b", 0): 0, ("t", 1): 0}


def test_a_goal_is_reached_at_the_end_or_past_the_last_readable_record() -> None:
    def reached(goal: Goal, position: int) -> bool:
        return goal.reached(position, source_end=10, now=0.0)

    assert reached(Goal(end=10), 10)
    assert not reached(Goal(end=10), 9)
    assert reached(Goal(end=10, last=7), 8)  # 8 and 9 are a marker and aborted data
    assert not reached(Goal(end=10, last=7), 7)
    assert reached(Goal(end=10, last=-1), 0)  # nothing readable at all


def test_a_mirror_that_went_on_past_the_goal_has_reached_it() -> None:
    assert Goal(end=10).reached(15, source_end=20, now=0.0)


@pytest.mark.parametrize("source_end", [12, None])
def test_a_position_beyond_the_sources_end_counts_only_when_it_holds_still(source_end: int | None) -> None:
    goal = Goal(end=10)
    assert not goal.reached(15, source_end=source_end, now=0.0)
    assert not goal.reached(15, source_end=source_end, now=4.9)
    assert not goal.reached(16, source_end=source_end, now=5.1)  # it moved
    assert not goal.reached(16, source_end=source_end, now=10.0)
    assert goal.reached(16, source_end=source_end, now=10.2)
