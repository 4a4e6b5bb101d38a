"""The pure parts of the workload `append`: names, values, plan, rate, options, floor, configuration, threads."""

from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import StorageError, UsageError, WaitTimeoutError
from workloads import DESCRIPTIONS, REGISTRY
from workloads.append import Append
from workloads.base import WorkloadOptions
from workloads.clients.control import StopSignal, Tally
from workloads.clients.kafka_config import DELIVERY_TIMEOUT_MS, ONLY_ATTEMPT_S, consumer_config, producer_config
from workloads.clients.load import ThreadedLoad
from workloads.clients.rate import TokenBucket
from workloads.plan import SendPlan
from workloads.values import Names, make_value, next_process, parse_value, run_tag

pytestmark = pytest.mark.unit


class HandClock:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.now = 0

    def now_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


# --- values and names ---------------------------------------------------------------------------------------


@given(
    cluster=st.sampled_from("ABC"),
    number=st.integers(0, 99),
    generation=st.integers(0, 99),
    seq=st.integers(0, 10**12),
    size=st.integers(0, 200),
)
def test_a_value_says_who_wrote_it_and_has_the_size_asked_for(
    cluster: str, number: int, generation: int, seq: int, size: int
) -> None:
    client = f"{cluster}-producer-{number}#{generation}"
    prefix = f"{run_tag('run')}/{client}:p{number}.{generation}"
    value = make_value(prefix, seq, size)
    parsed = parse_value(value)
    assert parsed is not None
    assert parsed == (run_tag("run"), cluster, client, f"p{number}.{generation}", seq)
    bare = make_value(prefix, seq)
    assert len(value) == (size if size > len(bare) + 1 else len(bare))


@pytest.mark.parametrize(
    "foreign",
    ["", "heartbeat", "A-producer-0#1:p1:3", "t/A-producer-0:p1:3", "t/A-producer-0#1:p1:x", "a:b:c:d", "1,2"],
)
def test_other_texts_are_not_taken_for_our_values(foreign: str) -> None:
    assert parse_value(foreign) is None


def test_two_runs_never_send_the_same_value() -> None:
    assert run_tag("1128-0101-a-1f2e") != run_tag("1128-0101-a-1f2f")
    assert {len(run_tag(str(n))) for n in range(500)} <= {1, 2, 3, 4, 5, 6, 7}


def test_a_retired_process_gets_a_new_name_each_time() -> None:
    assert next_process("p3") == "p3.1"
    assert next_process(next_process("p3")) == "p3.2"


def test_names_are_unique_over_later_starts_that_share_the_contexts_extra() -> None:
    extra: dict[str, Any] = {}
    first = [Names.of(extra).client("A-producer-0"), Names.of(extra).process("p")]
    second = [Names.of(extra).client("A-producer-0"), Names.of(extra).process("p")]
    assert first == ["A-producer-0#0", "p0"]
    assert second == ["A-producer-0#1", "p1"]


# --- plan ---------------------------------------------------------------------------------------------------


def plan(seed: int = 7, role: str = "A-producer-0", **changes: Any) -> SendPlan:
    options: dict[str, Any] = {
        "tag": "t",
        "targets": [(t, p) for t in ("x", "y") for p in range(3)],
        "max_records": 4,
        "value_bytes": 0,
    }
    made = SendPlan(seed=seed, role=role, **(options | changes))
    made.use_client(f"{role}#0")
    return made


def test_the_same_seed_and_role_draw_the_same_records_and_others_do_not() -> None:
    def where(drawn: SendPlan) -> list[tuple[str, int | None]]:
        return [(r.topic, r.partition) for _ in range(50) for r in drawn.records("p0")]

    assert where(plan()) == where(plan())
    assert where(plan()) != where(plan(seed=8))
    assert where(plan()) != where(plan(role="A-producer-1"))


def test_records_are_one_to_max_cover_every_partition_and_have_unique_values_over_incarnations() -> None:
    drawn = plan()
    operations = [drawn.records("p0") for _ in range(400)]
    drawn.use_client("A-producer-0#1")
    operations += [drawn.records("p0.1") for _ in range(400)]
    records = list(itertools.chain.from_iterable(operations))
    assert {len(o) for o in operations} == {1, 2, 3, 4}
    assert Counter((r.topic, r.partition) for r in records).keys() == {(t, p) for t in "xy" for p in range(3)}
    assert len({r.value for r in records}) == len(records)
    assert {r.offset for r in records} == {None}
    assert {r.key for r in records} == {"p0", "p0.1"}


