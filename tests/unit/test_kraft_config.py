"""Kafka's configuration of each node, and cluster IDs."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from harness.clusters.plan.kraft_config import (
    RESERVED,
    KafkaNode,
    broker_defaults,
    check_extra,
    new_cluster_id,
    properties,
    render,
)
from harness.core.errors import UsageError

pytestmark = pytest.mark.unit

COMBINED = KafkaNode(node_id=2, address="10.0.0.18", is_broker=True, is_controller=True, link=("10.0.0.2", 20102))
VOTERS = {1: "10.0.0.17", 2: "10.0.0.18", 3: "10.0.0.19"}


def test_combined_node_has_four_listeners_and_the_link_is_advertised_as_toxiproxy() -> None:
    config = properties(COMBINED, voters=VOTERS, brokers=3)
    assert config["process.roles"] == "broker,controller"
    assert (
        config["listeners"]
        == "CLIENTS://0.0.0.0:9092,REPL://0.0.0.0:9093,LINK://0.0.0.0:9094,CONTROLLER://0.0.0.0:9095"
    )
    assert config["advertised.listeners"] == (
        "CLIENTS://10.0.0.18:9092,REPL://10.0.0.18:9093,LINK://10.0.0.2:20102,CONTROLLER://10.0.0.18:9095"
    )
    assert config["inter.broker.listener.name"] == "REPL"
    assert config["controller.quorum.voters"] == "1@10.0.0.17:9095,2@10.0.0.18:9095,3@10.0.0.19:9095"
    assert config["replica.lag.time.max.ms"] == "4000"
    assert config["broker.session.timeout.ms"] == "4000"
    assert config["broker.heartbeat.interval.ms"] == "500"
    assert config["auto.create.topics.enable"] == "false"
    assert config["unclean.leader.election.enable"] == "false"
    assert "min.insync.replicas" not in config  # chosen per topic


def test_separate_controller_and_its_broker() -> None:
    controller = KafkaNode(node_id=4, address="10.0.0.20", is_broker=False, is_controller=True)
    config = properties(controller, voters={4: "10.0.0.20"}, brokers=3)
    assert config["process.roles"] == "controller"
    assert config["listeners"] == "CONTROLLER://0.0.0.0:9095"
    assert config["advertised.listeners"] == "CONTROLLER://10.0.0.20:9095"
    assert "inter.broker.listener.name" not in config
    broker = KafkaNode(node_id=1, address="10.0.0.17", is_broker=True, is_controller=False, link=("10.0.0.2", 20101))
    config = properties(broker, voters={4: "10.0.0.20"}, brokers=3)
    assert config["process.roles"] == "broker"
    assert "CONTROLLER://" not in config["advertised.listeners"]
    assert config["controller.quorum.voters"] == "4@10.0.0.20:9095"


@pytest.mark.parametrize(
    ("brokers", "replication", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (9, "3", "2")]
)
def test_internal_topics_fit_the_cluster(brokers: int, replication: str, min_isr: str) -> None:
    config = broker_defaults(brokers)
    assert config["offsets.topic.replication.factor"] == replication
    assert config["transaction.state.log.replication.factor"] == replication
    assert config["transaction.state.log.min.isr"] == min_isr
    assert config["share.coordinator.state.topic.replication.factor"] == replication


def test_own_configuration_goes_over_defaults_and_never_over_identity() -> None:
    config = properties(COMBINED, voters=VOTERS, brokers=3, extra={"replica.lag.time.max.ms": "9000", "new.key": "x"})
    assert config["replica.lag.time.max.ms"] == "9000"
    assert config["new.key"] == "x"
    for key in RESERVED:
        with pytest.raises(UsageError, match=f"cluster A: {key} is set by the harness"):
            check_extra({key: "1"}, "cluster A")


@pytest.mark.parametrize(("key", "value"), [("", "x"), ("a b", "x"), ("a=b", "x"), ("a", "x\nnode.id=7"), ("#a", "x")])
def test_text_that_is_not_one_line_of_a_configuration_is_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError, match="not one line of a Kafka configuration"):
        check_extra({key: value}, "cluster A")


def test_rendered_file_keeps_backslashes() -> None:
    assert render({"b": "1", "a": "x\\.y=z"}) == "a=x\\\\.y=z\nb=1\n"


def test_cluster_id_is_kafkas_form_and_never_begins_with_a_dash() -> None:
    first_dash = b"\xf8" + bytes(15)  # encodes to a leading "-"
    assert base64.urlsafe_b64encode(first_dash).startswith(b"-")
    source: Iterator[bytes] = iter([first_dash, first_dash, bytes(range(16))])
    made = new_cluster_id(lambda count: next(source))
    assert made == "AAECAwQFBgcICQoLDA0ODw"
    assert len(made) == 22


def test_a_broker_needs_a_link_and_a_controller_has_none() -> None:
    with pytest.raises(ValueError, match="link address"):
        KafkaNode(node_id=1, address="10.0.0.17", is_broker=True, is_controller=True)
    with pytest.raises(ValueError, match="link address"):
        KafkaNode(node_id=1, address="10.0.0.17", is_broker=False, is_controller=True, link=("10.0.0.2", 1))
