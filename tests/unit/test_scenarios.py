"""Scenarios as data: their clusters and routes, and the plan that follows."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from harness.clusters.docker.images import BrokerImage, ImageSet
from harness.clusters.plan.topology import MIRROR_BROKER, from_json, proxy_port, to_json
from harness.clusters.plan.topology import plan as plan_topology
from harness.core.errors import UsageError
from harness.core.testspec import parse_spec
from harness.run.plan import make_plan, topology_spec
from harness.run.rehearsal import rehearse
from harness.run.scenarios import OVERLAP_S, REGISTRY, WRITE_S, ScenarioSteps
from mirrors.reference.driver.config import design, parse_options
from nemeses.base import FaultSpec
from nemeses.engine.schedule import to_json as to_json_schedule

pytestmark = pytest.mark.unit


class Told:
    """Steps that only record what they were asked for."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def settle(self) -> None:
        self.did.append("settle")

    def stop_mirror(self, source: str, destination: str) -> Any:
        self.did.append(f"stop {source}{destination}")

    def start_mirror(self, source: str, destination: str) -> None:
        self.did.append(f"start {source}{destination}")

    def write(self, cluster: str, *, seconds: float) -> None:
        assert seconds == WRITE_S
        self.did.append(f"write {cluster}")

    def work(self, *, seconds: float) -> None:
        assert seconds in (OVERLAP_S, WRITE_S)
        self.did.append("work")

    def move(self, cluster: str) -> None:
        self.did.append(f"move {cluster}")

    def moment(self, name: str) -> None:
        self.did.append(name)


def told(name: str, *, fails_back: bool = True) -> list[str]:
    steps = Told()
    checked: ScenarioSteps = steps
    REGISTRY[name].with_mirror(fails_back=fails_back).steps(checked)
    return steps.did


def test_a_round_trip_ends_where_it_began() -> None:
    assert told("failover") == ["stop AB", "work", "write B"]
    back = ["stop AB", "work", "write B", "start BA", "write B", "settle", "stop BA", "write A"]
    assert told("failover-failback") == back
    assert told("chain") == ["stop AB", "work", "write B", "settle", "stop BC", "write C"]
    assert told("round-trip") == [*back, "start AB", "write A", "settle"]


def test_a_disaster_lasts_through_the_stop_and_the_move_of_the_clients() -> None:
    away = ["disaster", "stop AB", "work", "write B", "return"]
    assert told("disaster") == [*away, "start BA", "write B", "settle"]
    assert told("disaster", fails_back=False) == away
    assert told("disaster-failback") == [
        *("stop AB", "work", "write B", "start BA", "move B", "work"),
        *("disaster", "stop BA", "work", "write A", "return", "start AB", "write A", "settle"),
    ]


def test_moments_are_named_by_step_and_place_and_numbered() -> None:
    assert rehearse(REGISTRY["round-trip"]).moments == [
        *("stop.A-B", "stopping.A-B", "work", "write.B", "start.B-A", "truncation.B-A", "write.B.2", "settle"),
        *("stop.B-A", "stopping.B-A", "write.A", "start.A-B", "truncation.A-B", "write.A.2", "settle.2", "end"),
    ]


def planned(**values: Any) -> list[FaultSpec]:
    return list(make_plan(parse_spec({"mirror": "reference", **values}, where="test")).schedule)


@pytest.mark.parametrize("mirror", ["reference", "mm2"])
def test_a_disaster_is_a_fault_drawn_from_the_seed(mirror: str) -> None:
    drawn = [fault for seed in range(12) for fault in planned(mirror=mirror, scenario="disaster", seed=seed)]
    assert {(fault.nemesis, fault.role, fault.at_step, fault.until) for fault in drawn} == {
        (name, "all", "disaster", "return") for name in ("broker-kill", "broker-pause", "link-partition")
    }
    assert {fault.params["link"] if fault.cluster == "link" else fault.cluster for fault in drawn} == {"A"}


def test_the_disaster_of_a_failback_hits_the_cluster_that_is_mirrored_back() -> None:
    drawn = [fault for seed in range(12) for fault in planned(scenario="disaster-failback", seed=seed)]
    assert {fault.params["link"] if fault.cluster == "link" else fault.cluster for fault in drawn} == {"B"}
    assert len({fault.nemesis for fault in drawn}) == 3


def test_a_disaster_can_be_chosen_and_goes_with_other_faults() -> None:
    chosen = ["link-partition:A/all+mode=down@disaster", "broker-kill:B/coordinator@stopping..3s", "mirror-pause"]
    *load, cut, killed = planned(scenario="disaster", nemesis=chosen)
    assert {(fault.nemesis, fault.at_step) for fault in load} == {("mirror-pause", "")}
    assert (cut.params["mode"], cut.at_step, cut.until, cut.duration_s) == ("down", "disaster", "return", 0)
    assert (killed.role, killed.at_step, killed.until, killed.duration_s) == (
        *("coordinator", "stopping.A-B", "return", 3),
    )


def test_a_stored_moment_that_a_scenario_lacks_is_refused() -> None:
    stored = to_json_schedule(planned(scenario="disaster"))
    again = make_plan(parse_spec({"mirror": "reference", "scenario": "disaster"}, where="test"), schedule=stored)
    assert to_json_schedule(again.schedule) == stored
    with pytest.raises(UsageError, match=r"fault 1 \(broker-kill\): scenario failover has no moment 'disaster'"):
        make_plan(parse_spec({"mirror": "reference", "scenario": "failover"}, where="test"), schedule=stored)


