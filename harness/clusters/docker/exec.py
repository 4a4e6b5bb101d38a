"""A command inside a container with a time limit: docker-py's own call waits for ever once output has begun."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import docker.errors
import requests

from harness.clusters.docker.clients import explain
from harness.core.errors import ClusterError
from harness.topology.clusters import ExecResult

_GRACE_S = 3.0
_NOT_RUN = (126, 127)
_TIMED_OUT = (124, 137)  # of `timeout`: ended by it, or killed by it


def run_bounded(
    api: Any, container: str, command: Sequence[str], *, timeout_s: float, privileged: bool, node: str
) -> ExecResult:
    """Run a command in a running container; `timeout` inside ends it, a deadline here ends the waiting.

    Raises ClusterError (not running, paused, no `timeout` in the image, time-out).
    """
    words = " ".join(command)
    bounded = ["timeout", "-k", "1", f"{timeout_s:g}", *command]
    started = time.monotonic()
    deadline = started + timeout_s + _GRACE_S
    try:
        exec_id = api.exec_create(container, bounded, privileged=privileged)["Id"]
        stream = api.exec_start(exec_id, socket=True)
        try:
            output = _read(stream, deadline)
        finally:
            stream.close()
        code = _exit_code(api, exec_id, deadline)
    except TimeoutError as error:
        raise ClusterError(f"{node}: `{words}` did not end within {timeout_s:g} s") from error
    except (docker.errors.APIError, requests.RequestException, OSError) as error:
        raise ClusterError(f"{node}: `{words}` cannot be run: {explain(error)}") from error
    if code in _NOT_RUN and output.startswith("OCI runtime"):
        raise ClusterError(f"{node}: `{words}` cannot be run: {output.strip()[-500:]}")
    if code in _TIMED_OUT and time.monotonic() - started >= timeout_s:
        raise ClusterError(f"{node}: `{words}` did not end within {timeout_s:g} s; it printed: {output[-500:]!r}")
    return ExecResult(code, output)


def _exit_code(api: Any, exec_id: str, deadline: float) -> int:
    while True:  # the stream may end a moment before the engine knows the exit code
        found = api.exec_inspect(exec_id)
        if not found["Running"] and found["ExitCode"] is not None:
            return int(found["ExitCode"])
        if time.monotonic() >= deadline:
            raise TimeoutError
        time.sleep(0.01)


def _read(stream: Any, deadline: float) -> str:
    """Read the engine's frames (1 byte stream, 3 zero, 4 bytes length, payload) until it closes.

    A quick command's output can arrive together with the answer's header, and is then in the buffer that docker-py
    read the header through: reading the bare socket would lose it.
    """
    connection: socket.socket = getattr(stream, "_sock", stream)
    response = getattr(stream, "_response", None)
    receive = connection.recv if response is None else response.raw._fp.fp.read1
    data = bytearray()
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = receive(65536)
        if not part:
            break
        data += part
    output = bytearray()
    position = 0
    while position + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, position + 4)
        output += data[position + 8 : position + 8 + length]
        position += 8 + length
    return output.decode(errors="replace")
