"""The driver of the authors' Cluster Mirroring on stock brokers: processes of the reference mirror serve its requests.

The driver runs unchanged. Its destination's bootstrap servers are the processes, which are brokers of that cluster,
too, and the only ones that offer the requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from harness.core.errors import MirrorError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.topology.clusters import Cluster, Node, NodeState
from mirrors import REGISTRY, MirrorContext, MirrorSettings
from mirrors.native import config as native_config
from mirrors.native.driver import NativeMirror
from mirrors.reference.driver import config
from mirrors.reference.driver.admin_client import AdminClient

DESIGN: Final = {"leader_epoch": "preserve", "epoch_bump": "proactive"}
_UP_S: Final = 90.0
_REPLICAS: Final = 3
_LOG_LINES: Final = 15


class FaceProcesses:
    """The processes of one destination, in containers, numbered from 1. They mirror nothing until they are asked to."""

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._nodes: dict[int, Node] = {}
        self._numbers = range(1, context.settings.mirror_nodes + 1)

    @property
    def addresses(self) -> Sequence[str]:
        """`host:port` of each on the clients' listener; known before it runs."""
        return [f"{self._context.site.address(number)}:{config.CLIENTS_PORT}" for number in self._numbers]

    def nodes(self) -> list[Node]:
        """Those that were made."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def start(self) -> None:
        """Make those that are missing, start those that do not run, and wait until each answers. MirrorError."""
        for number in self._numbers:
            if number in self._nodes:
                self._nodes[number].unpause()
                self._nodes[number].start()
            else:
                self._nodes[number] = self._make(number)
        try:
            wait_until(self._up, timeout_s=_UP_S, what="the processes to answer", swallow=(MirrorError,))
        except WaitTimeoutError as error:
            raise MirrorError(str(error)) from error

    def start_dead(self) -> list[str]:
        """Start those that are gone; returns one sentence for each."""
        dead = [node for node in self.nodes() if node.state() is NodeState.STOPPED]
        for node in dead:
            node.start()
        return [f"{node.name} was gone and was started again" for node in dead]

    def _up(self) -> bool:
        for number, node in self._nodes.items():
            if node.state() is NodeState.STOPPED:
                raise WaitTimeoutError(f"{node.name} ended by itself: {node.logs(tail=_LOG_LINES)}")
            AdminClient(f"http://{self._context.site.address(number)}:{config.ADMIN_PORT}", timeout_s=5).health()
        return True

    def _make(self, number: int) -> Node:
        site = self._context.site
        settings = self._settings(number)
        return site.make(
            number,
            command=(config.CONFIG_PATH,),
            files={config.CONFIG_PATH: json.dumps(settings, indent=1)},
            environment={},
        )

    def _settings(self, number: int) -> dict[str, Any]:
        context, cluster = self._context, self._context.destination
        membership = context.site.membership(number, cluster.name)
        asked = native_config.parse_options(context.settings.options)
        period = asked.refresh_ms / 1000
        options = config.ReferenceOptions(
            group_sync_s=period,
            config_sync_s=period,
            acl_sync_s=period,
            discovery_s=period,
            state_partitions=asked.state_partitions,
        )
        values = config.process_settings(
            config.Place(host=context.site.address(number), broker_id=membership.broker_id, link=membership.link),
            config.Destination(
                letter=cluster.name,
                brokers=tuple(node.address for node in cluster.brokers.values()),
                controllers=tuple(node.address for node in cluster.controllers.values()),
            ),
            mirror={"name": "unused", "source": context.source.link_bootstrap},
            options=options,
            design=DESIGN,
            replicas=min(_REPLICAS, len(cluster.brokers)),
        )
        return {**values, "mirrors": [], "mirroring_api": True}


class _Joined:
    """A cluster whose bootstrap servers are processes that have joined it."""

    def __init__(self, cluster: Cluster, addresses: Sequence[str]) -> None:
        self._cluster = cluster
        self.bootstrap = ",".join(addresses)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class NativeOnReference(NativeMirror):
    """The native driver; it also starts the processes, which are its nodes."""

    def __init__(self, context: MirrorContext) -> None:
        self._processes = FaceProcesses(context)
        destination = cast("Cluster", _Joined(context.destination, self._processes.addresses))
        super().__init__(replace(context, destination=destination))

    def start(self, topics: Sequence[str]) -> None:
        """The processes first."""
        self._processes.start()
        super().start(topics)

    def nodes(self) -> Sequence[Node]:
        """The processes' containers."""
        return self._processes.nodes()

    def revive(self) -> Sequence[str]:
        """Dead processes first."""
        return [*self._processes.start_dead(), *super().revive()]


def _check(settings: MirrorSettings, _topics: Sequence[str]) -> None:
    native_config.parse_options(settings.options)


@contextmanager
def native_on_reference() -> Iterator[None]:
    """Within it, mirror `native` of whole runs is the driver on the reference mirror's processes and stock brokers."""
    spec = replace(
        REGISTRY["native"],
        check=_check,
        make=NativeOnReference,
        image="reference",
        registers=True,
        in_brokers=False,
        broker_config=lambda _brokers, _options: {},
        format_features={},
        class_in_brokers="",
        version=REGISTRY["reference"].version,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(cast("dict[str, Any]", REGISTRY), "native", spec)
        yield
