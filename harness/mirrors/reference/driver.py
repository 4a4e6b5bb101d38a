"""The reference mirror under test: its processes in containers, driven through their admin API.

A process joins the destination as a broker of its own (from id 100 on) and reaches the source by its link alone. It
cannot see: what a process did between its last answer and its death, but for what the state topic kept.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from harness.clusters.base import Node, NodeState
from harness.errors import MirrorError, WaitTimeoutError
from harness.history.recording import Recorder
from harness.mirrors.base import Capability, Cut, PartitionState, PartitionStatus, Support
from harness.mirrors.driven import DrivenMirror
from harness.mirrors.reference import driver_config as config
from harness.mirrors.reference.admin_client import AdminClient, MirrorRow
from harness.mirrors.reference.driver_events import EventRecorder
from harness.mirrors.reference.state_store import TOPIC as STATE_TOPIC
from harness.mirrors.reference.steps import CRASHED, RECONCILE, START, STEPS, STOP
from harness.mirrors.site import MirrorContext
from harness.wait import wait_until
from harness.wire.client import WireError
from harness.wire.view import ClusterView

_UP_S: Final = 90.0
_CHANGE_S: Final = 90.0  # a start or a stop, restarts of a killed process included
_REPLICAS: Final = 3
_ANSWER_S: Final = 10.0
_LOG_LINES: Final = 15
_ASK_S: Final = 5.0  # a request is sent again, for processes that took over from others
_AGAIN_S: Final = 0.5  # and sooner while some process does not answer
_ASKED: Final = {START: "start", STOP: "stop"}

S = PartitionState


class ReferenceMirror(DrivenMirror):
    """Implements harness.mirrors.base.Mirror. Thread-safe: `describe` may run beside everything else."""

    name = "reference"

    def __init__(self, context: MirrorContext) -> None:
        super().__init__(context)
        self.options = config.parse_options(context.settings.options)
        self.mirror = f"{context.source.name}-{context.destination.name}"
        self._crash_at = {self.options.crash_at} - {""}  # crash points that are to be set
        self._crashed: dict[int, set[str]] = {}  # process → steps at which it died
        self._nodes: dict[int, Node] = {}
        self._clients = threading.local()  # a client belongs to one thread
        self._places: dict[int, config.Place] = {}
        self._topics: list[str] = []
        self._seen: dict[tuple[str, int], PartitionStatus] = {}
        self._events = EventRecorder(self.mirror, destination=context.destination.name)

    def capabilities(self) -> Mapping[Capability, Support]:
        """What it can do with the design that was chosen."""
        design = self._settings.design
        yes = Support(True)
        return {
            Capability.OFFSET_IDENTITY: yes,
            Capability.TOPIC_ID: Support(False, "CreateTopics cannot set a topic ID on stock brokers"),
            Capability.IDENTITY_NAMES: yes,
            Capability.FAILOVER: yes,
            Capability.FAILBACK: yes,
            Capability.GROUP_OFFSETS: yes,
            Capability.ACL_SYNC: Support(
                design.get("acl_sync") != "off", "" if design.get("acl_sync") != "off" else "acl_sync=off"
            ),
            Capability.CONFIG_SYNC: yes,
            Capability.ABORTED_DATA: yes,
            Capability.EXACTLY_ONCE: yes,
            Capability.PID_RESET_HONOURED: Support(False, "stock brokers store the record and ignore it"),
        }

    def topic_on_destination(self, topic: str) -> str:
        """Topics keep their names."""
        return topic

    def start(self, topics: Sequence[str]) -> None:
        """Mirror these topics (again). Returns when every partition is mirrored: what a failback cuts off is gone then.

        Raises: MirrorError with the process's last words, EngineError.
        """
        with self._lock:
            self._topics += [topic for topic in topics if topic not in self._topics]
            for number in range(1, self._settings.mirror_nodes + 1):
                if number in self._nodes:
                    self._nodes[number].unpause()
                    self._nodes[number].start()
                else:
                    self._make(number)
            self._await_up()
        self._until(
            START,
            lambda client: client.start(self.mirror, topics),
            topics,
            done=lambda row: row.state in (S.MIRRORING, S.FAILED),
        )

    def stop(self, topics: Sequence[str]) -> Cut:
        """Stop: the destination's real brokers lead and are writable. The cut is the mirror's own, kept in its states.

        Raises: MirrorError when it does not end in time, naming the partitions.
        """
        rows = self._until(
            STOP, lambda client: client.stop(self.mirror, topics), topics, done=lambda row: row.state == S.STOPPED
        )
        return Cut(
            {
                (row.topic, row.partition): (row.source_offset, row.destination_offset)
                for row in rows
                if row.source_offset is not None and row.destination_offset is not None
            }
        )

    def describe(self) -> Sequence[PartitionStatus]:
        """States and offsets now; UNKNOWN, with the last offsets, where no process answers."""
        rows, errors = self._rows()
        found = {(row.topic, row.partition): _status(row) for row in rows}
        with self._lock:
            silent = "; ".join(errors) or "no process has it"
            for place, last in self._seen.items():
                if place not in found:
                    found[place] = PartitionStatus(
                        topic=last.topic, partition=last.partition, state=S.UNKNOWN, error=silent
                    )
            self._seen.update({place: s for place, s in found.items() if s.state is not S.UNKNOWN})
        return [status for _, status in sorted(found.items())]

    def nodes(self) -> Sequence[Node]:
        """Its containers; empty before the first start."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int | None]:
        """See harness.mirrors.base.Mirror. Judged by what every in-sync replica has, and by the source's own ends."""
        deadline = time.monotonic() + timeout_s
        due = self._ends(topics, deadline)
        missing: dict[tuple[str, int], int | None] = dict.fromkeys(due, None)
        while True:
            rows, _ = self._rows()
            for row in rows:
                end = due.get((row.topic, row.partition))
                if end is not None and row.carried is not None:
                    missing[row.topic, row.partition] = max(0, end - row.carried)
            if not any(lag is None or lag > 0 for lag in missing.values()) or time.monotonic() >= deadline:
                return missing
            time.sleep(0.2)

    def revive(self) -> Sequence[str]:
        """See harness.mirrors.base.Mirror: start dead processes, and FAILED partitions, again."""
        told = self._start_dead()
        failed: dict[str, list[PartitionStatus]] = {}
        for status in self.describe():
            if status.state is S.FAILED:
                failed.setdefault(status.error or "", []).append(status)
        for error, partitions in failed.items():
            names = ", ".join(f"{p.topic}-{p.partition}" for p in partitions)
            told.append(f"the mirror had given up on {names}, so it was started again there: {error}")
            self._send(partial(self._start_again, topics=sorted({p.topic for p in partitions})))
        return told

    def _start_again(self, client: AdminClient, topics: Sequence[str]) -> None:
        client.start(self.mirror, topics)

    def own_topics(self) -> Sequence[str]:
        """See harness.mirrors.base.KeepsTopics."""
        return (STATE_TOPIC,)

    def crash_at(self, step: str, *, on: bool = True) -> None:
        """See harness.mirrors.base.Crashable. Set with the request whose steps it is one of; those of a cut at once."""
        self._crash_at = self._crash_at | {step} if on else self._crash_at - {step}
        for number, client in list(self._answering()):
            with contextlib.suppress(MirrorError):  # one that does not answer has none, and gets it when it is back
                if not on:
                    client.crash_at("")
                elif step.startswith(RECONCILE) and step not in self._crashed.get(number, ()):
                    client.crash_at(step)

    def crashed_at(self, step: str) -> Sequence[Node]:
        """See harness.mirrors.base.Crashable."""
        for number, node in list(self._nodes.items()):
            if node.state() is NodeState.STOPPED:
                self._note_crash(number)
        return [self._nodes[number] for number, steps in list(self._crashed.items()) if step in steps]

    def record_changes(self, recorder: Recorder) -> None:
        """See harness.mirrors.base.Mirror: what the processes' audit logs tell."""
        with self._lock:
            for number, client in self._answering():
                with contextlib.suppress(MirrorError):
                    self._events.record(number, client, recorder)

    def close(self) -> None:
        """Drop this thread's clients."""
        for client in vars(self._clients).values():
            client.close()
        vars(self._clients).clear()

    # --- processes ---------------------------------------------------------------------------------------------

    def _make(self, number: int) -> None:
        membership = self._site.membership(number, self.destination)
        place = config.Place(host=self._site.address(number), broker_id=membership.broker_id, link=membership.link)
        destination = config.Destination(
            letter=self.destination,
            brokers=tuple(node.address for node in self._destination.brokers.values()),
            controllers=tuple(node.address for node in self._destination.controllers.values()),
        )
        settings = config.process_settings(
            place,
            destination,
            mirror=config.mirror_config(self.mirror, self._source.link_bootstrap, self._topics, self.options),
            options=self.options,
            design=self._settings.design,
            replicas=min(_REPLICAS, len(self._destination.brokers)),
        )
        self._places[number] = place
        self._nodes[number] = self._site.make(
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

        try:
            wait_until(
                up, timeout_s=_UP_S, what=f"the processes of mirror {self.mirror} to be up", swallow=(MirrorError,)
            )
        except WaitTimeoutError as error:
            raise MirrorError(str(error)) from error

    def _start_dead(self) -> list[str]:
        """Start processes that are gone; returns what was done."""
        with self._lock:
            found = [(number, node) for number, node in self._nodes.items() if node.state() is NodeState.STOPPED]
            dead = [node for _, node in found]
            for number, node in found:
                self._note_crash(number)
                node.start()
        return [f"{node.name} was gone and was started again" for node in dead]

    def _note_crash(self, number: int) -> None:
        """A process is gone: at which crash point, if at one, its last words say."""
        for line in self._nodes[number].logs(tail=_LOG_LINES).splitlines():
            _, found, step = line.partition(f"{CRASHED} ")
            if found:
                self._crashed.setdefault(number, set()).add(step.strip())
                self._crash_at -= {step.strip()}

    def _arm(self, prefix: str) -> None:
        """Set the first crash point among the steps of the request that is to be sent. It is set anew until it hit."""
        step = next((one for one in STEPS if one in self._crash_at and one.startswith(prefix)), None)
        if step is not None:
            for _, client in self._answering():
                with contextlib.suppress(MirrorError):
                    client.crash_at(step)

    def _client(self, number: int) -> AdminClient:
        """This thread's client of a process."""
        mine = vars(self._clients)
        if str(number) not in mine:
            url = f"http://{self._places[number].host}:{config.ADMIN_PORT}"
            mine[str(number)] = AdminClient(url, timeout_s=_ANSWER_S)
        client: AdminClient = mine[str(number)]
        return client

    def _answering(self) -> Iterator[tuple[int, AdminClient]]:
        """Clients of the processes that run."""
        for number, node in sorted(self._nodes.items()):
            if node.state() is NodeState.RUNNING:
                yield number, self._client(number)

    # --- requests ----------------------------------------------------------------------------------------------

    def _send(self, request: Callable[[AdminClient], object]) -> list[str]:
        """Ask every process that runs; returns the errors, one sentence each."""
        errors = []
        with self._lock:
            for number, client in self._answering():
                try:
                    request(client)
                except MirrorError as error:
                    errors.append(f"{self._nodes[number].name}: {error}")
        return errors

    def _until(
        self,
        prefix: str,
        request: Callable[[AdminClient], object],
        topics: Sequence[str],
        *,
        done: Callable[[MirrorRow], bool],
    ) -> list[MirrorRow]:
        """Ask until every partition of these topics is where it was asked to be; a process that died is started."""
        deadline = time.monotonic() + _CHANGE_S
        errors: list[str] = []
        asked_at = 0.0
        while True:
            restarted = self._start_dead()
            if restarted or time.monotonic() - asked_at > (_AGAIN_S if errors else _ASK_S):
                self._arm(prefix)
                errors = self._send(request)
                asked_at = time.monotonic()
            rows, silent = self._rows()
            wanted = [row for row in rows if row.topic in topics]
            whole = {row.topic for row in wanted} >= set(topics) and not silent
            if whole and all(done(row) for row in wanted):
                return wanted
            if time.monotonic() >= deadline:
                late = (
                    ", ".join(f"{r.topic}-{r.partition} is {r.state}" for r in wanted if not done(r))
                    or "no partition known"
                )
                raise MirrorError(
                    f"mirror {self.mirror} did not {_ASKED[prefix]} within {_CHANGE_S:g} s: "
                    + "; ".join([*errors, *silent, late])
                )
            time.sleep(0.2)

    def _rows(self) -> tuple[list[MirrorRow], list[str]]:
        """Every partition as its owner tells it, and what did not answer."""
        found: dict[tuple[str, int], MirrorRow] = {}
        errors = []
        for number, client in list(self._answering()):
            try:
                rows = client.describe(self.mirror)
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

    def _ends(self, topics: Sequence[str], deadline: float) -> dict[tuple[str, int], int]:
        """What is due: the source's last stable offsets or high watermarks, as the design fetches."""
        stable = self._settings.design.get("fetch_limit", "last_stable") == "last_stable"
        view = ClusterView(self._source.bootstrap)
        found: dict[tuple[str, int], int] = {}
        try:
            while True:
                with contextlib.suppress(WireError):
                    ends = view.leader_ends(topics, read_committed=stable)
                    found.update({place: end for place, end in ends.items() if end is not None})
                    if all(end is not None for end in ends.values()) and {t for t, _ in ends} >= set(topics):
                        return found
                if time.monotonic() >= deadline:
                    return found
                time.sleep(0.2)
        finally:
            view.close()

    def _explain(self) -> str:
        states = [f"{s.topic}-{s.partition} {s.state} {s.error or ''}".strip() for s in self.describe()]
        words = "; ".join(f"{node.name} is {node.state()}: {self._last_words(n)}" for n, node in self._nodes.items())
        return f"states: {', '.join(states[:8]) or 'none'}; {words}"

    def _last_words(self, number: int) -> str:
        return " | ".join(self._nodes[number].logs(tail=_LOG_LINES).strip().splitlines()[-_LOG_LINES:])


def _status(row: MirrorRow) -> PartitionStatus:
    return PartitionStatus(
        topic=row.topic,
        partition=row.partition,
        state=PartitionState(row.state),
        source_offset=row.source_offset,
        destination_offset=row.destination_offset,
        lag=row.lag,
        error=row.error or None,
    )
