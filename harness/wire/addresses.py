"""Where brokers listen."""

from __future__ import annotations

from dataclasses import dataclass

from harness.wire.frames import WireError


@dataclass(frozen=True, order=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Addresses out of `host:port,host:port`. Raises WireError naming the part that is not one."""
    found = []
    for part in (piece.strip() for piece in text.split(",")):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit():
            raise WireError(f"address {part!r} is not HOST:PORT")
        found.append(Address(host, int(port)))
    return tuple(found)
