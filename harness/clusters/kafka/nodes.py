"""One container as a node: every action is bounded, and confirmed by inspecting the container afterwards.

iptables rules and other settings of a node's network namespace vanish when it stops: `start` begins with a clean one.
Data (a named volume) and the address stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import docker.errors
import requests

from harness.clusters.docker import labels as label
from harness.clusters.docker import transfer
from harness.clusters.docker.clients import DockerClients, explain
from harness.clusters.docker.exec import run_bounded
from harness.clusters.docker.obituary import obituary
from harness.core.errors import ClusterError
from harness.core.wait import wait_until
from harness.topology.clusters import ExecResult, NodeRole, NodeState

T = TypeVar("T")

CONFIRM_S = 20.0


class ContainerNode:
    """Implements `harness.topology.clusters.Node` for a container of the engine."""

    def __init__(
        self,
        *,
        clients: DockerClients,
        container: str,
        run_labels: Mapping[str, str],
        tools_image: str,
        name: str,
        cluster: str,
        role: NodeRole,
        node_id: int,
        address: str,
    ) -> None:
        self._clients = clients
        self._container = container
        self._run_labels = dict(run_labels)
        self._tools_image = tools_image
        self._name = name
        self._cluster = cluster
        self._role = role
        self._node_id = node_id
        self._address = address

    def __repr__(self) -> str:
        return f"<node {self._name} at {self._address}>"

    @property
    def name(self) -> str:
        """Short name within the run."""
        return self._name

    @property
    def cluster(self) -> str:
        """`A`, `B`, …, `mirror` or `link`."""
        return self._cluster

    @property
    def role(self) -> NodeRole:
        """What it is for."""
        return self._role

    @property
    def node_id(self) -> int:
        """Kafka node id, or the process's number."""
        return self._node_id

    @property
    def address(self) -> str:
        """Its fixed IPv4 address."""
        return self._address

    @property
    def container(self) -> str:
        """Name of the container in the engine."""
        return self._container

    def inspect(self) -> dict[str, Any] | None:
        """The engine's description of the container; None when there is none. Raises ClusterError."""
        try:
            found: dict[str, Any] = self._clients.api.inspect_container(self._container)
        except docker.errors.NotFound:
            return None
        except (docker.errors.APIError, requests.RequestException) as error:
            raise ClusterError(f"{self._name}: the engine does not say its state: {explain(error)}") from error
        return found

    def state(self) -> NodeState:
        """The engine's state of it now."""
        found = self.inspect()
        if found is None:
            return NodeState.ABSENT
        state = found["State"]
        if state.get("Paused"):
            return NodeState.PAUSED
        return NodeState.RUNNING if state.get("Running") else NodeState.STOPPED

    def exit_code(self) -> int | None:
        """Exit code of a stopped container; None while it runs or is absent."""
        found = self.inspect()
        return int(found["State"]["ExitCode"]) if found and not found["State"]["Running"] else None

    def pause(self) -> None:
        """Freeze every process. No error if it is paused. Raises ClusterError if it is stopped."""
        if self.state() is not NodeState.PAUSED:
            self._call("pause", lambda: self._clients.api.pause(self._container))
        self._confirm(NodeState.PAUSED)

    def unpause(self) -> None:
        """Thaw. No error if it is not paused."""
        if self.state() is not NodeState.PAUSED:
            return
        self._call("unpause", lambda: self._clients.api.unpause(self._container))
        wait_until(
            lambda: self.state() is not NodeState.PAUSED,
            timeout_s=CONFIRM_S,
            what=f"{self._name} to be thawed",
            interval_s=0.02,
        )

    def signal(self, name: Literal["SIGSTOP", "SIGCONT", "SIGKILL", "SIGTERM", "SIGQUIT"]) -> None:
        """Send a signal to the main process; for SIGSTOP and SIGCONT wait until its process state shows it.

        SIGKILL waits for the stop like `kill`. SIGTERM and SIGQUIT return when they are sent.
        Raises ClusterError if it does not run.
        """
        if name == "SIGKILL":
            self.kill()
            return
        self._call(f"send {name}", lambda: self._clients.api.kill(self._container, signal=name))
        if name in ("SIGSTOP", "SIGCONT"):
            stopped = name == "SIGSTOP"
            wait_until(
                lambda: self.process_state().startswith("T") is stopped,
                timeout_s=CONFIRM_S,
                what=f"{self._name}'s main process to be {'stopped' if stopped else 'running'} after {name}",
                instead=lambda: f"process state {self.process_state()}",
                interval_s=0.02,
            )

    def process_state(self) -> str:
        """State letters of the main process as `ps` shows them (T: stopped by a signal). Raises ClusterError."""
        top = self._call("list the processes", lambda: self._clients.api.top(self._container, "-eo pid,stat"))
        pid = str((self.inspect() or {}).get("State", {}).get("Pid", ""))
        states: dict[str, str] = {row[0].strip(): row[1].strip() for row in (top or {}).get("Processes") or []}
        return states.get(pid, "")

    def kill(self) -> None:
        """SIGKILL the main process and wait until the container is stopped. No error if it is. Paused ones die too."""
        if self.state() is not NodeState.STOPPED:
            try:
                self._call("kill", lambda: self._clients.api.kill(self._container, signal="SIGKILL"))
            except ClusterError:
                if self.state() is not NodeState.STOPPED:  # else it ended by itself in between
                    raise
        self._confirm(NodeState.STOPPED)

    def start(self) -> None:
        """Start again (no error if it runs). Returns when the process runs, not when Kafka is ready."""
        self._call("start", lambda: self._clients.api.start(self._container))
        self._confirm(NodeState.RUNNING)

    def exec(self, command: Sequence[str], *, timeout_s: float = 30, privileged: bool = False) -> ExecResult:
        """Run a command inside a running container. Raises ClusterError (paused, stopped, time-out)."""
        return run_bounded(
            self._clients.api, self._container, command, timeout_s=timeout_s, privileged=privileged, node=self._name
        )

    def net(self, script: str, *, timeout_s: float = 30) -> ExecResult:
        """Run a shell script with NET_ADMIN inside the node's network namespace (iptables, ip, ss, tc).

        Works on a paused node too. Rules made here vanish when the node stops. Raises ClusterError (stopped, time-out).
        """
        if self.state() not in (NodeState.RUNNING, NodeState.PAUSED):
            raise ClusterError(f"{self._name} is {self.state()}: it has no network namespace to act in")
        return transfer.run_tool(
            self._clients,
            self._tools_image,
            script,
            labels=self._tool_labels(),
            node=self._name,
            timeout_s=timeout_s,
            options={"network_mode": f"container:{self._container}", "cap_add": ["NET_ADMIN", "NET_RAW"]},
        )

    def logs(self, *, tail: int | None = None) -> str:
        """Everything (or the last lines) the main process printed, over all its starts. Empty when absent."""
        try:
            raw = self._clients.api.logs(
                self._container, stdout=True, stderr=True, tail="all" if tail is None else tail
            )
        except docker.errors.NotFound:
            return ""
        except (docker.errors.APIError, requests.RequestException) as error:
            raise ClusterError(f"{self._name}: its log cannot be read: {explain(error)}") from error
        return bytes(raw).decode(errors="replace")

    def fetch(self, path: str, into: Path, *, only: Sequence[str] = ()) -> Path:
        """Copy a file or folder out of the container, also when it is paused or stopped; returns where it is.

        only: shell patterns of file names (`*.log`), everything when empty. Files that grow meanwhile are copied up
        to their size when the copy reached them. Raises ClusterError.
        """
        return transfer.fetch(
            self._clients,
            self._container,
            path,
            into,
            only=only,
            tools_image=self._tools_image,
            labels=self._tool_labels(),
            node=self._name,
        )

    def _tool_labels(self) -> dict[str, str]:
        return {**self._run_labels, label.NODE: f"{self._name}-tool"}

    def _call(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except docker.errors.NotFound as error:
            raise ClusterError(f"cannot {what} {self._name}: its container is gone") from error
        except (docker.errors.APIError, requests.RequestException) as error:
            raise ClusterError(f"cannot {what} {self._name}: {explain(error)}") from error

    def _confirm(self, state: NodeState) -> None:
        def reached() -> bool:
            found = self.state()
            if state is NodeState.RUNNING and found is NodeState.STOPPED:
                raise ClusterError(self.obituary())
            return found is state

        wait_until(
            reached,
            timeout_s=CONFIRM_S,
            what=f"{self._name} to be {state}",
            instead=lambda: str(self.state()),
            interval_s=0.02,
        )

    def obituary(self, *, lines: int = 60) -> str:
        """Describes a container that has ended: how, and the reason from the last `lines` of its log."""
        tail = ""
        with contextlib.suppress(ClusterError):
            tail = self.logs(tail=lines)
        found = self.inspect() or {"State": {}}
        return obituary(self._name, self.exit_code(), tail, no_memory=bool(found["State"].get("OOMKilled")))
