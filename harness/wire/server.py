"""A server that speaks Kafka's protocol: handlers per API, the rest passed on to a real broker or refused.

Requests of one connection are answered in order, one at a time, as Kafka's own brokers do. A handler returns a
response of kio.schema, or the encoded body in parts (so that records are passed through without a copy). ApiVersions
is answered here: in version 0 with UNSUPPORTED_VERSION to a client that is too new, as the protocol asks. A request of
an API or version that was never advertised has no decodable answer: the connection is closed with a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i32Timedelta

from harness.wire import frames
from harness.wire.frames import API_VERSIONS, WireError

__all__ = ["Handler", "Request", "Versions", "WireServer"]

Versions = tuple[int, int]
Parts = Sequence[bytes]

_LOG = logging.getLogger(__name__)
_API_VERSIONS_RANGE: Final = (0, 4)
_READ_LIMIT: Final = 1024 * 1024
_ZERO: Final = i32Timedelta.parse(datetime.timedelta())


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One received request. payload: the whole frame; the body starts at `offset`. session: its connection."""

    api_key: int
    version: int
    client_id: str
    payload: bytes
    offset: int
    listener: str
    session: object

    def decode(self) -> Any:
        """The body as kio's dataclass."""
        return frames.decode(frames.request_type(self.api_key, self.version), self.payload, self.offset)[0]

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self.payload[self.offset :]


Handler = Callable[[Request], Awaitable[Any]]
"""Returns a response of kio.schema or the parts of an encoded body."""


class WireServer:
    """Listeners that share handlers.

    handlers: API key → (versions, handler). `passing` may be set later by `pass_on`: APIs that a real broker answers.
    """

    def __init__(self, handlers: Mapping[int, tuple[Versions, Handler]]) -> None:
        self._handlers = dict(handlers)
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()

    def add(self, api_key: int, versions: Versions, handler: Handler) -> None:
        """Answer one more API."""
        self._handlers[api_key] = (versions, handler)

    def intercept(self, api_key: int, wrapper: Callable[[Request, Handler], Awaitable[Any]]) -> None:
        """Answer an API that is offered with `wrapper(request, handler)`. Raises KeyError for one that is not."""
        versions, handler = self._handlers[api_key]
        self._handlers[api_key] = (versions, lambda request: wrapper(request, handler))

    def pass_on(self, api_keys: Mapping[int, Versions], ask: Callable[[Request], Awaitable[bytes]]) -> None:
        """Answer these APIs with what `ask` returns: the encoded body of a real broker's response."""

        async def handler(request: Request) -> Parts:
            return (await ask(request),)

        for key, theirs in api_keys.items():
            ours = frames.known_versions(key)
            if key in self._handlers or ours is None:
                continue
            low, high = max(ours[0], theirs[0]), min(ours[1], theirs[1])
            if low <= high:
                self._handlers[key] = ((low, high), handler)

    async def listen(self, name: str, host: str, port: int) -> int:
        """Open one listener; returns its port (for port 0 the one that was free)."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._clients.add(task)
            try:
                await self._serve(name, reader, writer)
            except asyncio.CancelledError:
                pass  # by `close`; asyncio would log it as an error of its callback
            finally:
                self._clients.discard(task)

        server = await asyncio.start_server(connected, host, port, limit=_READ_LIMIT)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        for server in self._servers:
            server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._servers.clear()

    async def _serve(self, listener: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername"))
        session = object()
        try:
            while True:
                size = frames.frame_length(await reader.readexactly(4), peer)
                payload = await reader.readexactly(size)
                writer.writelines(await self._answer(payload, listener, session))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        except (WireError, struct.error) as error:
            _LOG.warning("%s on %s: %s; closing its connection", peer, listener, error)
        except Exception:
            _LOG.exception("%s on %s: a request could not be answered; closing its connection", peer, listener)
        finally:
            with contextlib.suppress(RuntimeError, OSError):
                writer.close()

    async def _answer(self, payload: bytes, listener: str, session: object) -> Parts:
        key, version, correlation = frames.request_start(payload)
        if key == API_VERSIONS:
            return _framed(key, *self._api_versions(version), correlation)
        versions, handler = self._handlers.get(key, (None, None))
        if versions is None or handler is None or not versions[0] <= version <= versions[1]:
            raise WireError(f"API {key} version {version} was asked, which is not offered here ({versions})")
        header, offset = frames.request_header(payload, key, version)
        request = Request(
            api_key=key,
            version=version,
            client_id=str(header.client_id or ""),
            payload=payload,
            offset=offset,
            listener=listener,
            session=session,
        )
        answer = await handler(request)
        parts = answer if isinstance(answer, tuple | list) else (frames.encode(answer),)
        return _framed(key, version, parts, correlation)

    def _api_versions(self, version: int) -> tuple[int, Parts]:
        low, high = _API_VERSIONS_RANGE
        known = low <= version <= high
        answered = version if known else 0
        response: Any = frames.response_type(API_VERSIONS, answered)
        entry = sys.modules[response.__module__].ApiVersion
        offered = {**{key: versions for key, (versions, _) in self._handlers.items()}, API_VERSIONS: (low, high)}
        keys = tuple(
            entry(api_key=i16(key), min_version=i16(a), max_version=i16(b)) for key, (a, b) in sorted(offered.items())
        )
        extra = {"throttle_time": _ZERO} if answered > 0 else {}
        code = ErrorCode.none if known else ErrorCode.unsupported_version
        return answered, (frames.encode(response(error_code=code, api_keys=keys, **extra)),)


def _framed(key: int, version: int, parts: Parts, correlation: int) -> Parts:
    header = frames.response_header(key, version, correlation)
    size = len(header) + sum(len(part) for part in parts)
    return (struct.pack(">i", size) + header, *parts)
