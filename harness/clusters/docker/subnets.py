"""A free /24 for the network of a run.

Docker picks free subnets itself, but then refuses fixed addresses; so the choice is made here: from the engine's own
address pools where it has any, without overlap with Docker's other networks or the host's routes. Routes that only say
"unreachable" do not count: they keep a pool's traffic from leaving by the default route.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from harness.core.errors import EngineError, UsageError

POOL_VARIABLE = "SHATTERPROOF_ADDRESS_POOL"
DEFAULT_POOLS = (IPv4Network("172.30.0.0/16"), IPv4Network("10.213.0.0/16"))
PREFIX = 24
_REJECT = 0x0200  # RTF_REJECT of linux/route.h


def host_routes(table: str | None = None) -> list[IPv4Network]:
    """Networks that the host routes, from /proc/net/route, without the default route and unreachable ones.

    Empty where there is no such file (the engine is remote or in a virtual machine).
    """
    if table is None:
        try:
            table = Path("/proc/net/route").read_text()
        except OSError:
            return []
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or int(fields[3], 16) & _REJECT:
            continue
        address, mask = (socket.inet_ntoa(struct.pack("<L", int(fields[index], 16))) for index in (1, 7))
        if mask != "0.0.0.0":  # noqa: S104 - a mask, not an address to listen on
            found.append(IPv4Network(f"{address}/{mask}", strict=False))
    return found


def docker_subnets(client: Any) -> list[tuple[str, IPv4Network]]:
    """(network name, IPv4 subnet) of every Docker network."""
    found = []
    for network in client.api.networks():
        for config in (network.get("IPAM") or {}).get("Config") or []:
            subnet = config.get("Subnet", "")
            if subnet and ":" not in subnet:
                found.append((network["Name"], IPv4Network(subnet, strict=False)))
    return found


def address_pools(client: Any, *, environment: str | None = None) -> list[IPv4Network]:
    """The pools to choose a free subnet from: $SHATTERPROOF_ADDRESS_POOL, the engine's pools, or our own default."""
    named = os.environ.get(POOL_VARIABLE, "") if environment is None else environment
    if named:
        return [parse_network(part.strip(), POOL_VARIABLE) for part in named.split(",")]
    pools = [IPv4Network(p["Base"]) for p in client.info().get("DefaultAddressPools") or [] if ":" not in p["Base"]]
    return [pool for pool in pools if pool.prefixlen <= PREFIX] or list(DEFAULT_POOLS)


def parse_network(text: str, where: str) -> IPv4Network:
    """An IPv4 network of at least a /24. Raises UsageError that names where it came from."""
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{where}: {text!r} is not an IPv4 network such as 172.30.0.0/16 ({error})") from error
    if network.prefixlen > PREFIX:
        raise UsageError(f"{where}: {text} is smaller than the /{PREFIX} that a run needs")
    return network


def free_subnets(
    pools: Sequence[IPv4Network], taken: Iterable[IPv4Network], rng: random.Random
) -> Iterator[IPv4Network]:
    """Every /24 of the pools that overlaps nothing taken; pool by pool, from a random start within each.

    The random start keeps two runs that begin at once from trying the same subnets in the same order.
    """
    used = list(taken)
    for pool in pools:
        count = 1 << (PREFIX - pool.prefixlen)
        start = rng.randrange(count)
        for index in range(count):
            base = int(pool.network_address) + (((start + index) % count) << (32 - PREFIX))
            subnet = IPv4Network((base, PREFIX))
            if not any(subnet.overlaps(other) for other in used):
                yield subnet


def conflict(subnet: IPv4Network, networks: Sequence[tuple[str, IPv4Network]], routes: Sequence[IPv4Network]) -> str:
    """What a subnet overlaps, in words; empty when it is free."""
    for name, other in networks:
        if subnet.overlaps(other):
            return f"Docker network {name} ({other})"
    for other in routes:
        if subnet.overlaps(other):
            return f"the host's route to {other}"
    return ""


def none_free(pools: Sequence[IPv4Network]) -> EngineError:
    """The error when every candidate is taken."""
    return EngineError(
        f"no free /{PREFIX} is left in {', '.join(map(str, pools))}: remove unused Docker networks "
        f"(`shatter clean`, `docker network prune`) or name another pool in {POOL_VARIABLE}"
    )
