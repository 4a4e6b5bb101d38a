"""Choosing a free /24."""

from __future__ import annotations

import random
from ipaddress import IPv4Network
from typing import Any

import pytest

from harness.clusters.docker.subnets import (
    address_pools,
    conflict,
    docker_subnets,
    free_subnets,
    host_routes,
    parse_network,
)
from harness.core.errors import UsageError

pytestmark = pytest.mark.unit

# As Linux writes it: default, an unreachable pool, docker0, the host's own network.
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
*\t00001EAC\t00000000\t0201\t0\t0\t9999\t0000FFFF\t0\t0\t0
docker0\t00FF1EAC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


class _Api:
    def __init__(self, networks: list[dict[str, Any]]) -> None:
        self._networks = networks

    def networks(self) -> list[dict[str, Any]]:
        return self._networks


class _Answers:
    """The engine's answers as plain values: the tests are about how they are read."""

    def __init__(self, *, networks: list[dict[str, Any]] | None = None, info: dict[str, Any] | None = None) -> None:
        self.api = _Api(networks or [])
        self._info = info or {}

    def info(self) -> dict[str, Any]:
        return self._info


def test_routes_without_default_and_unreachable_ones() -> None:
    assert host_routes(ROUTES) == [IPv4Network("172.30.255.0/24"), IPv4Network("192.0.2.0/24")]


def test_docker_networks_with_and_without_subnets() -> None:
    answers = _Answers(
        networks=[
            {"Name": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}},
            {"Name": "host", "IPAM": {"Config": None}},
            {"Name": "six", "IPAM": {"Config": [{"Subnet": "fd00::/64"}, {"Subnet": "10.9.0.0/24"}]}},
        ]
    )
    assert docker_subnets(answers) == [("bridge", IPv4Network("172.17.0.0/16")), ("six", IPv4Network("10.9.0.0/24"))]


def test_pools_come_from_the_environment_then_the_engine_then_the_default() -> None:
    engine = _Answers(
        info={"DefaultAddressPools": [{"Base": "10.50.0.0/16", "Size": 24}, {"Base": "fd00::/48", "Size": 64}]}
    )
    assert address_pools(engine, environment="10.60.0.0/20, 10.61.0.0/24") == [
        IPv4Network("10.60.0.0/20"),
        IPv4Network("10.61.0.0/24"),
    ]
    assert address_pools(engine, environment="") == [IPv4Network("10.50.0.0/16")]
    assert IPv4Network("172.30.0.0/16") in address_pools(_Answers(), environment="")
    with pytest.raises(UsageError, match="SHATTERPROOF_ADDRESS_POOL: 'lan' is not an IPv4 network"):
        address_pools(engine, environment="lan")


def test_every_free_subnet_comes_once_and_no_taken_one() -> None:
    pool = IPv4Network("10.50.0.0/21")  # eight /24
    taken = [IPv4Network("10.50.2.0/24"), IPv4Network("10.50.4.128/25"), IPv4Network("10.50.6.0/23")]
    found = list(free_subnets([pool], taken, random.Random(3)))
    assert sorted(found) == [IPv4Network(f"10.50.{n}.0/24") for n in (0, 1, 3, 5)]
    assert list(free_subnets([pool], [IPv4Network("10.0.0.0/8")], random.Random(3))) == []


def test_two_runs_begin_at_different_places() -> None:
    pool = IPv4Network("10.50.0.0/16")
    first = {next(free_subnets([pool], [], random.Random(seed))) for seed in range(20)}
    assert len(first) > 15


def test_what_a_named_subnet_overlaps() -> None:
    named = IPv4Network("172.30.5.0/24")
    assert conflict(named, [("other", IPv4Network("172.30.5.128/25"))], []) == "Docker network other (172.30.5.128/25)"
    assert conflict(named, [], [IPv4Network("172.16.0.0/12")]) == "the host's route to 172.16.0.0/12"
    assert conflict(named, [("other", IPv4Network("172.30.6.0/24"))], [IPv4Network("192.0.2.0/24")]) == ""


@pytest.mark.parametrize(
    ("text", "sentence"), [("10.0.0.0/25", "smaller than the /24"), ("10.0.0.1/24", "not an IPv4 network")]
)
def test_bad_networks_say_so(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_network(text, "subnet")
