"""Creating the Docker objects of a run, through Testcontainers.

Ryuk, Testcontainers' own reaper, stays off: its image is not available everywhere, and it removes what `--keep` and
`shatter up` must leave running. Clean-up uses our labels instead (cleanup.py).
"""

from __future__ import annotations

import os

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # read when the package is used, so it is set first

import functools
import io
import random
import tarfile
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Any

import docker.errors
import docker.types
import docker.version
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from harness.clusters.docker import labels as label
from harness.clusters.docker import subnets
from harness.clusters.docker.clients import TIMEOUT_S, DockerClients, explain
from harness.clusters.docker.images import entry_archive
from harness.clusters.plan.entry import ENTRY_POINT
from harness.clusters.plan.topology import NodePlan
from harness.core.errors import EngineError, ImageError, UsageError

testcontainers_config.ryuk_disabled = True

_CLIENT = {"timeout": TIMEOUT_S}


def container_name(run_id: str, node: str) -> str:
    """The engine's name of a node's container."""
    return f"shatterproof-{run_id}-{node}"


def volume_name(run_id: str, volume: str) -> str:
    """The engine's name of a volume of a run."""
    return f"shatterproof-{run_id}-{volume}"


def network_name(run_id: str) -> str:
    """The engine's name of a run's network."""
    return f"shatterproof-{run_id}"


@functools.cache
def _entry_files() -> Mapping[str, bytes]:
    """Path inside a container → content, of the entry point and what it needs."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(entry_archive())) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[f"/{member.name.lstrip('/')}"] = content.read()
    return files


def check_images(clients: DockerClients, images: set[str]) -> None:
    """Raise ImageError when an image is not on this machine."""
    for image in sorted(images):
        try:
            clients.get().images.get(image)
        except docker.errors.ImageNotFound:
            raise ImageError(
                f"image {image} is not on this machine: `shatter images` builds ours, "
                f"`docker pull {image}` fetches another"
            ) from None
        except docker.errors.APIError as error:
            raise ImageError(f"image {image} cannot be looked up: {explain(error)}") from error


def create_network(
    clients: DockerClients, run_id: str, *, named: str | None, labels: Mapping[str, str], rng: random.Random
) -> IPv4Network:
    """Create the run's bridge network and return its subnet: the named one, or any free /24.

    Two runs may pick the same subnet at the same moment; the engine refuses the second, which then tries the next.
    Raises EngineError when none is free or the named one is taken.
    """
    client = clients.get()
    networks, routes = subnets.docker_subnets(client), subnets.host_routes()
    if named is not None:
        subnet = subnets.parse_network(named, "subnet")
        taken = subnets.conflict(subnet, networks, routes)
        if taken:
            raise EngineError(f"subnet {named} is taken by {taken}: name another one, or none to get any that is free")
        _create(run_id, subnet, labels)
        return subnet
    pools = subnets.address_pools(client)
    for subnet in subnets.free_subnets(pools, [n for _, n in networks] + routes, rng):
        try:
            _create(run_id, subnet, labels)
            return subnet
        except _SubnetTakenError:
            continue
    raise subnets.none_free(pools)


class _SubnetTakenError(EngineError):
    """Another network took the subnet first, or an interface that no route shows has the address."""


def _create(run_id: str, subnet: IPv4Network, labels: Mapping[str, str]) -> None:
    pool = docker.types.IPAMPool(subnet=str(subnet), gateway=str(subnet.network_address + 1))
    network = Network(
        docker_client_kw=_CLIENT,
        docker_network_kw={
            "driver": "bridge",
            "ipam": docker.types.IPAMConfig(pool_configs=[pool]),
            "labels": dict(labels),
            "check_duplicate": True,
        },
    )
    network.name = network_name(run_id)
    try:
        network.create()
    except docker.errors.APIError as error:
        words = explain(error)
        if "overlap" in words or "conflict" in words.lower():
            raise _SubnetTakenError(f"subnet {subnet}: {words}") from error
        if "already exists" in words:
            raise _name_taken(run_id, f"network {network.name}") from error
        raise EngineError(f"the network of run {run_id} ({subnet}) cannot be made: {words}") from error
    finally:
        network._docker.client.close()  # no public method closes it, and every open connection holds a descriptor


def _name_taken(run_id: str, what: str) -> UsageError:
    return UsageError(
        f"{what} exists already: run {run_id} is up or left something behind; "
        f"take another run id or remove it with `shatter down --name {run_id}`"
    )


def start_container(
    clients: DockerClients,
    node: NodePlan,
    *,
    run_id: str,
    network: str,
    labels: Mapping[str, str],
) -> str:
    """Create and start one node's container and its volumes; returns the container's name.

    The entry point is copied into nodes that start by it, because a user's own image does not have
    it. Returns when the engine has started the process.
    Raises EngineError or UsageError in one sentence; what was created stays, for the caller's clean-up by label.
    """
    name = container_name(run_id, node.name)
    node_labels = {
        **labels,
        label.NODE: node.name,
        label.CLUSTER: node.cluster,
        label.ROLE: node.role.value,
    }
    container = _container(node, name)
    try:
        for volume, path in node.volumes.items():
            clients.get().volumes.create(name=volume_name(run_id, volume), labels=node_labels)
            container.with_volume_mapping(volume_name(run_id, volume), path, "rw")
        container.with_kwargs(labels=node_labels, **_options(node, network))
        container.start()
    except docker.errors.APIError as error:
        words = explain(error)
        if "is already in use by container" in words:
            raise _name_taken(run_id, f"container {name}") from error
        if "Address already in use" in words:
            raise EngineError(f"{node.name}: its address {node.address} is taken by another container") from error
        raise EngineError(f"{node.name} cannot be started from image {node.image}: {words}") from error
    finally:
        container.get_docker_client().client.close()
    return name


def _container(node: NodePlan, name: str) -> DockerContainer:
    """The node's container, not created yet, with the files that are put into it."""
    container = DockerContainer(node.image, docker_client_kw=_CLIENT)
    container.image = node.image  # the exact name, without a registry prefix from Testcontainers' settings
    container.with_name(name).with_command(list(node.command)).with_envs(**node.environment)
    for path, text in node.files.items():
        container.with_copy_into_container(text.encode(), path, 0o644)
    if ENTRY_POINT in node.entrypoint:
        for path, content in _entry_files().items():
            container.with_copy_into_container(content, path, 0o755)
    return container


def _options(node: NodePlan, network: str) -> dict[str, Any]:
    """The engine's options of a node: its name and address in the network, entry point and user."""
    options: dict[str, Any] = {
        "hostname": node.name,
        "network": network,
        "networking_config": {
            network: docker.types.EndpointConfig(docker.version.__version__, ipv4_address=node.address)
        },
    }
    if node.entrypoint:
        options["entrypoint"] = list(node.entrypoint)
    if node.user is not None:
        options["user"] = node.user
    return options