@pytest.mark.parametrize("name", REGISTRY)
def test_no_mirror_is_started_on_a_cluster_that_its_opposite_still_writes_to(name: str) -> None:
    running = set(REGISTRY[name].routes)
    for did in told(name):
        what, _, route = did.partition(" ")
        if what == "stop":
            running.remove((route[0], route[1]))
        if what == "start":
            assert (route[1], route[0]) not in running
            assert (route[0], route[1]) in (*REGISTRY[name].routes, *REGISTRY[name].later)
            running.add((route[0], route[1]))
        if what == "write":
            assert route not in {destination for _, destination in running}


IMAGES = ImageSet(
    kafka="image:1",
    mirror="image:1",
    toxiproxy="image:1",
    reference="image:1",
    tools="image:1",
    kafka_version="4.3.1",
    own_kafka=True,
)


def hosts(**values: Any) -> dict[str, tuple[int, ...]]:
    plan = make_plan(parse_spec({"mirror": "reference", **values}, where="test"))
    spec = topology_spec(plan, IMAGES, "r", keep=False)
    return {cluster.name: cluster.mirror_hosts for cluster in spec.clusters}


def test_each_route_has_processes_of_its_own_on_its_destination() -> None:
    assert hosts() == {"A": (), "B": (1,)}
    assert hosts(scenario="failback", **{"mirror-nodes": 2}) == {"A": (3, 4), "B": (1, 2)}
    assert hosts(scenario="chain") == {"A": (), "B": (1,), "C": (2,)}
    assert hosts(mirror="mm2") == {"A": (), "B": ()}


def test_clusters_have_the_settings_and_images_of_the_test() -> None:
    values = {
        "scenario": "chain",
        "mirror": "reference",
        "broker-config": {"log.segment.bytes": 1048576, "B:log.segment.bytes": "2097152", "C:num.io.threads": 8},
        "format-feature": {"transaction.version": 1},
    }
    plan = make_plan(parse_spec(values, where="test"))
    old, new = BrokerImage("old:1", "4.0.0"), BrokerImage("new:1", "4.2.0-SNAPSHOT")
    spec = topology_spec(plan, replace(IMAGES, source=old, destination=new), "r", keep=False)
    assert [c.image for c in spec.clusters] == ["old:1", "new:1", "new:1"]
    assert [c.config.get("log.segment.bytes") for c in spec.clusters] == ["1048576", "2097152", "1048576"]
    assert [c.config.get("num.io.threads") for c in spec.clusters] == [None, None, "8"]
    nodes = plan_topology(spec, subnet=IPv4Network("10.1.2.0/24"), cluster_ids=dict.fromkeys("ABC", "x")).nodes
    formats = {node.environment.get("KAFKA_FORMAT_ARGS") for node in nodes if node.cluster != "link"}
    assert formats == {"--feature transaction.version=1"}
    assert from_json(to_json(spec)).clusters == spec.clusters


def test_brokers_settings_are_checked_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="broker-config C:x: scenario steady has no cluster C, only A, B"):
        make_plan(parse_spec({"broker-config": {"C:x": "1"}}, where="test"))
    with pytest.raises(UsageError, match=r"cluster B: node\.id is set by the harness"):
        make_plan(parse_spec({"broker-config": {"B:node.id": "7"}}, where="test"))


def test_ports_of_mirrors_and_brokers_never_meet() -> None:
    brokers = {proxy_port(letter, broker) for letter in "ABCDEFGHIJK" for broker in range(1, 15)}
    mirrors = {proxy_port(letter, MIRROR_BROKER + n) for letter in "ABCDEFGHIJK" for n in range(50)}
    assert len(brokers) == 11 * 14
    assert len(mirrors) == 11 * 50
    assert not brokers & mirrors


def test_only_the_sources_link_is_broken_of_a_mirror_that_joins_the_destination() -> None:
    values = {"mirror": "reference", "nemesis": "link-partition", "time-limit": 60}
    for seed in range(5):
        schedule = make_plan(parse_spec({**values, "seed": seed}, where="test")).schedule
        assert {fault.params["link"] for fault in schedule} == {"A"}


def test_a_mirror_that_cannot_mirror_back_is_refused_such_scenarios() -> None:
    with pytest.raises(UsageError, match="mirrors back, which mirror mm2 cannot"):
        make_plan(parse_spec({"scenario": "round-trip"}, where="test"))


def test_designs_go_with_the_reference_mirror_alone() -> None:
    assert design(["kip-2026-07"])[0] == "cluster-mirror/kip-2026-07"
    assert design([])[0] == "cluster-mirror/strict"
    assert design(["kip-2026-07", "acl_sync=off"])[1]["acl_sync"] == "off"
    with pytest.raises(UsageError, match="mirror mm2 has no design to choose"):
        make_plan(parse_spec({"design": "strict"}, where="test"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lag_z": "1"}, "lag_s"),
        ({"lag-s": "soon"}, "must be a number"),
        ({"budget": "-1"}, "above 0"),
        ({"groups": "("}, "not a regular expression"),
        ({"crash_at": "stop.holds"}, "stop.hold"),
    ],
)
def test_options_of_the_reference_mirror_are_checked(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_options(options)
