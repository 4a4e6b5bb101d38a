"""The only module that uses toxiproxy and its Python client.

toxiproxy-python keeps the server's address in one class attribute for the whole process and waits for ever. Two runs
in one process would control each other's proxies. So every server gets a private copy of that package (loaded again
under another name), with its own address and with an HTTP session that has a time limit.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import requests
import toxiproxy

from harness.core.errors import ClusterError

Stream = Literal["upstream", "downstream"]

_copies = itertools.count(1)

T = TypeVar("T")


class _BoundedSession(requests.Session):
    """Every request gets a time limit, and an error status is an error."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self.trust_env = False  # no HTTP proxy of the environment between us and a container

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """As in requests, with the limit and a check."""
        kwargs.setdefault("timeout", self._timeout_s)
        response = super().request(*args, **kwargs)
        if response.status_code >= 400:
            raise requests.HTTPError(f"{response.status_code}: {response.text.strip()[:300]}", response=response)
        return response


def _private_copy(session: requests.Session) -> tuple[str, ModuleType]:
    """The toxiproxy package under a new name, with `requests` in it replaced by the session."""
    origin = Path(str(toxiproxy.__file__))
    name = f"_shatterproof_toxiproxy_{next(_copies)}"
    spec = importlib.util.spec_from_file_location(name, origin, submodule_search_locations=[str(origin.parent)])
    if spec is None or spec.loader is None:
        raise ClusterError(f"the toxiproxy client cannot be loaded from {origin}: install toxiproxy-python again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    sys.modules[f"{name}.api"].requests = session  # type: ignore[attr-defined]
    return name, module


class ToxiproxyServer:
    """One toxiproxy server. Raises ClusterError when it does not do what it is asked. Thread-safe."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 5.0) -> None:
        self._where = f"toxiproxy at {host}:{port}"
        self._session = _BoundedSession(timeout_s)
        self._package, module = _private_copy(self._session)
        self._server = module.Toxiproxy()
        self._server.update_api_consumer(host, port)
        self._lock = threading.RLock()  # read-then-write sequences of one server stay together

    def close(self) -> None:
        """Close the connections and forget the private copy."""
        self._session.close()
        for name in [n for n in sys.modules if n == self._package or n.startswith(f"{self._package}.")]:
            del sys.modules[name]

    def running(self) -> bool:
        """Whether its API answers."""
        try:
            self._server.proxies()
        except (requests.RequestException, ValueError):
            return False
        return True

    def create(self, name: str, *, listen: str, upstream: str) -> None:
        """Create a proxy."""
        self._do(f"make proxy {name}", lambda: self._server.create(upstream=upstream, name=name, listen=listen))

    def proxies(self) -> Mapping[str, bool]:
        """Proxy name → whether it listens."""
        found = self._do("list the proxies", self._server.proxies)
        return {name: bool(proxy.enabled) for name, proxy in found.items()}

    def toxics(self, name: str) -> frozenset[str]:
        """Names of a proxy's toxics."""
        return frozenset(self._do(f"list the toxics of {name}", lambda: self._proxy(name).toxics()))

    def add_toxic(self, name: str, kind: str, stream: Stream, attributes: Mapping[str, int]) -> None:
        """Put a toxic on a proxy; one of the same kind and direction is replaced."""
        toxic = f"{kind}_{stream}"

        def put() -> None:
            proxy = self._proxy(name)
            if toxic in proxy.toxics():
                proxy.destroy_toxic(toxic)
            proxy.add_toxic(type=kind, name=toxic, stream=stream, attributes=dict(attributes))

        self._do(f"put {toxic} on {name}", put)

    def remove_toxics(self, name: str) -> frozenset[str]:
        """Remove all toxics of a proxy; returns their names."""

        def remove() -> frozenset[str]:
            proxy = self._proxy(name)
            toxics = frozenset(proxy.toxics())
            for toxic in toxics:
                proxy.destroy_toxic(toxic)
            return toxics

        removed: frozenset[str] = self._do(f"take the toxics off {name}", remove)
        return removed

    def disable(self, name: str) -> None:
        """Stop listening and drop every connection."""
        self._do(f"disable {name}", lambda: self._proxy(name).disable())

    def enable(self, name: str) -> None:
        """Listen again."""
        self._do(f"enable {name}", lambda: self._proxy(name).enable())

    def _proxy(self, name: str) -> Any:
        proxy = self._server.get_proxy(name)
        if proxy is None:
            raise ClusterError(f"{self._where} has no proxy {name}: was it restarted? It forgets them")
        return proxy

    def _do(self, what: str, action: Callable[[], T]) -> T:
        with self._lock:
            try:
                return action()
            except (requests.RequestException, ValueError) as error:
                raise ClusterError(f"{self._where} did not {what}: {error}") from error
