"""One blocking connection to one Kafka broker: requests and responses are kio's dataclasses.

Every call is bounded by the connection's time-out, also against a broker that accepts and never answers (a paused
container). A failed call closes the connection; the next one opens it again. One thread per client.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from harness.wire.entity_table import EntityError
from harness.wire.frames import WireError, decode, encode_request, frame_length, response_body_offset, response_type

__all__ = ["WireClient", "WireError"]


class WireClient:
    """A connection that is opened when it is first needed. Use it as a context manager."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 2.0, client_id: str = "shatterproof") -> None:
        self.host = host
        self.port = port
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._correlation = 0

    def call(self, request: Any) -> Any:
        """Send one request of kio.schema and return the decoded response.

        Raises: WireError when there is no whole answer within the time-out (connecting included).
        """
        deadline = time.monotonic() + self._timeout_s
        name = type(request).__name__
        key, version = request.__api_key__, request.__version__
        try:
            if self._socket is None:
                self._socket = socket.create_connection((self.host, self.port), timeout=self._timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._correlation = (self._correlation + 1) & 0x7FFFFFFF
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            sent = encode_request(request, correlation_id=self._correlation, client_id=self._client_id)
            self._socket.sendall(sent)
            payload = self._receive(self._socket, deadline)
            correlation, used = response_body_offset(payload, key, version)
            if correlation != self._correlation:
                raise WireError(f"{self.host}:{self.port} answered another request than {name}")
            body, _ = decode(response_type(key, version), payload, used)
        except WireError:
            self.close()
            raise
        except EntityError as error:
            self.close()
            raise WireError(
                f"{self.host}:{self.port} answered {name} with bytes that do not decode: {error}"
            ) from error
        except Exception as error:  # refused, reset, timed out, or bytes that do not decode: all mean "no answer"
            self.close()
            raise WireError(
                f"{self.host}:{self.port} did not answer {name}: {error or type(error).__name__}"
            ) from error
        return body

    def close(self) -> None:
        """Drop the connection; the next call opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, connection: socket.socket, deadline: float) -> bytes:
        size = frame_length(self._exactly(connection, 4, deadline), f"{self.host}:{self.port}")
        return self._exactly(connection, size, deadline)

    def _exactly(self, connection: socket.socket, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"nothing within {self._timeout_s:g} s")
            connection.settimeout(left)
            part = connection.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("it closed the connection")
            parts += part
        return bytes(parts)
