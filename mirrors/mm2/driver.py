"""MirrorMaker 2 in dedicated mode as the mirror under test.

Its processes run in containers of their own and reach both clusters by the links' bootstrap addresses only. Its state
is read from its internal topics on the destination, over the clients' listener: source positions, task states and
task assignments.

It cannot see: a task that hangs without failing (its lag shows it), and positions between two flushes of an
at-least-once mirror (they are reported late, never early).
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException

from harness.core.errors import MirrorError
from harness.history.recording import Recorder
from harness.topology.clusters import Node, NodeState
from harness.topology.mirror import Capability, Cut, PartitionState, PartitionStatus, Support
from mirrors.driven import DrivenMirror
from mirrors.mm2 import config
from mirrors.mm2.checkpoints import CheckpointReader
from mirrors.mm2.process import end_process, logged_errors
from mirrors.mm2.state import internal_topic
from mirrors.mm2.watch import Mm2Watch
from mirrors.site import MirrorContext

CONFIG_PATH: Final = "/etc/shatterproof/mm2.properties"
_HEAP: Final = "-Xms64m -Xmx384m"


class Mm2Mirror(DrivenMirror):
    """Implements harness.topology.mirror.Mirror. Thread-safe: `describe` may run concurrently with everything else."""

    name = "mm2"

    def __init__(self, context: MirrorContext) -> None:
        super().__init__(context)
        self.options = config.parse_options(context.settings.contract, context.settings.options)
        self._nodes: dict[int, Node] = {}
        self._topics: list[str] = []  # being mirrored, in the order they came
        self._stopped: dict[str, Cut] = {}  # topics that were stopped, with their cuts
        self._watch = self._new_watch()
        self._checkpoints: CheckpointReader | None = None  # made when it is first needed

    def capabilities(self) -> Mapping[Capability, Support]:
        """What MM2 as configured can do."""
        options = self.options
        own_offsets = "MM2 produces the records again: offsets, producer ids and batch timestamps are its own"
        return {
            Capability.OFFSET_IDENTITY: Support(False, own_offsets),
            Capability.TOPIC_ID: Support(False, "MM2 creates topics by name; the destination picks their IDs"),
            Capability.IDENTITY_NAMES: _when(options.identity_names, "identity_names=false"),
            Capability.FAILOVER: Support(True, "by ending the process; until then MM2 does not prevent writes"),
            Capability.FAILBACK: Support(
                False, "failing back takes another mirror; nothing is truncated on the source"
            ),
            Capability.GROUP_OFFSETS: _when(options.group_offsets, "group_offsets=false"),
            Capability.ACL_SYNC: Support(False, "off: sync.topic.acls.enabled is false"),
            Capability.CONFIG_SYNC: _when(options.config_sync, "config_sync=false"),
            Capability.ABORTED_DATA: Support(
                not options.read_committed,
                "aborted records are copied as plain ones, without markers"
                if not options.read_committed
                else "a read_committed source consumer drops aborted records and all markers",
            ),
            Capability.EXACTLY_ONCE: _when(options.exactly_once, f"contract {self._settings.contract}"),
            Capability.PID_RESET_HONOURED: Support(False, own_offsets),
            Capability.CUT_BY_EPOCH: Support(False, own_offsets),
        }

    def topic_on_destination(self, topic: str) -> str:
        """The mirrored topic's name: the same, or `A.topic` with MM2's default names."""
        return config.remote_name(topic, self.options, source=self.source)

    def start(self, topics: Sequence[str]) -> None:
        """Mirror these topics (too). Returns when the processes run, not when records flow.

        Raises: UsageError for topics that MM2 never mirrors, MirrorError and ClusterError when a process does not run.
        """
        config.check_topics(topics, self.options, source=self.source, destination=self.destination)
        with self._lock:
            new = [topic for topic in topics if topic not in self._topics]
            self._topics += new
            for topic in topics:
                self._stopped.pop(topic, None)
            if not self._topics:
                raise MirrorError("mm2 was started without topics; name at least one")
            if new and self._nodes:
                self._reconfigure()
            for number in range(1, self._settings.mirror_nodes + 1):
                if number in self._nodes:
                    self._nodes[number].unpause()
                    self._nodes[number].start()
                else:
                    self._nodes[number] = self._make(number)

    def stop(self, topics: Sequence[str]) -> Cut:
        """Stop the processes (gracefully within 20 s, then by SIGKILL) and read their last positions.

        The cut's source offset is the next one MM2 would have copied, as it stored it: exact when the shutdown was
        graceful or the mirror is exactly-once; after a kill of an at-least-once mirror the destination may hold a
        little more. 0 where nothing was ever copied. With some topics left, MM2 starts again for these.

        Raises: MirrorError when the positions cannot be read from the destination.
        """
        with self._lock:
            for node in self._nodes.values():
                end_process(node)
            cut = self._watch.cut(topics)
            for topic in topics:
                self._stopped[topic] = cut
            self._topics = [topic for topic in self._topics if topic not in topics]
            if self._topics and self._nodes:
                self._forget_tasks()
                self._reconfigure()
                for node in self._nodes.values():
                    node.start()
            return cut

    def describe(self) -> Sequence[PartitionStatus]:
        """States and offsets now, bounded to some seconds also while clusters are broken.

        `lag` counts source offsets, so markers and aborted records add to it while records flow; an idle partition
        is counted exactly.
        """
        with self._lock:
            dead = self._dead()
            return [
                *self._watch.describe(self._topics, process_error=dead),
                *self._watch.stopped(self._stopped),
            ]

    def nodes(self) -> Sequence[Node]:
        """MM2's containers; empty before the first start."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[tuple[str, int], int | None]:
        """See harness.topology.mirror.Mirror. Judged by MM2's stored positions and the source's readable records."""
        watch = self._new_watch()  # its own, so that `describe` still works meanwhile
        try:
            return watch.await_caught_up(topics, timeout_s=timeout_s)
        finally:
            watch.close()

    def revive(self) -> Sequence[str]:
        """See harness.topology.mirror.Mirror. A failed task of MM2 stays failed until its process restarts."""
        failed: dict[str, list[str]] = {}
        for status in self.describe():
            if status.state is PartitionState.FAILED:
                failed.setdefault(status.error or "", []).append(f"{status.topic}-{status.partition}")
        if not failed:
            return []
        with self._lock:
            for node in self._nodes.values():
                end_process(node)
            for node in self._nodes.values():
                node.start()
        return [
            f"a task of mm2 had given up on {', '.join(partitions)}, so mm2 was started again: {error}"
            for error, partitions in failed.items()
        ]

    def record_changes(self, recorder: Recorder) -> None:
        """See harness.topology.mirror.Mirror: the checkpoints that MM2 wrote. It reports nothing else."""
        if not self.options.group_offsets:
            return
        with self._lock:
            if self._checkpoints is None:
                bootstrap, destination = self._destination.bootstrap, self.destination
                self._checkpoints = CheckpointReader(bootstrap, source=self.source, destination=destination)
            self._checkpoints.record(recorder)

    def close(self) -> None:
        """Drop the driver's own clients."""
        with self._lock:
            self._watch.close()
            if self._checkpoints is not None:
                self._checkpoints.close()
                self._checkpoints = None

    def _new_watch(self) -> Mm2Watch:
        return Mm2Watch(
            source=self._source,
            destination=self._destination,
            read_committed=self.options.read_committed,
            to_destination=self.topic_on_destination,
        )

    def _config_text(self, number: int) -> str:
        return config.render(
            config.mm2_properties(
                self.options,
                self._topics,
                source=self.source,
                destination=self.destination,
                source_bootstrap=self._source.link_bootstrap,
                destination_bootstrap=self._destination.link_bootstrap,
                source_brokers=len(self._source.brokers),
                destination_brokers=len(self._destination.brokers),
                mirror_nodes=self._settings.mirror_nodes,
                rest_host=self._site.address(number),
            )
        )

    def _make(self, number: int) -> Node:
        return self._site.make(
            number,
            command=("mirror", CONFIG_PATH),
            files={CONFIG_PATH: self._config_text(number)},
            environment={"KAFKA_HEAP_OPTS": _HEAP},
        )

    def _reconfigure(self) -> None:
        """Give every process the new topic list, and leave all of them stopped."""
        for number, node in self._nodes.items():
            node.start()
            text = base64.b64encode(self._config_text(number).encode()).decode()
            result = node.exec(["sh", "-c", f"echo {text} | base64 -d > {CONFIG_PATH}"])
            if result.exit_code:
                raise MirrorError(f"{node.name}: {CONFIG_PATH} cannot be written: {result.output.strip()}")
            node.kill()  # at once: with the old list it must not get to its first record

    def _forget_tasks(self) -> None:
        """Delete the topic that holds the tasks' configurations; MM2 recreates it when it starts.

        Otherwise the old tasks run until the new configuration has spread, and copy records beyond the cut.
        """
        topic = internal_topic("configs", self.source)
        try:
            for future in self._destination.admin().delete_topics([topic], operation_timeout=15).values():
                future.result(20)
        except (KafkaException, TimeoutError) as error:
            raise MirrorError(
                f"{topic} on cluster {self.destination} cannot be deleted, so MM2 was not started again for "
                f"{', '.join(self._topics)}: {error}"
            ) from error
        self._watch.close()
        self._watch = self._new_watch()

    def _dead(self) -> str | None:
        """Why nothing can be mirrored now, when no process runs."""
        states = {node.name: node.state() for node in self._nodes.values()}
        if not states:
            return "mm2 was not started"
        if NodeState.RUNNING in states.values():
            return None
        return "no mirror process runs: " + ", ".join(f"{name} is {state}" for name, state in states.items())

    def _explain(self) -> str:
        """The mirror's own status, for a time-out's message."""
        found = "; ".join(
            f"{s.topic}-{s.partition} is {s.state}" + (f" ({s.error})" if s.error else "")
            for s in list(self.describe())[:4]
        )
        errors = []
        for node in self.nodes():
            with contextlib.suppress(Exception):
                errors += logged_errors(node.logs(tail=2000))
        return f"the mirror says: {found or 'nothing'}" + (f"; its log: {' | '.join(errors[-3:])}" if errors else "")


def _when(there: bool, why: str) -> Support:
    return Support(True) if there else Support(False, why)
