"""Clients of the Docker engine for many threads.

A docker client holds one HTTP session; sessions are not meant to be shared by threads, and several nemeses act at
once. So each thread gets its own client, with a time limit on every answer.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

import docker

from harness.clusters.docker import engine

TIMEOUT_S = 60


def connect(*, timeout_s: float = TIMEOUT_S) -> docker.DockerClient:
    """A client of the engine that the environment names. Raises EngineError when it does not answer."""
    return engine.connect(answer_s=timeout_s)


def explain(error: Exception) -> str:
    """The engine's own message from an error of its client."""
    return str(getattr(error, "explanation", None) or error)


class DockerClients:
    """One client per thread, gone with its thread; `close` closes them all."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: weakref.WeakSet[docker.DockerClient] = weakref.WeakSet()

    def get(self) -> docker.DockerClient:
        """This thread's client. Raises EngineError when the engine does not answer."""
        client = getattr(self._local, "client", None)
        if client is None:
            client = connect(timeout_s=self._timeout_s)
            self._local.client = client
            with self._lock:
                self._all.add(client)
        return client

    @property
    def api(self) -> Any:
        """This thread's low-level client (docker.APIClient)."""
        return self.get().api

    def close(self) -> None:
        """Close every client that any thread made. A client used afterwards opens its connections again."""
        with self._lock:
            clients = list(self._all)
        for client in clients:
            with contextlib.suppress(Exception):
                client.close()
