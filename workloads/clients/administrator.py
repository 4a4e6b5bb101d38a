"""An administrator among the clients: makes the changes of its plan, records them, and takes snapshots of all clusters.

One thread makes changes and snapshots one after the other, and waits for a change to be visible on every broker, so
that each snapshot includes the changes before it. A change is retried until it is acknowledged: all of them are
idempotent. One that is not acknowledged when the load ends is `info`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from harness.evidence.admin_snapshots import snapshot_acls, snapshot_configs
from harness.evidence.snapshots import LOAD_SNAPSHOT
from harness.history.ops import Action, F, OpRecord, OpType
from harness.history.recording import Recorder
from harness.wire.administration import Administrator
from harness.wire.client import WireError
from workloads.admin_plan import Act
from workloads.base import Endpoint
from workloads.clients.control import StopSignal, Tally

ACTOR: Final = "admin"
_PAUSE_S: Final = 0.25  # between two changes
_SNAPSHOT_INTERVAL_S: Final = 1.0  # between two rounds of snapshots
_RETRY_S: Final = 0.5


class AdministratorClient:
    """Implements workloads.clients.load.Client. clusters: all that snapshots are taken of, by letter."""

    def __init__(
        self,
        *,
        process: str,
        clusters: Mapping[str, Endpoint],
        acts: Iterator[Act],
        recorder: Recorder,
        stop: StopSignal,
    ) -> None:
        self.tally = Tally(cluster=next(iter(clusters)))
        self._process = process
        self._clusters = dict(clusters)
        self._acts = acts
        self._recorder = recorder
        self._stop = stop
        self._admins: dict[str, Administrator] = {}

    def run(self) -> None:
        """See Client."""
        self._admins = {letter: Administrator(endpoint.bootstrap) for letter, endpoint in self._clusters.items()}
        snapshot_at = float("-inf")
        try:
            self._snapshot()
            for act in self._acts:
                if self._stop.wait(_PAUSE_S):
                    return
                self._do(act)
                if time.monotonic() - snapshot_at >= _SNAPSHOT_INTERVAL_S:
                    self._snapshot()
                    snapshot_at = time.monotonic()
        finally:
            for admin in self._admins.values():
                admin.close()

    def _topic(self, act: Act) -> str:
        return self._clusters[act.cluster].topic_names.get(act.topic, act.topic)

    def _do(self, act: Act) -> None:
        topic = self._topic(act)
        target = (OpRecord(Action.TARGET, topic, None, value=act.value),)
        index = self._recorder.invoke(self._process, act.f, cluster=act.cluster, client=ACTOR, records=target)
        error = self._until_done(act, topic)
        if error is not None:
            self._recorder.complete(index, OpType.INFO, records=target, error="UNCONFIRMED", error_text=error)
            return
        self._recorder.complete(index, OpType.OK, records=target)
        self._row(act, topic)
        self._await_shown(act, topic)

    def _until_done(self, act: Act, topic: str) -> str | None:
        """Retry until it is acknowledged; returns the last error when the load ends before."""
        change = self._change(act, topic)
        while True:
            try:
                change()
            except WireError as error:
                if self._stop.wait(_RETRY_S):
                    return str(error)
            else:
                return None

    def _change(self, act: Act, topic: str) -> Callable[[], None]:
        admin = self._admins[act.cluster]
        if act.binding is None:
            return lambda: admin.alter(topic, act.entries)
        binding = act.binding
        return (lambda: admin.create([binding])) if act.f is F.ACL_CREATE else (lambda: admin.delete([binding]))

    def _row(self, act: Act, topic: str) -> None:
        common = {"cluster": act.cluster, "actor": ACTOR}
        if act.binding is not None:
            event = act.f.removeprefix("acl_")
            self._recorder.row("acls", **common, event=event, binding=act.binding.line())
            return
        for name, value in act.entries.items():
            self._recorder.row("configs", **common, event="alter", topic=topic, name=name, value=value)

    def _await_shown(self, act: Act, topic: str) -> None:
        admin = self._admins[act.cluster]
        if act.binding is None:
            admin.await_config(topic, act.entries)
        elif act.f is F.ACL_CREATE:
            admin.await_bindings(there=[act.binding])
        else:
            admin.await_bindings(gone=[act.binding])

    def _snapshot(self) -> None:
        """Take a snapshot; what fails now is left to the next one, or the run's last."""
        for letter, admin in self._admins.items():
            topics = list(self._clusters[letter].topic_names.values())
            snapshot_configs(letter, admin, topics, self._recorder, look=LOAD_SNAPSHOT)
            snapshot_acls(letter, admin, self._recorder, look=LOAD_SNAPSHOT)
