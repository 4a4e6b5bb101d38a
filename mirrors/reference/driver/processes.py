"""The processes of a reference mirror under test: their containers, a client for each, and their crash points."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from harness.core.errors import MirrorError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.topology.clusters import Node, NodeState
from mirrors.reference.driver import config
from mirrors.reference.driver.admin_client import AdminClient, MirrorRow
from mirrors.reference.server.steps import CRASHED, RECONCILE, STEPS
from mirrors.site import MirrorContext

_UP_S: Final = 90.0
_REPLICAS: Final = 3
_ANSWER_S: Final = 10.0
_LOG_LINES: Final = 15


class Processes:
    """Every process of one mirror, numbered from 1. Thread-safe; a client belongs to one thread.

    mirror: its name, `A-B`. options: from `--mirror-option`.
    """

    def __init__(self, context: MirrorContext, mirror: str, options: config.ReferenceOptions) -> None:
        self._context = context
        self._mirror = mirror
        self._options = options
        self._crash_at = {options.crash_at} - {""}  # crash points still to be set
        self._crashed: dict[int, set[str]] = {}  # process → steps at which it died
        self._nodes: dict[int, Node] = {}
        self._places: dict[int, config.Place] = {}
        self._clients = threading.local()
        self._lock = threading.RLock()

    def nodes(self) -> list[Node]:
        """Their containers; empty before the first start."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def start(self, topics: Sequence[str]) -> None:
        """Start those that do not run, creating them for these topics if needed; wait until each answers.
        MirrorError."""
        with self._lock:
            for number in range(1, self._context.settings.mirror_nodes + 1):
                if number in self._nodes:
                    self._nodes[number].unpause()
                    self._nodes[number].start()
                else:
                    self._make(number, topics)
            self._await_up()

    def start_dead(self) -> list[str]:
        """Start those that are gone; returns one sentence for each."""
        with self._lock:
            dead = [(number, node) for number, node in self._nodes.items() if node.state() is NodeState.STOPPED]
            for number, node in dead:
                self._note_crash(number)
                node.start()
        return [f"{node.name} was gone and was started again" for _, node in dead]

    def answering(self) -> Iterator[tuple[int, AdminClient]]:
        """Number and client of those that run."""
        for number, node in sorted(self._nodes.items()):
            if node.state() is NodeState.RUNNING:
                yield number, self._client(number)

    def send(self, request: Callable[[AdminClient], object]) -> list[str]:
        """Send a request to each that runs; returns the errors, one sentence each."""
        errors = []
        with self._lock:
            for number, client in self.answering():
                try:
                    request(client)
                except MirrorError as error:
                    errors.append(f"{self._nodes[number].name}: {error}")
        return errors

    def rows(self) -> tuple[list[MirrorRow], list[str]]:
        """Every partition as its owner reports it, and the processes that did not answer."""
        found: dict[tuple[str, int], MirrorRow] = {}
        errors = []
        for number, client in list(self.answering()):
            try:
                rows = client.describe(self._mirror)
            except MirrorError as error:
                errors.append(f"{self._nodes[number].name}: {error}")
                continue
            for row in rows:
                place = (row.topic, row.partition)
                if place not in found or row.owner == self._places[number].broker_id:
                    found[place] = row
        if not self._nodes:
            errors.append("no process was started")
        return [row for _, row in sorted(found.items())], errors

    def crash_at(self, step: str, *, on: bool) -> None:
        """See harness.topology.mirror.Crashable."""
        self._crash_at = self._crash_at | {step} if on else self._crash_at - {step}
        for number, client in list(self.answering()):
            with contextlib.suppress(MirrorError):  # one that does not answer gets it when it is back
                if not on:
                    client.crash_at("")
                elif step.startswith(RECONCILE) and step not in self._crashed.get(number, ()):
                    client.crash_at(step)

    def crashed_at(self, step: str) -> list[Node]:
        """See harness.topology.mirror.Crashable."""
        for number, node in list(self._nodes.items()):
            if node.state() is NodeState.STOPPED:
                self._note_crash(number)
        return [self._nodes[number] for number, steps in list(self._crashed.items()) if step in steps]

    def arm(self, prefix: str) -> None:
        """Set the first crash point among the steps of the request about to be sent; repeated until it was hit."""
        step = next((one for one in STEPS if one in self._crash_at and one.startswith(prefix)), None)
        if step is not None:
            for _, client in self.answering():
                with contextlib.suppress(MirrorError):
                    client.crash_at(step)

    def explain(self) -> str:
        """State and last log lines of each, for a time-out's message."""
        return "; ".join(
            f"{node.name} is {node.state()}: {self._last_words(number)}" for number, node in self._nodes.items()
        )

    def close(self) -> None:
        """Drop this thread's clients."""
        for client in vars(self._clients).values():
            client.close()
        vars(self._clients).clear()

    def _make(self, number: int, topics: Sequence[str]) -> None:
        source, cluster, site = self._context.source, self._context.destination, self._context.site
        membership = site.membership(number, cluster.name)
        place = config.Place(host=site.address(number), broker_id=membership.broker_id, link=membership.link)
        destination = config.Destination(
            letter=cluster.name,
            brokers=tuple(node.address for node in cluster.brokers.values()),
            controllers=tuple(node.address for node in cluster.controllers.values()),
        )
        settings = config.process_settings(
            place,
            destination,
            mirror=config.mirror_config(self._mirror, source.link_bootstrap, topics, self._options),
            options=self._options,
            design=self._context.settings.design,
            replicas=min(_REPLICAS, len(cluster.brokers)),
        )
        self._places[number] = place
        self._nodes[number] = site.make(
            number,
            command=(config.CONFIG_PATH,),
            files={config.CONFIG_PATH: json.dumps(settings, indent=1)},
            environment={},
        )

    def _await_up(self) -> None:
        def up() -> bool:
            for number, node in self._nodes.items():
                if node.state() is NodeState.STOPPED:
                    raise WaitTimeoutError(f"{node.name} ended by itself: {self._last_words(number)}")
                self._client(number).health()
            return True

        what = f"the processes of mirror {self._mirror} to be up"
        try:
            wait_until(up, timeout_s=_UP_S, what=what, swallow=(MirrorError,))
        except WaitTimeoutError as error:
            raise MirrorError(str(error)) from error

    def _note_crash(self, number: int) -> None:
        """A process is gone: its last log lines say at which crash point, if at one."""
        for line in self._nodes[number].logs(tail=_LOG_LINES).splitlines():
            _, found, step = line.partition(f"{CRASHED} ")
            if found:
                self._crashed.setdefault(number, set()).add(step.strip())
                self._crash_at -= {step.strip()}

    def _client(self, number: int) -> AdminClient:
        """This thread's client of a process."""
        mine = vars(self._clients)
        if str(number) not in mine:
            url = f"http://{self._places[number].host}:{config.ADMIN_PORT}"
            mine[str(number)] = AdminClient(url, timeout_s=_ANSWER_S)
        client: AdminClient = mine[str(number)]
        return client

    def _last_words(self, number: int) -> str:
        return " | ".join(self._nodes[number].logs(tail=_LOG_LINES).strip().splitlines())
