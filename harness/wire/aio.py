"""Asyncio connections to Kafka brokers: pipelined, each call bounded, versions checked against the broker's own.

`Connection.call` takes a request of kio.schema at any version that the broker has (4.x brokers all have the versions
that this package pins), `Connection.version` returns the highest that both sides have, and `Connection.exchange` sends
a body that is already encoded. A call that gets no answer in time closes the connection, since Kafka answers in
order: later calls would wait as well. The next call opens a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.api_versions.v3 import request as api_versions

from harness.wire import frames
from harness.wire.addresses import Address
from harness.wire.frames import API_VERSIONS, METADATA, WireError, api_name

_CONTROLLER: Final = struct.Struct(">i")
_REMEMBERED: Final = 8  # answers to different metadata requests
_READ_LIMIT: Final = 4 * 1024 * 1024  # bytes that asyncio buffers per connection before it stops reading


BeforeSending = Callable[[int], None]


def send_all(_: int) -> None:
    """Hold back no request."""


@dataclass(frozen=True)
class _Remembered:
    """A decoded metadata answer, and its bytes without the controller, which differs in every answer."""

    version: int
    before: bytes
    after: bytes
    decoded: Any

    def fits(self, version: int, answer: bytes) -> bool:
        at = len(self.before)
        return version == self.version and answer[:at] == self.before and answer[at + _CONTROLLER.size :] == self.after


class Connection:
    """One connection, opened when it is first needed. One event loop.

    before_sending: called with the API key of each request right before its bytes are sent; raises WireError to hold
    it back.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = 5.0,
        client_id: str = "shatterproof",
        before_sending: BeforeSending = send_all,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._before_sending = before_sending
        self._correlation = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._opening = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._receiver: asyncio.Task[None] | None = None
        self._remembered: dict[bytes, _Remembered] = {}  # the last answers to metadata requests
        self._versions: dict[int, tuple[int, int]] | None = None

    async def call(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """Send a request of kio.schema and return the decoded response.

        If metadata differs from the last answer only in its controller, the last answer's object is returned again.

        Raises: WireError when the broker does not have this version, or no whole answer came in time.
        """
        key, version = int(request.__api_key__), int(request.__version__)
        body = frames.encode(request)
        payload, offset = await self.exchange(key, version, body, timeout_s=timeout_s)
        remembered = self._remembered.get(body) if key == METADATA else None
        if remembered is not None and remembered.fits(version, payload[offset:]):
            return remembered.decoded
        try:
            decoded = frames.decode(frames.response_type(key, version), payload, offset)[0]
        except Exception as error:  # kio raises many kinds of errors for malformed bytes
            self._drop(WireError(f"{self.address} answered {api_name(key)} with bytes that do not decode: {error}"))
            raise WireError(
                f"{self.address} answered {api_name(key)} with bytes that do not decode: {error}"
            ) from error
        if key == METADATA:
            self._remember(body, version, payload[offset:], decoded)
        return decoded

    def _remember(self, body: bytes, version: int, answer: bytes, decoded: Any) -> None:
        """Keep an answer, if its cluster id followed by the controller occurs in it once."""
        cluster_id = str(getattr(decoded, "cluster_id", None) or "").encode()
        both = cluster_id + _CONTROLLER.pack(int(decoded.controller_id)) if cluster_id else b""
        if not both or answer.count(both) != 1:
            self._remembered.pop(body, None)
            return
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        at = answer.index(both) + len(cluster_id)
        self._remembered[body] = _Remembered(version, answer[:at], answer[at + _CONTROLLER.size :], decoded)

    async def exchange(
        self, api_key: int, version: int, body: bytes, *, timeout_s: float | None = None
    ) -> tuple[bytes, int]:
        """Send an encoded body; returns (whole response, offset of its body). Raises WireError."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                if api_key != API_VERSIONS:
                    await self._check(api_key, version)
                payload = await self._roundtrip(api_key, version, body)
        except WireError:
            raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            why = f"nothing within {limit:g} s" if isinstance(error, TimeoutError) else str(error)
            sentence = WireError(f"{self.address} did not answer {api_name(api_key)}: {why or type(error).__name__}")
            self._drop(sentence)
            raise sentence from error
        _, offset = frames.response_body_offset(payload, api_key, version)
        return payload, offset

    async def versions(self) -> dict[int, tuple[int, int]]:
        """API key → (lowest, highest) version that the broker has; asked once per connection."""
        if self._versions is None:
            request = api_versions.ApiVersionsRequest(client_software_name="shatterproof", client_software_version="1")
            answer = await self.call(request)
            self._versions = {int(k.api_key): (int(k.min_version), int(k.max_version)) for k in answer.api_keys}
        return self._versions

    async def version(self, api_key: int) -> int:
        """The highest version of an API that both sides have. Raises WireError when there is none."""
        theirs, ours = (await self.versions()).get(api_key), frames.known_versions(api_key)
        if theirs is None or ours is None or min(theirs[1], ours[1]) < max(theirs[0], ours[0]):
            raise WireError(
                f"{self.address} has no version of {api_name(api_key)} in common with us ({theirs}, {ours})"
            )
        return min(theirs[1], ours[1])

    def close(self) -> None:
        """Drop the connection; calls that wait fail. A later call opens another."""
        self._drop(WireError(f"the connection to {self.address} was closed"))

    async def _check(self, api_key: int, version: int) -> None:
        theirs = (await self.versions()).get(api_key)
        if theirs is None or not theirs[0] <= version <= theirs[1]:
            has = "it does not have this API" if theirs is None else f"it has {theirs[0]} to {theirs[1]}"
            raise WireError(f"{self.address} cannot be asked {api_name(api_key)} version {version}: {has}")

    async def _roundtrip(self, api_key: int, version: int, body: bytes) -> bytes:
        writer = await self._open()
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        correlation = self._correlation
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        try:
            self._before_sending(api_key)
            writer.write(
                frames.raw_request(api_key, version, body, correlation_id=correlation, client_id=self._client_id)
            )
            await writer.drain()
            return await answer
        finally:
            self._waiting.pop(correlation, None)

    async def _open(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._streams is None:
                reader, writer = await asyncio.open_connection(self.address.host, self.address.port, limit=_READ_LIMIT)
                self._streams = (reader, writer)
                self._receiver = asyncio.create_task(self._receive(reader, writer))
            return self._streams[1]

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand each response to its waiting call, until the connection ends."""
        peer = str(self.address)
        try:
            while True:
                size = frames.frame_length(await reader.readexactly(4), peer)
                payload = await reader.readexactly(size)
                waiter = self._waiting.get(int.from_bytes(payload[:4], "big"))
                if waiter is not None and not waiter.done():
                    waiter.set_result(payload)
        except (OSError, asyncio.IncompleteReadError, WireError) as error:
            if self._streams is not None and self._streams[1] is writer:
                why = "it closed the connection" if isinstance(error, asyncio.IncompleteReadError) else str(error)
                self._drop(WireError(f"{peer} did not answer: {why}"))

    def _drop(self, why: WireError) -> None:
        streams, self._streams = self._streams, None
        self._versions = None
        if self._receiver is not None and self._receiver is not asyncio.current_task():
            self._receiver.cancel()
        self._receiver = None
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(why)
        if streams is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                streams[1].transport.abort()


class Pool:
    """One connection per address and purpose, so that a long poll never holds up a short question."""

    def __init__(
        self,
        *,
        timeout_s: float = 5.0,
        client_id: str = "shatterproof",
        before_sending: BeforeSending = send_all,
    ) -> None:
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._before_sending = before_sending
        self._connections: dict[tuple[Address, str], Connection] = {}

    def get(self, address: Address, purpose: str = "") -> Connection:
        """The connection to an address that is kept for a purpose; created on first use."""
        key = (address, purpose)
        if key not in self._connections:
            self._connections[key] = Connection(
                address, timeout_s=self._timeout_s, client_id=self._client_id, before_sending=self._before_sending
            )
        return self._connections[key]

    def drop(self, purpose: str) -> None:
        """Drop the connections that were kept for one purpose."""
        for key in [key for key in self._connections if key[1] == purpose]:
            self._connections.pop(key).close()

    def close(self) -> None:
        """Drop all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