def test_about_the_asked_share_of_transactions_is_aborted() -> None:
    drawn = plan(abort_ratio=0.2)
    assert 120 < sum(drawn.aborts() for _ in range(1000)) < 280
    assert not any(plan(abort_ratio=0.0).aborts() for _ in range(100))


# --- rate ---------------------------------------------------------------------------------------------------


def test_the_bucket_gives_the_rate_over_time_and_no_more_than_a_short_burst_after_a_pause() -> None:
    clock = HandClock()
    bucket = TokenBucket(100, clock=clock)
    taken = 0
    for _ in range(1000):
        clock.sleep(0.01)
        taken += bucket.take(50)
    assert 990 <= taken <= 1012
    clock.sleep(60)
    assert bucket.take(1000) == 10


def test_the_bucket_says_how_long_to_wait() -> None:
    clock = HandClock()
    bucket = TokenBucket(4, clock=clock)
    assert bucket.take(5) == 1
    assert bucket.wait_s() == pytest.approx(0.25)
    clock.sleep(0.3)
    assert bucket.wait_s() == 0
    assert bucket.take(5) == 1


def test_rate_zero_is_no_limit() -> None:
    bucket = TokenBucket(0, clock=HandClock())
    assert bucket.take(10**6) == 10**6
    assert bucket.wait_s() == 0


