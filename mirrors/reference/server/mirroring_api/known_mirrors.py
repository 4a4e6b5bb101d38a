"""The mirrors and records that other processes of the destination have written."""

from __future__ import annotations

import asyncio

from mirrors.reference.server.mirroring_api.outcomes import OK, Outcome
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.peers import Peers


class KnownMirrors:
    """changing: held while mirrors come and go."""

    def __init__(self, mirrors: Mirrors, peers: Peers) -> None:
        self._mirrors = mirrors
        self._peers = peers
        self.changing = asyncio.Lock()

    async def refresh(self) -> Outcome:
        """Read what others have written; OK then. Raises WireError or MirrorError."""
        async with self.changing:
            await self.read()
        return OK

    async def read(self) -> None:
        """The same where `changing` is held."""
        if not self._peers.alone:
            await self._mirrors.learn()
            await self._peers.learn()
