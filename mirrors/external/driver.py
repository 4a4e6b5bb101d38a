"""Any mirror that can be started as a container or by commands, described in a TOML file (docs/external.md).

`start`, `stop` and `describe` are the user's own; states and offsets are those that `describe` prints. The cut is what
it prints after `stop`, once every partition is STOPPED. Where it prints nothing, states are UNKNOWN and no cut is
known: then records that the mirror had not copied when it was stopped count as lag as far as the history shows it. It
cannot see whether the output of `describe` is true.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.core.errors import MirrorError, RequestRefusedError, ShatterError
from harness.history.recording import Recorder
from harness.topology.clusters import Node
from harness.topology.mirror import Capability, Cut, PartitionState, PartitionStatus, Support
from harness.wire.client import WireError
from harness.wire.view import ClusterView
from mirrors.driven import DrivenMirror
from mirrors.external.config import CONFIG, KAFKA_IMAGE, Container, ExternalConfig, filled, read_config
from mirrors.mm2.process import end_process
from mirrors.site import MirrorContext
from mirrors.tail import TailReader

_COMMAND_S: Final = 60.0
_POLL_S: Final = 1.0
_STOP_S: Final = 60.0  # for partitions to be described as stopped after the command has ended

Partition = tuple[str, int]


class ExternalMirror(DrivenMirror):
    """Implements harness.topology.mirror.Mirror."""

    name = "external"

    def __init__(self, context: MirrorContext) -> None:
        super().__init__(context)
        settings = context.settings
        self.config: ExternalConfig = read_config(settings.options, settings.texts)
        self._path = settings.options[CONFIG]
        self._topics: list[str] = []
        self._known: list[Partition] = []
        self._nodes: list[Node] = []
        self._process: subprocess.Popen[bytes] | None = None

    def capabilities(self) -> Mapping[Capability, Support]:
        """As the file declares them."""
        return {
            capability: Support(self.config.capabilities.get(capability, False), f"declared in {self._path}")
            for capability in Capability
        }

    def topic_on_destination(self, topic: str) -> str:
        """The file's `topic-prefix` and the name."""
        return filled(self.config.topic_prefix, self._values()) + topic

    def start(self, topics: Sequence[str]) -> None:
        """Start the containers or the command. Raises: MirrorError."""
        with self._lock:
            self._topics += [topic for topic in topics if topic not in self._topics]
            if self.config.container is None:
                self._start_command()
                return
            for node in self._nodes:
                node.unpause()
                node.start()
            while len(self._nodes) < self.config.nodes:
                self._nodes.append(self._make(self.config.container, len(self._nodes) + 1))

    def _make(self, container: Container, number: int) -> Node:
        values = self._values(number)
        return self._site.make(
            number,
            command=[filled(part, values) for part in container.command],
            files={path: filled(text, values) for path, text in container.files.items()},
            environment={name: filled(text, values) for name, text in container.environment.items()},
            image=None if container.image == KAFKA_IMAGE else container.image,
            entry_point=container.entry_point,
        )

    def stop(self, topics: Sequence[str]) -> Cut:
        """Stop it; the cut is what `describe` reports afterwards. Where it cannot be asked any more, because it runs in
        the container that was ended, and there is no `stop` command, it is what it reports before.

        Raises: RequestRefusedError when the command `stop` fails, with what it printed; MirrorError when it succeeds
        and `describe` still shows a partition in another state than STOPPED after a minute.
        """
        with self._lock:
            seen = self._described()
            if self.config.stop:
                self._ask_to_stop()
                seen = self._await_stopped(topics)
            self._end()
            if not self.config.stop and not self._nodes:
                seen = self._described()
            return Cut(
                {
                    (s.topic, s.partition): (s.source_offset, s.destination_offset)
                    for s in seen
                    if s.topic in topics and s.source_offset is not None and s.destination_offset is not None
                }
            )

    def _ask_to_stop(self) -> None:
        try:
            self._run(self.config.stop)
        except MirrorError as error:
            raise RequestRefusedError(str(error)) from error

    def _await_stopped(self, topics: Sequence[str]) -> Sequence[PartitionStatus]:
        """What `describe` shows once it shows nothing of these topics but STOPPED (or UNKNOWN)."""
        deadline = time.monotonic() + _STOP_S
        while True:
            seen = [s for s in self._described() if s.topic in topics]
            going = [s for s in seen if s.state not in (PartitionState.STOPPED, PartitionState.UNKNOWN)]
            if not going and (seen or not self.config.describe):
                return seen
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        if not going:  # it describes nothing any more: then no cut is known
            return []
        names = ", ".join(f"{s.topic}-{s.partition} is {s.state}" for s in going[:8])
        raise MirrorError(f"{self._path}: `stop` was accepted, and {_STOP_S:g} s later {names}")

    def _described(self) -> Sequence[PartitionStatus]:
        """What `describe` shows; nothing where it cannot be asked."""
        try:
            return self.describe()
        except ShatterError:
            return []

    def _end(self) -> None:
        for node in self._nodes:
            end_process(node)
        if self._process is not None:
            self._end_command(self._process)

    def describe(self) -> Sequence[PartitionStatus]:
        """What the file's `describe` prints: a JSON list of rows; without it every partition's state is UNKNOWN.

        Raises: MirrorError where it prints something else.
        """
        if not self.config.describe:
            return [PartitionStatus(topic=t, partition=p, state=PartitionState.UNKNOWN) for t, p in self._partitions()]
        text = self._run(self.config.describe)
        try:
            rows = json.loads(text)
            return [_status(row) for row in rows]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MirrorError(
                f"{self._path}: `describe` must print a JSON list of objects with topic, partition and state; "
                f"it printed {text.strip()[:120]!r} ({error})"
            ) from error

    def nodes(self) -> Sequence[Node]:
        """The containers, if it has any."""
        return list(self._nodes)

    def await_caught_up(self, topics: Sequence[str], *, timeout_s: float) -> Mapping[Partition, int | None]:
        """See harness.topology.mirror.Mirror. Judged by the readable records of both clusters."""
        deadline = time.monotonic() + timeout_s
        due = self._counts(self._source.bootstrap, topics, timeout_s=timeout_s)
        missing: dict[Partition, int | None] = dict.fromkeys(due, None)
        while time.monotonic() < deadline:
            left = max(1.0, deadline - time.monotonic())
            names = {self.topic_on_destination(topic): topic for topic in topics}
            there = self._counts(self._destination.bootstrap, list(names), timeout_s=left)
            arrived = {(names[topic], partition): count for (topic, partition), count in there.items()}
            missing = {
                place: max(0, count - arrived[place]) if place in arrived else None for place, count in due.items()
            }
            if missing and not any(lag is None or lag for lag in missing.values()):
                break
            time.sleep(_POLL_S)
        return missing

    def revive(self) -> Sequence[str]:
        """See harness.topology.mirror.Mirror. Partitions that are not reported as FAILED are left alone."""
        failed = [s for s in self.describe() if s.state is PartitionState.FAILED]
        if not failed or not self._nodes:
            return []
        for node in self._nodes:
            end_process(node)
            node.start()
        names = ", ".join(f"{s.topic}-{s.partition}" for s in failed)
        return [f"the mirror had given up on {names}, so it was started again: {failed[0].error or 'no reason given'}"]

    def record_changes(self, recorder: Recorder) -> None:
        """See harness.topology.mirror.Mirror. Records nothing."""

    def close(self) -> None:
        """Stop a command that still runs."""
        if self._process is not None:
            self._end_command(self._process)

    def _values(self, number: int = 1) -> dict[str, str]:
        return {
            "source": self.source,
            "destination": self.destination,
            "source_bootstrap": self._source.link_bootstrap,
            "destination_bootstrap": self._destination.link_bootstrap,
            "topics": ",".join(self._topics),
            "address": self._site.address(number),
            "number": str(number),
        }

    def _partitions(self) -> list[Partition]:
        """The source's partitions of the topics; those of the last answer when no broker answers."""
        with self._lock:
            view = ClusterView(self._source.bootstrap)
            try:
                self._known = sorted((p.topic, p.partition) for p in view.metadata(self._topics).partitions())
            except WireError:
                pass
            finally:
                view.close()
            return self._known

    def _counts(self, bootstrap: str, topics: Sequence[str], *, timeout_s: float) -> dict[Partition, int]:
        """Readable records of each partition."""
        view = ClusterView(bootstrap)
        reader = TailReader(bootstrap, isolation="read_committed")
        try:
            ends = view.leader_ends(topics, read_committed=True)
            ranges = {place: (0, end) for place, end in ends.items() if end is not None}
            return {place: count for place, (count, _) in reader.count(ranges, timeout_s=timeout_s).items()}
        except WireError:
            return {}
        finally:
            reader.close()
            view.close()

    def _start_command(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        command = [filled(part, self._values()) for part in self.config.start]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise MirrorError(f"{self._path}: `start` {command[0]!r} cannot be run: {error}") from error

    @staticmethod
    def _end_command(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)

    def _run(self, command: Sequence[str]) -> str:
        """A command's output: in the container if there is one, else on this machine. Raises: MirrorError."""
        words = [filled(part, self._values()) for part in command]
        if self._nodes:
            done = self._nodes[0].exec(words, timeout_s=_COMMAND_S)
            code, output = done.exit_code, done.output
        else:
            try:
                local = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise MirrorError(f"{self._path}: {words[0]!r} cannot be run: {error}") from error
            code, output = local.returncode, local.stdout or local.stderr
        if code != 0:
            raise MirrorError(f"{self._path}: {' '.join(words)!r} ended with {code}: {output.strip()[-200:]}")
        return output

    def _explain(self) -> str:
        states = ", ".join(
            f"{s.topic}-{s.partition} {s.state}" + (f" ({s.error})" if s.error else "") for s in self._described()[:8]
        )
        if self._nodes:
            runs = "; ".join(f"{node.name} is {node.state()}: {node.logs(tail=5).strip()}" for node in self._nodes)
        else:
            runs = f"command {'runs' if self._process and self._process.poll() is None else 'has ended'}"
        return f"described: {states or 'nothing'}; {runs}"


def _status(row: Mapping[str, Any]) -> PartitionStatus:
    return PartitionStatus(
        topic=str(row["topic"]),
        partition=int(row["partition"]),
        state=PartitionState(row["state"]),
        source_offset=row.get("source_offset"),
        destination_offset=row.get("destination_offset"),
        lag=row.get("lag"),
        error=row.get("error"),
    )