# --- options, floor, configuration, registry ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"topics": 0}, "topics"),
        ({"partitions": 0}, "partitions"),
        ({"processes": 0}, "processes"),
        ({"max_records": 0}, "max_records"),
        ({"rate": -1.0}, "rate"),
        ({"abort_ratio": 1.5}, "abort_ratio"),
        ({"client_life": -1}, "client_life"),
        ({"txn_hold": -0.5}, "txn_hold"),
        ({"producer": "fast"}, "producer"),
        ({"isolation": "serializable"}, "isolation"),
        ({"acks": "1", "producer": "idempotent"}, "acks"),
    ],
)
def test_options_that_make_no_sense_get_one_sentence_that_names_them(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Append().topics(replace(WorkloadOptions(), **changes))


def test_topics_follow_the_options_and_topic_config_wins() -> None:
    specs = Append().topics(WorkloadOptions(topics=3, partitions=5, replication=3))
    assert [(s.name, s.partitions, s.replication) for s in specs] == [(f"append-{n}", 5, 3) for n in range(3)]
    assert specs[0].config == {"min.insync.replicas": "2"}
    custom = Append().topics(WorkloadOptions(topic_config={"min.insync.replicas": "1", "segment.bytes": "16384"}))
    assert custom[0].config == {"min.insync.replicas": "1", "segment.bytes": "16384"}


def test_the_floor_grows_with_time_and_rate_and_is_lower_for_transactions() -> None:
    workload = Append()
    floor = workload.floor(WorkloadOptions(rate=400), time_limit_s=60)
    assert (floor.ok_sends, floor.ok_polls, floor.polled_records_on_destination) == (2400, 12, 1200)
    assert (floor.carried_under_fault, floor.partitions_under_faults) == (40, 4)
    assert workload.floor(WorkloadOptions(rate=0), time_limit_s=60) == floor
    assert workload.floor(WorkloadOptions(rate=10), time_limit_s=60).ok_sends == 60
    assert workload.floor(WorkloadOptions(producer="transactional", producers=2), time_limit_s=60).ok_sends == 60
    assert workload.floor(WorkloadOptions(rate=1), time_limit_s=1).ok_sends == 1
    assert workload.floor(WorkloadOptions(consumers=0), time_limit_s=60).ok_polls == 0


def test_the_floor_is_lower_where_clients_live_shortly_or_transactions_stay_open() -> None:
    workload = Append()
    assert workload.floor(WorkloadOptions(client_life=3, producers=2), time_limit_s=60).ok_sends == 108
    assert workload.floor(WorkloadOptions(client_life=1000, producers=2), time_limit_s=60).ok_sends == 2400
    held = WorkloadOptions(producer="transactional", producers=2, txn_hold=0.5)
    assert workload.floor(held, time_limit_s=60).ok_sends == 24


def test_client_configuration_bounds_every_wait_and_never_creates_topics() -> None:
    options = WorkloadOptions(producer="transactional")
    config = producer_config("a:1", "c", options, transactional_id="x")
    assert config["transaction.timeout.ms"] >= config["delivery.timeout.ms"] == DELIVERY_TIMEOUT_MS
    assert config["allow.auto.create.topics"] is False
    assert config["enable.idempotence"] is True
    assert producer_config("a:1", "c", WorkloadOptions(producer="plain", acks="1"))["acks"] == "1"
    assert producer_config("a:1", "c", WorkloadOptions(producer="plain"))["enable.idempotence"] is False
    reader = consumer_config("a:1", "c", group="g", isolation="read_committed")
    assert reader["auto.offset.reset"] == "error"
    assert reader["enable.auto.commit"] is False
    assert 0.8 * config["retry.backoff.ms"] > ONLY_ATTEMPT_S * 1000


def test_the_registry_names_the_workload_and_describes_it_in_one_line() -> None:
    assert REGISTRY["append"].name == "append"
    assert DESCRIPTIONS.keys() == REGISTRY.keys()
    assert all(text and "\n" not in text for text in DESCRIPTIONS.values())


# --- the load's threads -------------------------------------------------------------------------------------


class ScriptedClient:
    """A client of our own protocol (not a Kafka client): waits to be stopped, fails, or hangs."""

    def __init__(self, stop: StopSignal, behaviour: str) -> None:
        self.tally = Tally("A", ok_sends=3, acked_records=7, polled_records=2)
        self.release = threading.Event()
        self._stop = stop
        self._behaviour = behaviour

    def run(self) -> None:
        if self._behaviour == "fails":
            raise OSError("the disk is full")
        if self._behaviour == "is full":
            raise StorageError("cannot write to runs/x: no space; free some")
        if self._behaviour == "hangs":
            self.release.wait(30)
        self._stop.wait(30)


def test_a_load_adds_up_its_clients_stops_them_all_and_leaves_no_thread() -> None:
    before, thresholds = threading.active_count(), gc.get_threshold()
    stop = StopSignal()
    load = ThreadedLoad({f"c{n}": ScriptedClient(stop, "waits") for n in range(3)}, stop)
    counts = load.counts()
    assert (counts.ok_sends, counts.acked_records, counts.polled_records) == (9, 21, {"A": 6})
    assert gc.get_threshold()[0] > thresholds[0]
    load.stop(timeout_s=5)
    load.stop(timeout_s=5)
    assert load.error() is None
    assert gc.get_threshold() == thresholds
    assert threading.active_count() == before


def test_the_exception_that_ended_a_client_is_kept() -> None:
    stop = StopSignal()
    load = ThreadedLoad({"bad": ScriptedClient(stop, "fails")}, stop)
    load.stop(timeout_s=5)
    assert isinstance(load.error(), OSError)


@pytest.mark.parametrize(("how", "traces"), [("fails", 1), ("is full", 0)])
def test_an_error_of_our_own_is_reported_without_a_trace(
    how: str, traces: int, caplog: pytest.LogCaptureFixture
) -> None:
    stop = StopSignal()
    load = ThreadedLoad({"bad": ScriptedClient(stop, how)}, stop)
    load.stop(timeout_s=5)
    assert load.error() is not None
    assert len(caplog.records) == traces


def test_a_client_that_does_not_end_is_named() -> None:
    stop = StopSignal()
    hanging = ScriptedClient(stop, "hangs")
    load = ThreadedLoad({"A-producer-0": hanging}, stop)
    with pytest.raises(WaitTimeoutError, match="A-producer-0"):
        load.stop(timeout_s=0.2)
    hanging.release.set()
    load.stop(timeout_s=5)


def test_processes_of_one_producer_share_the_partitions_and_reach_them_all() -> None:
    targets = [("t", n) for n in range(8)]
    plan = SendPlan(seed=1, role="A-producer-0", tag="x", targets=targets, max_records=4, value_bytes=0, processes=4)
    plan.use_client("A-producer-0#0")
    reached = {
        p: {(r.topic, r.partition) for _ in range(200) for r in plan.records(p)} for p in ("p0", "p1", "p2", "p3")
    }
    assert set().union(*reached.values()) == set(targets)
    for target in targets:
        assert 1 <= sum(target in share for share in reached.values()) <= 2
    again = {(r.topic, r.partition) for _ in range(200) for r in plan.records("p2.1")}
    assert again == reached["p2"]
    assert len([share for share in reached.values() if share]) == 4
